"""The reference problem of `reference.py`, in the library's words."""

import functools

import equinox as eqx
import jax.numpy as jnp
import optax
import pytest
import reference

import smoothfbo as sf

RIDGE_PROBLEM = sf.Problem(
    inner_loss=lambda outer, v, x, y: 0.5 * jnp.exp(outer[y["group"]]) * (v - y["target"]) ** 2,
    outer_loss=lambda outer, v, x, y: (
        0.5 * (v - y["target"]) ** 2 + 0.5 * reference.MU * (1 + v**2) * jnp.sum(outer**2)
    ),
)


def phi(x):
    return jnp.stack([jnp.ones((), x.dtype), x[0], jnp.sin(x[1])])


def ridge_data(ridge: reference.Ridge) -> sf.Data:
    group_out = jnp.zeros(len(ridge.y_out), int)
    return sf.Data(
        inner=sf.Samples(
            jnp.asarray(ridge.x_in), {"target": jnp.asarray(ridge.y_in), "group": jnp.asarray(ridge.group)}
        ),
        outer=sf.Samples(jnp.asarray(ridge.x_out), {"target": jnp.asarray(ridge.y_out), "group": group_out}),
    )


def remembered(make):
    """The same object for the same numbers: what is compiled for one test is there for the others."""
    known = functools.cache(make)

    @functools.wraps(make)
    def call(*arguments, **options):
        try:
            return known(*arguments, **options)
        except TypeError:  # numbers that are traced have no hash
            return make(*arguments, **options)

    return call


@remembered
def linear(ridge: float = 0.1) -> sf.Linear:
    return sf.Linear(phi, ridge=ridge)


@remembered
def half_squares(ridge: float):
    return lambda params: 0.5 * ridge * jnp.sum(params**2)


@remembered
def trained_linear(steps: int, rate: float = 0.5, ridge: float = 0.1, **options) -> sf.Network:
    """The same family of functions as `linear`, as an (init, apply) pair trained by gradient descent."""
    init, apply = (lambda key, x: jnp.zeros(3)), (lambda params, x: params @ phi(x))
    return sf.Network.from_pair(init, apply, optax.sgd(rate), steps, penalty=half_squares(ridge), **options)


def marked(names, thorough):
    """These names as parameters of a test; some are for `make thorough`."""
    return [pytest.param(name, marks=pytest.mark.thorough) if name in thorough else name for name in names]


ANSWERS = {"adjoint_of", "amounts", "best", "coefficients", "discrepancy", "draw", "expected_hypergradient", "family",
           "gap", "gradient", "objective", "parameters", "solution", "target", "truth", "variance"}  # fmt: skip


class Compiled:
    """A testbed whose exact answers are one compiled program each; else every operation would be compiled alone."""

    def __init__(self, testbed):
        self.testbed, self.programs = testbed, {}

    def __getattr__(self, name):
        found = getattr(self.testbed, name)
        if name not in ANSWERS:
            return found
        return self.programs.setdefault(name, eqx.filter_jit(found))
