"""The arena's methods: compositions of the library, one entry each."""

from typing import Any

import jax.numpy as jnp
import optax
from jaxtyping import Array, Int

from smoothfbo.adaptive import adaptive_steps
from smoothfbo.errors import NotAvailable
from smoothfbo.functions import Linear, Network
from smoothfbo.harness.methods import RECOMMENDED
from smoothfbo.hypergradients import (
    AbstractEstimator,
    ConjugateGradient,
    FirstOrder,
    FittedCorrection,
    Functional,
    IdentityInverse,
    Implicit,
    NeumannSeries,
    Oracle,
    Reevaluated,
    Replayed,
    SingleLoop,
    Storm,
    Unrolled,
)
from smoothfbo.online import Online
from smoothfbo.recommended import smooth_fbo
from smoothfbo.smoothing import discounted_average, mixed_average, window_average
from smoothfbo.studies.arena.entries import LARGEST_WINDOW, ArenaMethod
from smoothfbo.types import Number

Window = Int[Array, ""] | int

WINDOWS = (4, 16)
MIX = 0.4  # θ of the paper's appendix
CONJUGATE = ConjugateGradient(ridge=0.01, max_steps=10)
DISCOUNT = 0.9  # of a round, where the paper discounts
PENALTY = 10.0  # σ of the first-order method
FIRST_LENGTH = 0.01  # the default of `smooth_fbo`
STEPS_FACTOR = 4  # times the fit steps of FBO, for a comparison at equal time


def online(testbed: Any, estimator: AbstractEstimator, rate: Number, *before: optax.GradientTransformation) -> Online:
    """λ_{t+1} = Proj_Λ(λ_t − rate · g̃_t), where `before` makes g̃ out of ĝ."""
    return Online(testbed.problem(), estimator, optax.chain(*before, optax.sgd(rate)), project=testbed.project)


def smoothed(window: Window) -> optax.GradientTransformation:
    """The mean of the last w gradients, as in the paper, with a window that can be traced."""
    return window_average(window, capacity=LARGEST_WINDOW, constant=True)


def functional(testbed: Any, rate: Number, window: Window, mix: Number) -> Online:
    """FBO (w = 1), SmoothFBO (w > 1, θ = 0) and its θ-mix. On an oracle problem, the oracle takes FBO's place."""
    is_oracle = testbed.problem() is None
    estimator = testbed.oracle() if is_oracle else Functional(testbed.inner(), testbed.adjoint())
    return online(testbed, estimator, rate, mixed_average(mix, smoothed(window)))


def functional_linear(testbed: Any, rate: Number, window: Window) -> Online:
    """FBO whose adjoint is linear in known features, in closed form."""
    return online(testbed, Functional(inner(testbed), testbed.linear()), rate, smoothed(window))


def functional_solved(testbed: Any, rate: Number, window: Window) -> Online:
    """FBO whose inner and adjoint function are solved in closed form, on the data of the round."""
    del window
    return online(testbed, Functional(*solved(testbed)), rate)


def replayed(testbed: Any, rate: Number, window: Window) -> Online:
    """FBO on the data of the last w rounds, at the current λ; in closed form where there is one."""
    inner(testbed)  # not for an oracle
    return online(testbed, Replayed(Functional(*solved_or_trained(testbed)), int(window)), rate)


def recommended(testbed: Any, rate: Number, window: Window) -> Online:
    """What we recommend, `smooth_fbo`, with its defaults; `rate` is the length of the first step."""
    del window
    if testbed.problem() is None:
        return Online(None, testbed.oracle(), adaptive_steps(rate), project=testbed.project)
    try:
        function = testbed.linear()
    except NotAvailable:
        function = inner(testbed)
    return smooth_fbo(testbed.problem(), function, project=testbed.project, length=rate)


def solved(testbed: Any) -> tuple[Linear, Linear]:
    """The inner and the adjoint function in closed form."""
    linear = testbed.linear()
    if linear.steps > 1:
        raise NotAvailable("the inner problem has no closed form")
    return linear, linear


def solved_or_trained(testbed: Any) -> tuple[Any, Any]:
    try:
        return solved(testbed)
    except NotAvailable:
        return inner(testbed), testbed.adjoint()


def functional_more(testbed: Any, rate: Number, window: Window) -> Online:
    """FBO with more steps for the inner and the adjoint function."""
    del window
    steps = STEPS_FACTOR * inner(testbed).steps
    return online(testbed, Functional(testbed.inner(steps=steps), testbed.adjoint(steps=steps)), rate)


def corrected(testbed: Any, rate: Number, window: Window) -> Online:
    """FBO at v⁺, one fitted Newton step from ĥ towards the inner solution."""
    del window
    correction = FittedCorrection(inner(testbed))
    return online(testbed, Functional(testbed.inner(), testbed.adjoint(), correction=correction), rate)


def aid(testbed: Any, rate: Number, window: Window) -> Online:
    """Implicit differentiation with ten conjugate-gradient steps a round, warm-started."""
    del window
    return online(testbed, Implicit(inner(testbed), CONJUGATE), rate)


def aid_neumann(testbed: Any, rate: Number, window: Window) -> Online:
    """Implicit differentiation with ten terms of a Neumann series."""
    del window
    return online(testbed, Implicit(inner(testbed), NeumannSeries(terms=10, step=testbed.system_rate)), rate)


def omd(testbed: Any, rate: Number, window: Window) -> Online:
    """Implicit differentiation with the identity in place of the inverse Hessian."""
    del window
    return online(testbed, Implicit(inner(testbed), IdentityInverse()), rate)


def sobow(testbed: Any, rate: Number, window: Window) -> Online:
    """SOBOW: one inner step and two conjugate-gradient steps a round, a discounted window of stored gradients."""
    few = ConjugateGradient(tolerance=None, max_steps=2)
    past = discounted_average(window, DISCOUNT, capacity=LARGEST_WINDOW, constant=True)
    return online(testbed, Implicit(inner(testbed, steps=1), few), rate, past)


def oagd(testbed: Any, rate: Number, window: Window) -> Online:
    """OAGD: the last w losses, evaluated again at the current λ by implicit differentiation."""
    return online(testbed, Reevaluated(Implicit(inner(testbed), CONJUGATE), window, DISCOUNT), rate)


def sogd(testbed: Any, rate: Number, window: Window) -> Online:
    """SOGD: one step of all three variables with recursive momentum; 1/w is what it forgets in a round."""
    forgetting = 1 / jnp.asarray(window, jnp.result_type(float))
    return online(testbed, Storm(inner(testbed, steps=1), testbed.system_rate, forgetting), rate)


def soba(testbed: Any, rate: Number, window: Window) -> Online:
    """SOBA: one step each of the inner function, of the linear system and of λ."""
    del window
    return online(testbed, SingleLoop(inner(testbed, steps=1), testbed.system_rate), rate)


def sobbo(testbed: Any, rate: Number, window: Window) -> Online:
    """SOBBO: a window, and Bregman steps whose quadratic potential follows the squares of the gradients."""
    estimator = Implicit(inner(testbed), CONJUGATE)
    optimiser = optax.chain(smoothed(window), optax.rmsprop(rate))
    return Online(testbed.problem(), estimator, optimiser, project=testbed.project)


def first_order(testbed: Any, rate: Number, window: Window) -> Online:
    """F²SA: a penalty in place of the Hessian."""
    del window
    return online(testbed, FirstOrder(inner(testbed), PENALTY), rate)


def unrolled(testbed: Any, rate: Number, window: Window) -> Online:
    """Differentiation through the inner steps of the round."""
    del window
    return online(testbed, Unrolled(inner(testbed)), rate)


def exact(testbed: Any, rate: Number, window: Window) -> Online:
    """Steps along the exact ∇F_t(λ_t): what a perfect estimator would do."""
    del window
    return online(testbed, Oracle(lambda outer, round, key: testbed.gradient(round, outer)), rate)  # noqa: ARG005


def inner(testbed: Any, steps: int | None = None) -> Network:
    """The testbed's own inner network; an oracle problem has none."""
    if testbed.problem() is None:
        raise NotAvailable("the problem is a gradient oracle: it has no inner function")
    return testbed.inner(steps=steps)


METHODS = (
    ArenaMethod("fbo", functional, options={"mix": 0.0}),
    ArenaMethod("smooth-fbo", functional, windows=WINDOWS, options={"mix": 0.0}),
    ArenaMethod("mixed-fbo", functional, "SmoothFBO, θ = 0.4", "#44aa99", windows=WINDOWS, options={"mix": MIX}),
    ArenaMethod(RECOMMENDED, recommended, untuned=FIRST_LENGTH),
    ArenaMethod("fbo-linear", functional_linear, "FBO, linear adjoint", "#6969ff"),
    ArenaMethod("fbo-solved", functional_solved, "FBO, solved", "#1b9e9e"),
    ArenaMethod("replayed-fbo", replayed, "FBO, replayed", "#7570b3", windows=WINDOWS, static_window=True),
    ArenaMethod("fbo-4", functional_more, "FBO, 4 × fit steps", "#003f66"),
    ArenaMethod("corrected-fbo", corrected),
    ArenaMethod("aid", aid),
    ArenaMethod("aid-neumann", aid_neumann, "AID (Neumann)", "#aa4499"),
    ArenaMethod("omd", omd),
    ArenaMethod("unrolled", unrolled),
    ArenaMethod("sobow", sobow, "SOBOW", "#e69f00", windows=WINDOWS),
    ArenaMethod("oagd", oagd, "OAGD", "#8b5a2b", windows=(2, 8), static_window=True),
    ArenaMethod("sogd", sogd, "SOGD", "#882255", windows=WINDOWS),
    ArenaMethod("soba", soba, "Single loop (SOBA)", "#999933"),
    ArenaMethod("sobbo", sobbo, "SOBBO", "#117733", windows=WINDOWS, is_scaled=True),
    ArenaMethod("f2sa", first_order, "First order (F²SA)", "#b22222"),
    ArenaMethod("exact", exact, is_reference=True),
)
"""Every method of the arena. To add one, add an entry: name, how it is built, label and colour."""
