"""Oscillation: what diverges is flagged within a few periods, what is stable is not."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import smoothfbo as sf
from smoothfbo.monitor import first_monitor, observe

SEEDS = 24
FLAG = lambda state, info: (info.oscillating, info.outer, info.finite)  # noqa: E731


def run(optimiser, *, start, rounds, noise=0.0, centre=lambda t: 0.0, curvature=1.0, project=None):
    """λ on F_t = ½ Σ c_j (λ_j − centre(t))² with c = curvature · (1, …, 1/d), from a noisy gradient; seeds as lanes."""
    curvatures = curvature / jnp.arange(1.0, len(start) + 1)

    def gradient(outer, t, key):
        exact = curvatures * (outer - centre(t.astype(outer.dtype)))
        return exact + noise * jax.random.normal(key, outer.shape)

    algorithm = sf.Online(estimator=sf.Oracle(gradient), optimiser=optimiser, project=project)

    def lane(key):
        return sf.run(algorithm, lambda t, k: t, jnp.asarray(start), rounds=rounds, key=key, record=FLAG)[1]

    return jax.jit(jax.vmap(lane))(jax.random.split(jax.random.key(3), SEEDS))


def smoothed(window, rate):
    return optax.chain(sf.window_average(window), optax.sgd(rate))


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_a_window_too_long_for_its_rate_is_flagged_within_a_few_periods(noise):
    """α·L·w = 20 against a limit of 4.9, a period of two windows; with w = 1 the same rate is as good as can be."""
    flags, outer, finite = run(smoothed(20, 1.0), start=[1.0], rounds=160, noise=noise)
    first = np.argmax(flags, axis=1)
    assert flags.any(axis=1).all()
    assert np.median(first) <= 80
    assert bool(finite.all())
    assert np.abs(outer[:, -40:]).max(axis=1).min() > 100
    flags, outer, _ = run(smoothed(1, 1.0), start=[1.0], rounds=160, noise=noise)
    assert not flags.any()


def test_the_limit_itself():
    """Deterministic, α·L·w = 4.4 and 5.6 around π²/2: the same window, flagged on one side only."""
    below, outer, _ = run(smoothed(20, 0.22), start=[1.0], rounds=400)
    assert not below.any()
    assert np.abs(outer[:, -1]).max() < 1
    above, outer, _ = run(smoothed(20, 0.28), start=[1.0], rounds=400)
    assert above.any(axis=1).all()
    assert np.abs(outer[:, -40:]).max(axis=1).min() > 3


def test_a_step_beyond_two_over_the_curvature_is_flagged():
    flags, _, _ = run(optax.sgd(2.5), start=[0.1, 0.1], rounds=30)
    assert flags[:, 20:].all()
    assert not flags[:, :20].any()


STABLE = {
    "sgd": (optax.sgd(0.1), {}),
    "sgd at its best point": (optax.sgd(0.5), {"start": [0.0, 0.0, 0.0]}),
    "window": (smoothed(20, 0.1), {}),
    "window at its best point": (smoothed(20, 0.1), {"start": [0.0, 0.0]}),
    "adam": (optax.adam(0.05), {}),
    "momentum": (optax.sgd(0.1, momentum=0.9), {}),
    "drift": (smoothed(10, 0.2), {"centre": lambda t: 0.05 * t}),
    "season": (smoothed(10, 0.2), {"centre": lambda t: 3 * jnp.sin(t / 20)}),
    "jumps": (smoothed(10, 0.2), {"centre": lambda t: 50 * ((t // 100) % 2)}),
    "box": (smoothed(10, 0.2), {"project": lambda outer: jnp.clip(outer, -1.0, 1.0)}),
}


@pytest.mark.parametrize("name", STABLE)
def test_noisy_but_stable_runs_are_not_flagged(name):
    optimiser, options = STABLE[name]
    flags, outer, _ = run(optimiser, **{"start": [2.0, 2.0, 2.0], "rounds": 600, "noise": 1.0, **options})
    assert not flags.any()
    assert np.abs(outer).max() < 100


def test_rounds_that_are_not_finite_and_numbers_that_overflow(key):
    """A skipped round loses half of the work of one move; numbers near the largest float do not become NaN."""
    batches = jnp.ones(40).at[jnp.array([3, 9, 25])].set(jnp.nan)
    oracle = sf.Oracle(lambda outer, data, key: outer * data)
    algorithm = sf.Online(estimator=oracle, optimiser=optax.sgd(0.5))
    final, trace = sf.run(algorithm, batches, jnp.ones(2), rounds=40, key=key)
    assert int(trace.skipped[-1]) == 3
    assert not trace.oscillating.any()
    # F = λ² falls from 1 to 0 by factors of 4; of the moves to 2^-3, 2^-8 and 2^-23 the part ½⟨ĝ, move⟩ is not seen
    unseen = np.sum(0.5 ** (2.0 * np.array([3, 8, 23])))
    np.testing.assert_allclose(final.learner.monitor.lowered, 1.0 - unseen, rtol=1e-6)
    algorithm = sf.Online(estimator=sf.Oracle(lambda outer, data, key: 40 * outer), optimiser=optax.sgd(1.0))
    with pytest.warns(UserWarning, match="rounds were skipped|had raised the outer loss"):
        _, trace = sf.run(algorithm, lambda t, k: t, jnp.ones(2, jnp.float32), rounds=30, key=key, record=FLAG)
    assert not trace[2].all()  # it has run into infinity
    assert trace[0][20 : int(trace[2].sum())].all()


def test_without_the_monitor_nothing_is_carried_and_nothing_flagged(key):
    algorithm = sf.Online(estimator=sf.Oracle(lambda outer, data, key: outer), optimiser=optax.sgd(2.5), monitor=False)
    final, trace = sf.run(algorithm, lambda t, k: t, jnp.ones(2), rounds=30, key=key)
    assert final.learner.monitor is None
    assert not trace.oscillating.any()
    assert trace.oscillating.shape == (30,)


def test_work_that_is_no_number_counts_as_none():
    """∞ · 0: a move that overflowed, and a gradient of zero after it."""
    monitor = first_monitor(jnp.zeros(2))._replace(move=jnp.array([jnp.inf, 0.0]))
    following, flag = observe(monitor, jnp.zeros(2), jnp.ones(2))
    assert (float(following.raised), float(following.lowered), bool(flag)) == (0.0, 0.0, False)
