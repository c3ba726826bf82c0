"""How problems move: formulas, traced periods, and the statistics of the random walk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from smoothfbo.testbeds import (
    Bursts,
    DriftingCosine,
    DriftingRegression,
    Jumps,
    RandomWalk,
    Sinusoidal,
    Steady,
    as_drift,
)
from smoothfbo.testbeds.drift import KINDS

TIMES = np.arange(-20, 60)


def path(drift, times=TIMES):
    return np.asarray(jax.jit(jax.vmap(drift))(jnp.asarray(times)))


def test_levels():
    np.testing.assert_allclose(path(Sinusoidal(1.5, 0.2)), 1.5 * np.sin(0.2 * TIMES), rtol=1e-12)
    levels = path(Jumps(amplitude=2.0, interval=10)).reshape(8, 10)
    assert (levels == levels[:, :1]).all()
    assert len(np.unique(levels)) == 8
    assert np.abs(levels).max() <= 2.0


def test_levels_and_ways_of_named_drifts():
    """The regression's level is β sin 2πs_t, the cosine's centres go 2πs_t to and fro; smooth is as before."""
    key = jax.random.key(0)
    for kind in KINDS:
        place = path(as_drift(kind, 40.0, 3), np.arange(50))
        level = path(DriftingRegression(kind, period=40.0, amplitude=1.5, seed=3, lags=2, key=key).drift, np.arange(50))
        np.testing.assert_allclose(level, 1.5 * np.sin(2 * np.pi * place), rtol=1e-9, atol=1e-9)
        centres = path(DriftingCosine(2, drift=kind, period=40.0, seed=3).centre, np.arange(50))
        np.testing.assert_allclose(centres - np.arange(2), 2 * np.pi * np.outer(place, [1, -1]), rtol=1e-9, atol=1e-9)
    paper = DriftingRegression(lags=2, key=key).drift
    np.testing.assert_allclose(path(paper), path(Sinusoidal(2.0, 0.05)), rtol=1e-9, atol=1e-12)
    steady = DriftingCosine(2, drift="smooth", period=2 * np.pi / 0.02)
    np.testing.assert_allclose(*(path(each.centre, np.arange(50)) for each in (steady, DriftingCosine(2))), rtol=1e-9)


def test_positions():
    np.testing.assert_allclose(path(Steady(40)), TIMES / 40, rtol=1e-12)
    bursts = path(Bursts(period=40, calm=0.8), np.arange(40)).reshape(4, 10)
    np.testing.assert_allclose(bursts[:, :9], np.arange(4)[:, None] / 4 * np.ones(9), atol=1e-12)
    np.testing.assert_allclose(bursts[:, 9], np.arange(4) / 4 + 1 / 8, atol=1e-12)


def test_the_random_walk_is_one():
    """Increments of unit variance over `period` rounds, independent, the same whichever rounds are asked for."""
    walks = np.asarray(
        jax.jit(jax.vmap(lambda seed: jax.vmap(RandomWalk(25.0, seed))(jnp.arange(-50, 51))))(jnp.arange(400))
    )
    np.testing.assert_array_equal(walks[:, 50], 0)
    steps = np.diff(walks, axis=1) * 5
    assert abs(steps.mean()) < 4 / np.sqrt(steps.size)
    np.testing.assert_allclose(steps.var(), 1, atol=4 * np.sqrt(2 / steps.size))
    correlations = np.corrcoef(steps.T) - np.eye(100)
    assert np.abs(correlations).max() < 5 / np.sqrt(400)
    np.testing.assert_allclose((walks[:, 75] - walks[:, 50]).var(), 1, rtol=0.25)
    np.testing.assert_allclose(RandomWalk(25.0, 7)(jnp.asarray(13)), walks[7, 63], rtol=1e-12)
    last = jax.jit(jax.vmap(lambda seed: RandomWalk(2.0**20, seed)(jnp.asarray(2**20 - 1))))(jnp.arange(400))
    np.testing.assert_allclose(np.var(last), 1, rtol=0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_the_period_may_be_traced(kind):
    periods = jnp.asarray([20.0, 80.0])
    traced = jax.jit(jax.vmap(lambda period: jax.vmap(as_drift(kind, period, 3))(jnp.arange(50))))(periods)
    for period, row in zip((20, 80), traced, strict=True):
        np.testing.assert_allclose(row, path(as_drift(kind, period, 3), np.arange(50)), rtol=1e-12, atol=1e-12)


def test_a_function_is_a_drift_and_names_are_checked():
    drift = Steady(5.0)
    assert as_drift(drift, 7.0) is drift
    with pytest.raises(ValueError, match=r"one of smooth, jumps, bursts, walk .*'smoth' .did you mean 'smooth'"):
        as_drift("smoth")
    with pytest.raises(ValueError, match=r"period must be a number in \(0, inf\], got period=0"):
        as_drift("smooth", 0)


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments():
    with pytest.raises(ValueError, match="interval must be an integer >= 1"):
        Jumps(interval=0)
    with pytest.raises(TypeError, match="drift must be one of"):
        as_drift(3)  # pyright: ignore
    with pytest.raises(ValueError, match=r"calm must be a number in \[0, 0.999\]"):
        Bursts(calm=1.0)
