"""Moving sources: objective, gradient and best mixture against NumPy, quadrature and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import Compiled
from reference import central_differences
from scipy import optimize

import smoothfbo as sf
from smoothfbo.testbeds import MovingSources

ROUND = 5
OUTER = {"softmax": np.array([0.3, -1.0, 0.8, 0.1]), "shares": np.array([0.1, 0.4, 0.2, 0.3])}


def make(weights="softmax", **options):
    return Compiled(MovingSources(sources=4, features=6, weights=weights, period=20.0, noise=0.2, seed=3, **options))


def numpy_shares(outer, weights):
    return np.exp(outer) / np.exp(outer).sum() if weights == "softmax" else outer / outer.sum()


def numpy_objective(bed, outer, weights, round=ROUND):
    """The risk of the p-weighted mean of the sources' functions, by quadrature over x."""
    x = (np.arange(400) + 0.5) / 400
    waves = [np.sqrt(2) * wave(2 * np.pi * j * x) for j in (1, 2, 3) for wave in (np.cos, np.sin)]
    phi = np.stack([np.ones_like(x), *waves])[:6]
    place = float(bed.start) + round / 20 - np.arange(4) / 4
    amounts = bed.amplitude * (bed.low + (1 - bed.low) * (1 - np.cos(2 * np.pi * place)) / 2)
    target = np.asarray(bed.target(jnp.asarray(round))) @ phi
    sources = target + amounts[:, None] * (np.asarray(bed.directions) @ phi)
    mixture = numpy_shares(outer, weights) @ sources
    return np.mean((mixture - target) ** 2) + 0.2**2


@pytest.mark.parametrize("weights", OUTER)
def test_objective_and_gradient(weights):
    bed, outer = make(weights, correlation=0.3, target_drift=0.5), OUTER[weights]
    here = jnp.asarray(ROUND), jnp.asarray(outer)
    np.testing.assert_allclose(bed.objective(*here), numpy_objective(bed, outer, weights), rtol=1e-10)
    expected = central_differences(lambda point: numpy_objective(bed, point, weights), outer)
    np.testing.assert_allclose(bed.gradient(*here), expected, rtol=1e-6, atol=1e-9)


def test_directions_are_as_correlated_as_they_should():
    directions = np.asarray(make(correlation=0.3).directions)
    np.testing.assert_allclose(directions @ directions.T, 0.7 * np.eye(4) + 0.3, atol=1e-12)


def test_the_best_mixture():
    """In closed form for orthogonal directions: it moves, and lies inside; else against SciPy."""
    bed = make()
    best = jax.jit(jax.vmap(lambda round: bed.shares(bed.best(round))))(jnp.arange(20))
    inverse = np.asarray(jax.jit(jax.vmap(bed.amounts))(jnp.arange(20))) ** -2.0
    np.testing.assert_allclose(best, inverse / inverse.sum(axis=1, keepdims=True), atol=1e-6)
    assert best.min() > 0.01
    assert np.ptp(best, axis=0).min() > 0.4
    for t in (0, 7):
        np.testing.assert_array_equal(bed.project(bed.best(jnp.asarray(t))), bed.best(jnp.asarray(t)))

    bed = make("shares", correlation=0.6)
    for round in (0, 7):
        matrix = np.asarray(bed.discrepancy(jnp.asarray(round)))
        found = optimize.minimize(
            lambda p, matrix=matrix: p @ matrix @ p, np.full(4, 0.25), bounds=[(0, 1)] * 4, method="SLSQP",
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1}, options={"ftol": 1e-14},
        )  # fmt: skip
        np.testing.assert_allclose(bed.best(jnp.asarray(round)), found.x, atol=1e-5)
        assert found.x.min() < 1e-6  # a corner case: some sources are not worth a share
        softmax = make("softmax", correlation=0.6)
        assert 0 <= softmax.objective(jnp.asarray(round), softmax.best(jnp.asarray(round))) - 0.2**2 - found.fun < 1e-4


def test_the_data_are_those_of_the_sources(key):
    """With much data, the coefficients of each source and of the target, and the noise around them."""
    bed = make(samples=4000, batch=4000, target_drift=0.5)
    data = bed.draw(jnp.asarray(ROUND), key)
    amounts, target = np.asarray(bed.amounts(jnp.asarray(ROUND))), np.asarray(bed.target(jnp.asarray(ROUND)))
    np.testing.assert_array_equal(np.bincount(data.inner.y["source"]), [4000] * 4)

    features = jax.jit(jax.vmap(bed.phi))

    def fitted(samples, rows):
        phi, y = (np.asarray(each)[rows] for each in (features(samples.x), samples.y["target"]))
        found = np.linalg.lstsq(phi, y, rcond=None)[0]
        np.testing.assert_allclose(np.std(y - phi @ found), 0.2, rtol=0.05)
        return found

    np.testing.assert_allclose(fitted(data.outer, slice(None)), target, atol=0.02)
    for source in range(4):
        expected = target + amounts[source] * np.asarray(bed.directions)[source]
        np.testing.assert_allclose(
            fitted(data.inner, np.asarray(data.inner.y["source"]) == source), expected, atol=0.02
        )


def test_lanes_have_instances_of_their_own():
    """Seeds, periods and noises are traced."""

    def one(seed, period, noise):
        bed = MovingSources(seed=seed, period=period, noise=noise, drift="walk")
        return bed.objective(jnp.asarray(3), bed.initial()), bed.directions

    numbers = jnp.arange(2), jnp.asarray([50.0, 100.0]), jnp.asarray([0.1, 0.2])
    values, directions = jax.jit(jax.vmap(one))(*numbers)
    assert np.abs(np.diff(np.asarray(directions), axis=0)).max() > 0.1
    np.testing.assert_allclose(np.asarray(values)[1], jax.jit(lambda: one(1, 100.0, 0.2)[0])(), rtol=1e-12)


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments():
    for options, message in (
        ({"features": 6}, "features must be an integer >= 7"),
        ({"weights": "log"}, "weights must be 'softmax' or 'shares', got weights='log'"),
        ({"low": 2.0}, r"low must be a number in \[0, 1\]"),
        ({"drift": "jump"}, "did you mean 'jumps'"),
    ):
        with pytest.raises(ValueError, match=message):
            MovingSources(**options)


def test_it_learns(key):
    """FBO comes close to the best mixture, much closer than equal shares."""
    bed = MovingSources(period=600.0)
    algorithm = sf.Online(bed.problem(), sf.Functional(bed.inner(), bed.adjoint()), optax.sgd(2.0), bed.project)
    _, trace = sf.run(algorithm, bed.source(), bed.initial(), rounds=300, key=key)
    gaps = jax.jit(jax.vmap(bed.gap))(trace.round, trace.outer)
    equal = jax.jit(jax.vmap(lambda round: bed.gap(round, bed.initial())))(trace.round)
    assert np.mean(np.asarray(gaps)[100:]) < 0.5 * np.mean(np.asarray(equal)[100:])
