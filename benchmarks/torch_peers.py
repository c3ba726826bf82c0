"""The hypergradients of benchmarks/hypergradients.py by TorchOpt and higher."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import higher
import numpy as np
import torch
import torchopt
from torch import Tensor, nn

from benchmarks import measure
from benchmarks.hypergradients import Prepared
from benchmarks.ridge import MAX_STEPS, RIDGE, STEP, STEPS, TERMS, TOLERANCE, Draw, Ridge

warnings.filterwarnings("ignore", "We've integrated functorch", FutureWarning)  # TorchOpt calls it by its old name


def inner_loss(parameters: Tensor, log_weights: Tensor, x: Tensor, y: Tensor) -> Tensor:
    errors = x @ parameters - y
    return 0.5 * (log_weights.exp() * errors.square()).mean() + 0.5 * RIDGE * parameters.square().sum()


def implicit(solve: Any, ridge: Ridge) -> Prepared:
    """TorchOpt's implicit differentiation at the given solution."""

    @torchopt.diff.implicit.custom_root(torch.func.grad(inner_loss), argnums=1, solve=solve)
    def root(parameters: Tensor, log_weights: Tensor, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
        return parameters

    return _prepared(ridge, lambda draw, log_weights, x: root(draw.solution, log_weights, x, draw.y))


def unrolled(ridge: Ridge) -> Prepared:
    """Through the steps of TorchOpt's functional optimiser."""

    def descend(draw: Draw, log_weights: Tensor, x: Tensor) -> Tensor:
        optimiser = torchopt.FuncOptimizer(torchopt.sgd(STEP))
        parameters = (torch.zeros_like(draw.solution).requires_grad_(),)
        for _ in range(STEPS):
            parameters = optimiser.step(inner_loss(*parameters, log_weights, x, draw.y), parameters)
        return parameters[0]

    return _prepared(ridge, descend)


class Parameters(nn.Module):
    def __init__(self, size: int):
        super().__init__()
        self.values = nn.Parameter(torch.zeros(size))


def unrolled_by_higher(ridge: Ridge) -> Prepared:
    """Through the steps of an optimiser that higher has made differentiable."""
    module = Parameters(ridge.x.shape[1])
    optimiser = torch.optim.SGD(module.parameters(), lr=STEP)

    def descend(draw: Draw, log_weights: Tensor, x: Tensor) -> Tensor:
        with higher.innerloop_ctx(module, optimiser) as (inner, differentiable):
            for _ in range(STEPS):
                differentiable.step(inner_loss(*inner.parameters(), log_weights, x, draw.y))
            return next(inner.parameters())

    return _prepared(ridge, descend)


def _prepared(ridge: Ridge, solution: Callable[[Draw, Tensor, Tensor], Tensor]) -> Prepared:
    """The gradient of the outer loss at the solution, a function of a draw, its log weights and the inputs."""
    x, x_outer = map(torch.from_numpy, (ridge.x, ridge.x_outer))
    draws = [Draw(*map(torch.from_numpy, draw)) for draw in ridge.draws]

    def hypergradient(number: int) -> np.ndarray:
        draw = draws[number]
        log_weights = draw.log_weights.clone().requires_grad_()
        errors = x_outer @ solution(draw, log_weights, x) - draw.y_outer
        return torch.autograd.grad(0.5 * errors.square().mean(), log_weights)[0].numpy()

    return hypergradient


def with_best_threads(hypergradient: Prepared) -> Prepared:
    """With one thread or one for each core, whichever is faster."""

    def on(threads: int, number: int) -> np.ndarray:
        torch.set_num_threads(threads)
        return hypergradient(number)

    choices = {str(threads): partial(on, threads) for threads in {1, measure.machine()["cores"]}}
    seconds = measure.in_turns({name: partial(choice, 0) for name, choice in choices.items()}, 1)
    return choices[min(seconds, key=lambda name: min(seconds[name]))]


CANDIDATES: dict[tuple[str, str], Callable[[Ridge], Prepared]] = {
    ("conjugate gradients", "TorchOpt"): partial(
        implicit, torchopt.linear_solve.solve_cg(rtol=TOLERANCE, atol=0.0, maxiter=MAX_STEPS)
    ),
    ("Neumann series", "TorchOpt"): partial(
        implicit, torchopt.linear_solve.solve_inv(ns=True, maxiter=TERMS - 1, alpha=STEP)
    ),
    ("unrolled", "TorchOpt"): unrolled,
    ("unrolled", "higher"): unrolled_by_higher,
}
