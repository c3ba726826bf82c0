"""Instrumental variables: objective, gradient and best answer against NumPy, and what confounding does."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Compiled
from reference import central_differences

import smoothfbo as sf
from smoothfbo.testbeds import InstrumentalVariables

ROUND = jnp.asarray(7)


def make(**options):
    return Compiled(InstrumentalVariables(treatments=3, features=5, period=30.0, seed=2, **options))


def numpy_objective(bed, outer, round):
    """E(y − λᵀE[x | z])² by quadrature over z, and the variance of y given z written out."""
    z = (np.arange(200) + 0.5) / 200
    waves = [np.sqrt(2) * wave(2 * np.pi * j * z) for j in (1, 2) for wave in (np.cos, np.sin)]
    mean = np.asarray(bed.first_stage) @ np.stack([np.ones_like(z), *waves])
    centre, one, other = np.asarray(bed.circle)
    angle = 2 * np.pi * (float(bed.start) + round / 30)
    structural = centre + bed.amplitude * (np.cos(angle) * one + np.sin(angle) * other)
    confounded = structural + bed.confounding * np.asarray(bed.confounder)
    variance = bed.spread**2 * confounded @ confounded + bed.noise**2
    return np.mean((structural @ mean - outer @ mean) ** 2) + variance


def test_objective_gradient_and_best():
    bed, outer = make(), np.array([0.5, -1.0, 0.3])
    np.testing.assert_allclose(bed.objective(ROUND, jnp.asarray(outer)), numpy_objective(bed, outer, 7), rtol=1e-10)
    expected = central_differences(lambda point: numpy_objective(bed, point, 7), outer)
    np.testing.assert_allclose(bed.gradient(ROUND, jnp.asarray(outer)), expected, rtol=1e-7)
    best = np.asarray(bed.best(ROUND))
    at_best = central_differences(lambda point: numpy_objective(bed, point, 7), best)
    np.testing.assert_allclose(at_best, 0, atol=1e-8)  # F_t is a convex quadratic
    difference = numpy_objective(bed, outer, 7) - numpy_objective(bed, best, 7)
    np.testing.assert_allclose(bed.gap(ROUND, jnp.asarray(outer)), difference, rtol=1e-10)
    singular = np.linalg.svd(np.asarray(bed.first_stage), compute_uv=False)
    np.testing.assert_allclose(singular, [1, 0.75, 0.5], rtol=1e-12)


def test_two_stage_least_squares_finds_the_parameter_and_a_regression_does_not(key):
    """On a large sample, in plain NumPy: the data are confounded as they should be."""
    bed = make(batch=100_000, paired=True)
    data = bed.draw(ROUND, key)
    np.testing.assert_array_equal(data.inner.x, data.outer.x)
    psi, (x, y) = np.asarray(jax.jit(jax.vmap(bed.phi))(data.inner.x)), map(np.asarray, data.inner.y)
    fitted = psi @ np.linalg.lstsq(psi, x, rcond=None)[0]
    two_stages = np.linalg.lstsq(fitted, y, rcond=None)[0]
    np.testing.assert_allclose(two_stages, bed.best(ROUND), atol=0.02)
    # the regression's bias is (ΠΠᵀ + s²I)⁻¹ s²κc
    square = np.asarray(bed.first_stage) @ np.asarray(bed.first_stage).T
    bias = np.linalg.solve(square + 0.25 * np.eye(3), 0.25 * np.asarray(bed.confounder))
    np.testing.assert_allclose(np.linalg.lstsq(x, y, rcond=None)[0] - np.asarray(bed.best(ROUND)), bias, atol=0.02)


def test_the_pointwise_adjoint_is_wrong_here(key):
    """At λ = β_t the hypergradient is 0; the point-wise adjoint sees the confounder: it gives −2s²(β_t + κc)."""
    bed = make(batch=80_000, paired=True)
    data, best = bed.draw(ROUND, key), bed.best(ROUND)
    gradients = []
    for adjoint in (bed.linear(), sf.PointwiseAdjoint()):
        estimator = sf.Functional(bed.linear(), adjoint)

        @jax.jit
        def estimated(data, estimator=estimator):
            state = estimator.init(bed.problem(), best, data, key)
            return estimator(bed.problem(), best, state, data, key)[0].gradient

        gradients.append(np.asarray(estimated(data)))
    np.testing.assert_allclose(gradients[0], 0, atol=0.02)
    expected = -2 * 0.25 * (np.asarray(best) + np.asarray(bed.confounder))
    np.testing.assert_allclose(gradients[1], expected, atol=0.02)


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments():
    for options, message in (
        ({"features": 3}, "features must be an integer >= 4"),
        ({"strength": 0.0}, r"strength must be a number in \(0, 1\]"),
        ({"treatments": 2}, "treatments must be an integer >= 3"),
    ):
        with pytest.raises(ValueError, match=message):
            InstrumentalVariables(**options)
