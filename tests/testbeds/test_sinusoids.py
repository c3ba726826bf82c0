"""Families of sinusoids: objective, gradient and best start against quadrature over tasks and places."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import Compiled
from reference import central_differences

from smoothfbo.testbeds import SinusoidFamilies

ROUND, OUTER = 7, np.array([0.3, -0.4, 0.5, 0.2, -0.1])


def make(**options):
    return Compiled(SinusoidFamilies(frequencies=2, period=30.0, pull=0.5, noise=0.2, seed=2, **options))


def numpy_objective(bed, outer, round=ROUND):
    """The risk of (f + κλᵀψ)/(1 + κ), by the midpoint rule over amplitude, phase and place, and a sum over k."""
    position = float(bed.start) + round / 30
    centre = 1 + np.sin(np.pi * position) ** 2
    middle = (np.arange(200) + 0.5) / 200
    phases = float(bed.first_phase) + 2 * np.pi * position + 0.5 * (2 * middle - 1)[:, None, None]
    amplitudes = 1 + 0.5 * np.cos(2 * np.pi * position) + 0.5 * (2 * middle - 1)[None, :, None]
    z = (np.arange(16) + 0.5) / 16
    waves = [np.sqrt(2) * wave(2 * np.pi * k * z) for k in (1, 2) for wave in (np.cos, np.sin)]
    shared = outer @ np.stack([np.ones_like(z), *waves])
    total = 0.0
    for k in (1, 2):
        task = amplitudes * np.sin(2 * np.pi * k * z + phases)
        solution = (task + 0.5 * shared) / 1.5
        total += max(1 - abs(k - centre), 0) * np.mean((task - solution) ** 2)
    return total + 0.2**2


def test_objective_gradient_and_best():
    bed = make()
    here = jnp.asarray(ROUND), jnp.asarray(OUTER)
    np.testing.assert_allclose(bed.objective(*here), numpy_objective(bed, OUTER), rtol=1e-5)
    expected = central_differences(lambda point: numpy_objective(bed, point), OUTER, step=1e-2)  # it is a quadratic
    np.testing.assert_allclose(bed.gradient(*here), expected, rtol=1e-4, atol=1e-6)
    best = np.asarray(bed.best(here[0]))
    at_best = central_differences(lambda point: numpy_objective(bed, point), best, step=1e-2)
    np.testing.assert_allclose(at_best, 0, atol=1e-5)
    difference = numpy_objective(bed, OUTER) - numpy_objective(bed, best)
    np.testing.assert_allclose(bed.gap(*here), difference, rtol=1e-4)
    np.testing.assert_allclose(bed.smoothness(3), 2 / 9, rtol=1e-12)


def test_tasks_are_new_and_both_kinds_of_samples_are_theirs(key):
    """Without noise, the inner samples of a task determine its sinusoid, and its outer samples lie on it."""
    bed = Compiled(SinusoidFamilies(tasks=3, samples=12, batch=5, frequencies=2, noise=0.0))
    features = jax.jit(jax.vmap(bed.phi))

    def fitted(round):
        data = bed.draw(jnp.asarray(round), jax.random.fold_in(key, round))
        found = []
        for task in range(3):
            inner, outer = (np.asarray(part.x.task) == task for part in (data.inner, data.outer))
            assert (inner.sum(), outer.sum()) == (12, 5)
            phi = [np.asarray(features(part.x.place)) for part in (data.inner, data.outer)]
            found.append(np.linalg.lstsq(phi[0][inner], np.asarray(data.inner.y)[inner], rcond=None)[0])
            np.testing.assert_allclose(phi[1][outer] @ found[-1], np.asarray(data.outer.y)[outer], atol=1e-9)
        return np.stack(found)

    one, other = fitted(0), fitted(1)
    assert min(np.abs(one - other).max(), np.ptp(one, axis=0).max()) > 0.01


def test_the_mean_of_many_tasks_is_the_best_start(key):
    """E[yψ(z)] = E c and E y² = E‖c‖² + σ² on the data that are drawn."""
    bed = make(tasks=4000, samples=1, batch=1)
    amplitude = float(bed.family(jnp.asarray(ROUND)).amplitude)
    data = bed.draw(jnp.asarray(ROUND), key)
    products = np.asarray(data.inner.y)[:, None] * np.asarray(jax.jit(jax.vmap(bed.phi))(data.inner.x.place))
    error = products.std(axis=0) / np.sqrt(4000)
    assert (np.abs(products.mean(axis=0) - np.asarray(bed.best(jnp.asarray(ROUND)))) < 5 * error).all()
    second = np.mean(np.asarray(data.inner.y) ** 2) - 0.2**2
    np.testing.assert_allclose(second, (amplitude**2 + 0.25 / 3) / 2, rtol=0.1)


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments():
    for options, message in (
        ({"pull": 0.0}, r"pull must be a number in \(0, inf\]"),
        ({"phase_spread": 4.0}, r"phase_spread must be a number in \[0, 3.14159\]"),
        ({"tasks": 0}, "tasks must be an integer >= 1"),
    ):
        with pytest.raises(ValueError, match=message):
            SinusoidFamilies(**options)
