"""Bregman steps of λ: against the minimiser that defines them, and inside chains."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import windowed_means

import smoothfbo as sf

GRADIENTS = np.random.default_rng(0).normal(size=(8, 4))
START = np.array([0.1, 0.4, 0.2, 0.3])
KEY = jax.random.key(0)


def steps_of(optimiser, start=START, gradients=GRADIENTS):
    """All λ of a run whose gradients are given."""
    algorithm = sf.Online(estimator=sf.Oracle(lambda outer, data, key: data), optimiser=optimiser)
    final, trace = sf.run(algorithm, jnp.asarray(gradients), jnp.asarray(start), rounds=len(gradients), key=KEY)
    return np.concatenate([trace.outer, final.learner.outer[None]]), trace


def chain(potential, rate=0.3, window=3):
    return optax.chain(sf.window_average(window), sf.bregman_descent(rate, potential))


def test_squares_are_gradient_descent():
    with_potential, _ = steps_of(chain("squares"))
    plain, _ = steps_of(optax.chain(sf.window_average(3), optax.sgd(0.3)))
    np.testing.assert_allclose(with_potential, plain, rtol=1e-14)


def test_entropy_multiplies_and_the_simplex_keeps_its_sum():
    smoothed = windowed_means(GRADIENTS, 3)
    free, shares = [START], [2.5 * START]
    for gradient in smoothed:
        free.append(free[-1] * np.exp(-0.3 * gradient))
        moved = shares[-1] * np.exp(-0.3 * gradient)
        shares.append(2.5 * moved / moved.sum())
    outers, trace = steps_of(chain("entropy"))
    np.testing.assert_allclose(outers, free, rtol=1e-12)
    assert np.ptp(trace.smoothed_norm) > 0
    np.testing.assert_allclose(trace.smoothed_norm, np.linalg.norm(smoothed, axis=1), rtol=1e-12)
    outers, _ = steps_of(chain("simplex"), 2.5 * START)
    np.testing.assert_allclose(outers, shares, rtol=1e-12)
    np.testing.assert_allclose(outers.sum(axis=1), 2.5, rtol=1e-12)


@pytest.mark.parametrize("potential", ["squares", "entropy", "simplex"])
def test_a_step_minimises_what_defines_it(potential):
    """⟨g, u⟩ + D_φ(u, λ)/α is larger at every u nearby (on the simplex: nearby with the same sum)."""
    gradient, rate, rng = GRADIENTS[0], 0.7, np.random.default_rng(1)
    change, _ = sf.bregman_descent(rate, potential).update(
        jnp.asarray(gradient), optax.EmptyState(), jnp.asarray(START)
    )
    new = START + np.asarray(change)

    def objective(u):
        if potential == "squares":
            divergence = 0.5 * np.sum((u - START) ** 2)
        else:
            divergence = np.sum(u * np.log(u / START) - u + START)
        return gradient @ u + divergence / rate

    for direction in rng.normal(size=(20, 4)):
        shift = direction - (direction.mean() if potential == "simplex" else 0)
        around = [objective(new + 1e-4 * sign * shift) - objective(new) for sign in (1, -1)]
        assert min(around) > 0
        np.testing.assert_allclose(*around, rtol=1e-2)  # no slope is left


def test_pytrees_are_one_simplex_and_rates_are_lanes():
    outer = {"a": jnp.asarray(START[:1]), "b": [jnp.asarray(START[1:])]}
    gradient = {"a": jnp.asarray(GRADIENTS[0, :1]), "b": [jnp.asarray(GRADIENTS[0, 1:])]}

    def lane(rate):
        return sf.bregman_descent(rate, "simplex").update(gradient, optax.EmptyState(), outer)[0]

    lanes = jax.jit(jax.vmap(lane))(jnp.asarray([0.0, 1.0]))
    moved = START * np.exp(-GRADIENTS[0])
    np.testing.assert_allclose(np.append(lanes["a"][1], lanes["b"][0][1]), moved / moved.sum() - START, rtol=1e-12)
    np.testing.assert_allclose(np.append(lanes["a"][0], lanes["b"][0][0]), 0, atol=1e-15)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("potential", ["entropy", "simplex"])
def test_no_entry_is_lost_by_rounding_and_none_overflows(potential, dtype):
    """A weight that falls by many orders of magnitude in one round comes back; one that is zero stays zero."""
    start = jnp.asarray([0.5, 0.5, 0.0], dtype)
    gradients = jnp.asarray([[500.0, 0.0, 1.0]] + [[-20.0, 0.0, 1.0]] * 3, dtype)
    outers, trace = steps_of(sf.bregman_descent(1.0, potential), start, gradients)
    assert bool(trace.finite.all())
    assert 0 < outers[1, 0] < 1e-5
    assert outers[4, 0] > 0.4
    np.testing.assert_array_equal(outers[:, 2], 0)
    outers, trace = steps_of(sf.bregman_descent(1.0, "simplex"), start, -4 * gradients)
    assert bool(trace.finite.all())  # exp(2000) is not formed


def test_a_potential_of_the_user():
    """φ = ¼ Σ λ⁴ on the positive numbers."""
    quartic = sf.Potential(lambda outer: outer**3, lambda mirrored, outer: jnp.cbrt(mirrored))
    outers, _ = steps_of(sf.bregman_descent(1e-3, quartic))
    expected = [START]
    for gradient in GRADIENTS:
        expected.append(np.cbrt(expected[-1] ** 3 - 1e-3 * gradient))
    np.testing.assert_allclose(outers, expected, rtol=1e-10)


def test_negative_weights_are_skipped_and_normalised_steps_are_optax():
    with pytest.warns(UserWarning, match="8 of 8 rounds were skipped"):
        _, trace = steps_of(sf.bregman_descent(0.1, "entropy"), -START)
    assert not trace.finite.any()
    np.testing.assert_allclose(trace.outer, np.tile(-START, (8, 1)))
    outers, trace = steps_of(optax.chain(sf.window_average(3), optax.normalize_by_update_norm(), optax.sgd(0.1)))
    np.testing.assert_allclose(np.linalg.norm(np.diff(outers, axis=0), axis=1), 0.1, rtol=1e-5)


@pytest.mark.usefixtures("as_users_call")
def test_what_it_refuses():
    with pytest.raises(ValueError, match="potential must be a Potential or one of 'squares', 'entropy', 'simplex'"):
        sf.bregman_descent(0.1, "entropic")
    with pytest.raises(ValueError, match="rate must be a number in"):
        sf.bregman_descent(-0.1, "entropy")
    with pytest.raises(ValueError, match="bregman_descent needs params"):
        sf.bregman_descent(0.1, "entropy").update(jnp.ones(2), optax.EmptyState())
