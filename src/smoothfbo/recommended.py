"""The recommended algorithm in one call: SmoothFBO with replay in place of stored gradients, and no rate to choose."""

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import PyTree

from smoothfbo import checks
from smoothfbo.adaptive import adaptive_steps
from smoothfbo.functions.base import AbstractFunction
from smoothfbo.functions.linear import Linear, last_hidden
from smoothfbo.functions.network import Network
from smoothfbo.hypergradients.adjoints import FittedAdjoint
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
    window: int = 20,
    damping: Number = 0.2,
    correction: AbstractCorrection | None = None,
    length: Number = 1e-2,
) -> Online:
    """An `Online` that needs no rate in units of gradients, and whose window need not be chosen with care.

    It is a composition of the library's parts, and can be taken apart:

        of_window = Functional(inner, adjoint)
        own = Functional(inner.damped(0.2), adjoint.damped(0.2))
        replayed = Replayed(of_window, 20, own=own, learns_span=True)
        Online(problem, replayed, adaptive_steps(candidates=2, project=project), project)

    In every round inner and adjoint function are fitted at the current λ on the data of the last rounds: 20 at most,
    and fewer where the problem moves within them (see `Replayed`). This is the prior of a second fit, on the round's
    own data, from which the hypergradient is formed. λ moves along it and along the gradient of the round's outer
    samples, by lengths that are learnt from what the new round says about the last moves (see `adaptive_steps`). So the
    newest round has its full weight, and the noise of few samples does not: the fit is damped towards what many rounds
    have in common.

    The paper's SmoothFBO is another composition, `optax.chain(window_average(w), optax.sgd(α))` after `Functional`. It
    averages stored gradients, which delays them; see `Replayed`.

    **Arguments:**

    - `problem`, `project`: as in `Online`.
    - `inner`: a `Linear`, which is solved in every round, or a `Network` that makes an `equinox.nn.MLP`. Of the latter
      the last layer is solved in every round, as correction and as adjoint: trained by a few steps alone, ĥ lags behind
      λ, the gradient still points where the last move went, and the steps grow without end.
    - `adjoint`, `correction`: as in `Functional`. None takes `inner` itself for a `Linear`, the last layer for an MLP.
    - `window`: rounds that are kept, so the most that are fitted together; with a `Linear`, how many are used is
      learnt. Memory: their data. Time: a call of `Functional` on all of them, one more adjoint, and a call on the
      round's own data; to learn how many to use, also a call on half the window, repeated to its full size, and one on
      the round. A `Network` is trained once a round.
    - `damping`: how much of the window's fit enters that of the round (see `Linear`).
    - `length`: how far a coordinate of λ moves in the first round (times the scale of λ_0, where that is above 1). One
      that is too small costs some rounds at the start, because lengths grow fast there. One that is far too large can
      carry λ to where the gradients vanish: let it be well below the change of λ over which the objective changes.
    """
    if isinstance(inner, Problem):
        raise TypeError("smooth_fbo takes the problem first and the inner function second: smooth_fbo(problem, inner).")
    checks.require_range(damping, "damping", 0.0)
    if isinstance(inner, Network) and adjoint is None and correction is None:
        adjoint, correction = _last_layer, FittedCorrection(_last_layer)
        if not isinstance(inner.frozen, eqx.nn.MLP):
            raise ValueError(
                "smooth_fbo needs an inner function that is solved in every round: a Linear, or a Network of an "
                "equinox.nn.MLP, whose last layer is solved. For another Network give adjoint and correction, e.g. "
                "FittedCorrection(Linear(features)); without a correction ĥ lags behind λ, and the steps grow for ever."
            )
    if isinstance(inner, Network) and inner.penalty is not None and isinstance(correction, FittedCorrection):
        warnings.warn(
            "smooth_fbo corrects the inner network by a fit without its penalty, which undoes a part of it, so the "
            "hypergradient is biased. Put a penalty on the values into inner_loss instead.",
            stacklevel=2,
        )
    adjoint = inner if adjoint is None else adjoint
    of_round = _damped(inner, damping)
    if isinstance(inner, Network) and correction is not None:
        of_round = inner.untrained()
    of_window = Functional(inner, adjoint, correction=correction)
    own = Functional(of_round, _damped(adjoint, damping), correction=_damped(correction, damping))
    # The features of a network were trained on the window: no round is independent of it, and can judge it.
    is_trained = isinstance(inner, Network)
    estimator = Replayed(of_window, window, own=own, learns_span=not is_trained)
    steps = adaptive_steps(length, candidates=2, cautious=is_trained, project=project)
    return Online(problem, estimator, steps, project)


def _last_layer(module: Any) -> Linear:
    return Linear(last_hidden(module), ridge=RIDGE, bias=True)


def _damped(part: Any, damping: Number) -> Any:
    """A function, an adjoint or a correction whose closed-form fit stays near its start. Trained ones do so anyway."""
    if isinstance(part, Linear):
        return part.damped(damping)
    if isinstance(part, FittedAdjoint):
        return FittedAdjoint(_damped(part.function, damping))
    if isinstance(part, FittedCorrection):
        return FittedCorrection(_damped(part.function, damping))
    if part is None or isinstance(part, eqx.Module):
        return part
    return lambda module: _damped(part(module), damping)
