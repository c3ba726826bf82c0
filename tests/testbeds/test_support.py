"""The changing support: objective, gradient and best answer against plain linear algebra."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Compiled
from reference import central_differences

from smoothfbo.testbeds import ChangingSupport

ROUND, OUTER = 7, np.array([0.5, -1.0, 2.0, 0.0])


def make(**options):
    return Compiled(ChangingSupport(features=4, period=30.0, correlation=0.4, noise=0.2, seed=2, **options))


def numpy_solution(bed, outer):
    covariance = 0.6 * np.eye(4) + 0.4
    return np.linalg.solve(covariance + np.diag(np.exp(outer)), covariance @ np.asarray(bed.pool))


def numpy_best(bed, round=ROUND):
    place = float(bed.start) + round / 30 - np.arange(4) / 4
    return 2.5 * np.tanh(3 * (np.cos(np.pi * 0.5) - np.cos(2 * np.pi * place)))


def numpy_objective(bed, outer):
    error = numpy_solution(bed, outer) - numpy_solution(bed, numpy_best(bed))
    return error @ (0.6 * np.eye(4) + 0.4) @ error + 0.2**2


def test_objective_gradient_and_best():
    bed = make()
    here = jnp.asarray(ROUND), jnp.asarray(OUTER)
    np.testing.assert_allclose(bed.coefficients(here[1]), numpy_solution(bed, OUTER), rtol=1e-12)
    np.testing.assert_allclose(bed.objective(*here), numpy_objective(bed, OUTER), rtol=1e-10)
    expected = central_differences(lambda point: numpy_objective(bed, point), OUTER)
    np.testing.assert_allclose(bed.gradient(*here), expected, rtol=1e-6)
    np.testing.assert_allclose(bed.best(here[0]), numpy_best(bed), rtol=1e-12)
    np.testing.assert_allclose(bed.gap(*here), numpy_objective(bed, OUTER) - 0.2**2, rtol=1e-9)


def test_the_support_changes():
    """Every feature is in and out, half of them at a time, and a feature outside has hardly any coefficient."""
    bed = ChangingSupport(features=8, period=80.0)
    best = np.asarray(jax.jit(jax.vmap(bed.best))(jnp.arange(80)))
    assert (best.min(axis=0) < -2.4).all()
    assert (best.max(axis=0) > 2.4).all()
    np.testing.assert_allclose(np.mean(best < 0, axis=1), 0.5, atol=0.13)
    weights = np.abs(jax.jit(jax.vmap(bed.coefficients))(jnp.asarray(best)))
    assert weights[best > 2].mean() < 0.2 * weights[best < -2].mean()


@pytest.mark.parametrize("batch", [8, 11])
def test_pseudo_samples_are_the_penalty(batch, key):
    """The inner objective of a round is half the mean squared error plus half Σ e^λ θ², also if d divides no batch."""
    bed, theta = make(batch=batch), np.array([0.3, -0.2, 1.0, 0.7])
    inner = bed.draw(jnp.asarray(ROUND), key).inner
    got = jax.jit(bed.problem().inner_mean)(jnp.asarray(OUTER), np.asarray(inner.x) @ theta, inner)
    x, y = np.asarray(inner.x)[:batch], np.asarray(inner.y["target"])[:batch]
    expected = np.mean((y - x @ theta) ** 2) + np.sum(np.exp(OUTER) * theta**2)
    np.testing.assert_allclose(got, expected / 2, rtol=1e-12)


def test_the_design_is_as_correlated_as_it_should(key):
    x = np.asarray(make(batch=100_000).draw(jnp.asarray(0), key).outer.x)
    np.testing.assert_allclose(x.T @ x / len(x), 0.6 * np.eye(4) + 0.4, atol=0.02)


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments():
    for options, message in (
        ({"batch": 4}, "batch must be an integer >= 8"),
        ({"depth": 5.0}, r"depth must be a number in \[0, 4\]"),
        ({"correlation": -0.1}, r"correlation must be a number in \[0, 0.99\]"),
    ):
        with pytest.raises(ValueError, match=message):
            ChangingSupport(**options)
