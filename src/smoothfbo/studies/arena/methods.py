"""The arena's methods: compositions of the library, one entry each."""

from typing import Any

import optax
from jaxtyping import Array, Float, Int

from smoothfbo.functions import Network
from smoothfbo.hypergradients import (
    AbstractEstimator,
    ConjugateGradient,
    Functional,
    IdentityInverse,
    Implicit,
    NeumannSeries,
    Oracle,
    Unrolled,
)
from smoothfbo.online import Online
from smoothfbo.smoothing import mixed_average, window_average
from smoothfbo.studies.arena.entries import LARGEST_WINDOW, ArenaMethod

Rate = Float[Array, ""]
Window = Int[Array, ""] | int

WINDOWS = (4, 16, 64)
MIX = 0.4  # θ of the paper's appendix
AID_RIDGE = 0.01
MORE = 4  # times the fit steps of FBO, for a comparison at equal time


def online(testbed: Any, estimator: AbstractEstimator, rate: Rate, *before: optax.GradientTransformation) -> Online:
    """λ_{t+1} = Proj_Λ(λ_t − rate · g̃_t), where `before` makes g̃ out of ĝ."""
    return Online(testbed.problem(), estimator, optax.chain(*before, optax.sgd(rate)), project=testbed.project)


def smoothed(window: Window) -> optax.GradientTransformation:
    """The mean of the last w gradients, as in the paper, with a window that can be traced."""
    return window_average(window, capacity=LARGEST_WINDOW, constant=True)


def functional(testbed: Any, rate: Rate, window: Window, mix: Rate) -> Online:
    """FBO (w = 1), SmoothFBO (w > 1, θ = 0) and its θ-mix. On an oracle problem, the oracle takes FBO's place."""
    is_oracle = testbed.problem() is None
    estimator = testbed.oracle() if is_oracle else Functional(testbed.inner(), testbed.adjoint())
    return online(testbed, estimator, rate, mixed_average(mix, smoothed(window)))


def functional_linear(testbed: Any, rate: Rate, window: Window) -> Online:
    """FBO whose adjoint is linear in known features, in closed form."""
    return online(testbed, Functional(inner(testbed), testbed.linear()), rate, smoothed(window))


def functional_more(testbed: Any, rate: Rate, window: Window) -> Online:
    """FBO with more steps for the inner and the adjoint function."""
    del window
    steps = MORE * inner(testbed).steps
    return online(testbed, Functional(testbed.inner(steps=steps), testbed.adjoint(steps=steps)), rate)


def aid(testbed: Any, rate: Rate, window: Window) -> Online:
    """Implicit differentiation with ten conjugate-gradient steps a round, warm-started."""
    del window
    return online(testbed, Implicit(inner(testbed), ConjugateGradient(ridge=AID_RIDGE, max_steps=10)), rate)


def aid_neumann(testbed: Any, rate: Rate, window: Window) -> Online:
    """Implicit differentiation with ten terms of a Neumann series."""
    del window
    return online(testbed, Implicit(inner(testbed), NeumannSeries(terms=10, step=0.1)), rate)


def omd(testbed: Any, rate: Rate, window: Window) -> Online:
    """Implicit differentiation with the identity in place of the inverse Hessian."""
    del window
    return online(testbed, Implicit(inner(testbed), IdentityInverse()), rate)


def unrolled(testbed: Any, rate: Rate, window: Window) -> Online:
    """Differentiation through the inner steps of the round."""
    del window
    return online(testbed, Unrolled(inner(testbed)), rate)


def exact(testbed: Any, rate: Rate, window: Window) -> Online:
    """Steps along the exact ∇F_t(λ_t): what a perfect estimator would do."""
    del window
    return online(testbed, Oracle(lambda outer, round, key: testbed.gradient(round, outer)), rate)  # noqa: ARG005


def inner(testbed: Any) -> Network:
    """The testbed's own inner network; an oracle problem has none."""
    if testbed.problem() is None:
        raise NotImplementedError("the problem is a gradient oracle: it has no inner function")
    return testbed.inner()


METHODS = (
    ArenaMethod("fbo", functional, options={"mix": 0.0}),
    ArenaMethod("smooth-fbo", functional, windows=WINDOWS, options={"mix": 0.0}),
    ArenaMethod("mixed-fbo", functional, windows=WINDOWS, options={"mix": MIX}),
    ArenaMethod("fbo-linear", functional_linear),
    ArenaMethod("fbo-4", functional_more),
    ArenaMethod("aid", aid),
    ArenaMethod("aid-neumann", aid_neumann),
    ArenaMethod("omd", omd),
    ArenaMethod("unrolled", unrolled),
    ArenaMethod("exact", exact, is_reference=True),
)
"""Every method of the arena. To add one, add an entry."""
