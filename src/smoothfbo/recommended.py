"""The recommended algorithm in one call: SmoothFBO with replay in place of stored gradients, and no rate to choose."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from smoothfbo.adaptive import adaptive_steps
from smoothfbo.functions.base import AbstractFunction
from smoothfbo.functions.linear import Linear, last_hidden
from smoothfbo.functions.network import Network
from smoothfbo.hypergradients.corrections import AbstractCorrection, FittedCorrection
from smoothfbo.hypergradients.functional import Functional
from smoothfbo.hypergradients.replayed import Replayed
from smoothfbo.online import Online
from smoothfbo.problem import Problem
from smoothfbo.types import Number

RIDGE = 1e-3  # of the last layer, whose hidden units may depend on each other


def smooth_fbo(
    problem: Problem,
    inner: AbstractFunction,
    *,
    adjoint: Any = None,
    project: Callable[[PyTree], PyTree] | None = None,
    windows: Sequence[int] = (1, 4, 16),
    correction: AbstractCorrection | None = None,
    length: Number = 3e-2,
) -> Online:
    """An `Online` that finds its window and its step by itself: no window and no rate in units of gradients to choose.

    It is a composition of the library's parts, and can be taken apart:

        Online(problem, Replayed(Functional(inner, adjoint), windows), adaptive_steps(candidates=len(windows)), project)

    In every round the functional hypergradient is formed at the current λ on the data of the last 1, 4 and 16 rounds,
    each with an inner and an adjoint fit of its own. λ moves along a combination of the three, whose lengths are learnt
    from what the new round's own gradient says about the last move (see `adaptive_steps`).

    The paper's SmoothFBO is another composition, `optax.chain(window_average(w), optax.sgd(α))` after `Functional`. It
    averages stored gradients, which delays them; see `Replayed`.

    **Arguments:**

    - `problem`, `project`: as in `Online`.
    - `inner`: a `Linear`, which is solved in every round, or a `Network` that makes an `equinox.nn.MLP`. Of the latter
      the last layer is solved in every round, as correction and as adjoint: trained by a few steps alone, ĥ lags behind
      λ, the gradient still points where the last move went, and the steps grow without end.
    - `adjoint`, `correction`: as in `Functional`. None takes `inner` itself for a `Linear`, the last layer for an MLP.
    - `windows`: from 1 on, increasing. Memory: the data of the longest one. Time: one call of `Functional` for each, on
      so many rounds of data. A `Network` is trained once for each window.
    - `length`: how far a coordinate of λ moves in the first round (times the scale of λ_0, where that is above 1). The
      result hardly depends on it.
    """
    if isinstance(inner, Network) and adjoint is None and correction is None:
        adjoint, correction = _last_layer, FittedCorrection(_last_layer)
        if not isinstance(inner.frozen, eqx.nn.MLP):
            raise ValueError(
                "smooth_fbo needs an inner function that is solved in every round: a Linear, or a Network of an "
                "equinox.nn.MLP, whose last layer is solved. For another Network give adjoint and correction, e.g. "
                "FittedCorrection(Linear(features)); without a correction ĥ lags behind λ, and the steps grow for ever."
            )
    estimator = Replayed(Functional(inner, inner if adjoint is None else adjoint, correction=correction), windows)
    return Online(problem, estimator, adaptive_steps(length, candidates=len(estimator.windows)), project)


def _last_layer(module: Any) -> Linear:
    return Linear(last_hidden(module), ridge=RIDGE, bias=True)
