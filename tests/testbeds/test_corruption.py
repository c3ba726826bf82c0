"""Rotating corruption: the digits' inner problem against SciPy, its gradient, and the corner that is called best."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import central_differences
from scipy import optimize

import smoothfbo as sf
from smoothfbo.testbeds import RotatingCorruption
from smoothfbo.testbeds.digits import digits

ROUND, OUTER = jnp.asarray(3), np.array([1.0, -0.5, 0.3])


@pytest.fixture(scope="module")
def bed():
    return RotatingCorruption(groups=3, components=4, training=150, clean=100, batch=4000, period=20.0, seed=1)


@pytest.fixture(scope="module")
def exact(bed):
    return jax.jit(lambda round, outer: (bed.objective(round, outer), bed.gradient(round, outer)))


def numpy_solution(bed, outer, corrupted):
    """The expected inner loss, minimised by SciPy; labels as probabilities."""
    x = np.hstack([np.asarray(bed.images)[:150], np.ones((150, 1))])
    label, group = np.asarray(bed.labels)[:150], np.arange(150) % len(outer)
    features = x.shape[1]
    rate = 0.8 * corrupted[group]
    q = np.zeros((150, 10))
    q[np.arange(150), label] = 1 - rate
    q[np.arange(150), (label + 1) % 10] += rate
    weight = 1 / (1 + np.exp(-outer[group]))

    def loss(flat):
        logits = x @ flat.reshape(10, features).T
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = exponentials / exponentials.sum(axis=1, keepdims=True)
        value = -np.mean(weight * np.sum(q * np.log(p), axis=1)) + 0.005 * flat @ flat
        return value, ((weight[:, None] * (p - q)).T @ x / 150).ravel() + 0.01 * flat

    options = {"gtol": 1e-10, "ftol": 1e-16, "maxiter": 5000}
    found = optimize.minimize(loss, np.zeros(10 * features), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(10, features)


def numpy_loss(bed, solution, rows):
    logits = np.hstack([np.asarray(bed.images)[rows], np.ones((len(rows), 1))]) @ solution.T
    label = np.asarray(bed.labels)[rows]
    return np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(rows)), label]), logits.argmax(1) == label


def test_objective_and_gradient(bed, exact):
    corrupted = np.asarray(bed.is_corrupted(ROUND)).astype(float)
    assert corrupted.sum() == 1
    value, gradient = exact(ROUND, OUTER)
    clean = np.arange(150, 250)
    expected = numpy_solution(bed, OUTER, corrupted)
    np.testing.assert_allclose(jax.jit(lambda outer: bed.solution(ROUND, outer))(OUTER), expected, atol=1e-5)
    np.testing.assert_allclose(value, numpy_loss(bed, expected, clean)[0], rtol=1e-6)
    differences = central_differences(
        lambda outer: numpy_loss(bed, numpy_solution(bed, outer, corrupted), clean)[0], OUTER, step=1e-2
    )
    np.testing.assert_allclose(gradient, differences, rtol=1e-3)

    @jax.jit
    def on_test_data(params):
        predictor = bed.linear().bind(params)
        return bed.test_loss(predictor), bed.accuracy(predictor)

    loss, right = numpy_loss(bed, expected, np.arange(250, 1797))
    np.testing.assert_allclose(on_test_data(expected), (loss, right.mean()), rtol=1e-12)


def test_the_objective_where_whole_newton_steps_diverge():
    """A group that was trusted is corrupted: Newton's method without a safeguard ends at 15 in place of 1.2."""
    bed = RotatingCorruption(components=6, training=150, clean=150, batch=32, seed=500)
    outer, round = np.array([3.0, 3.0, -3.0, -3.0, 3.0]), jnp.asarray(420)
    solution = numpy_solution(bed, outer, np.asarray(bed.is_corrupted(round)).astype(float))
    value = jax.jit(lambda: bed.objective(round, jnp.asarray(outer)))()
    np.testing.assert_allclose(value, numpy_loss(bed, solution, np.arange(150, 300))[0], rtol=1e-6)


def test_the_library_finds_the_same_gradient(bed, exact, key):
    """On all training samples, each five times, four of them with a wrong label if its group is corrupted."""
    rows = np.repeat(np.arange(150), 5)
    corrupted = np.asarray(bed.is_corrupted(ROUND))[rows % 3]
    label = (np.asarray(bed.labels)[rows] + (corrupted & (np.arange(750) % 5 > 0))) % 10
    inner = sf.Samples(bed.images[rows], {"label": jnp.asarray(label, jnp.int32), "group": jnp.asarray(rows % 3)})
    outer_y = {"label": bed.labels[150:250], "group": jnp.zeros(100, inner.y["group"].dtype)}
    data = sf.Data(inner, sf.Samples(bed.images[150:250], outer_y))
    estimator, outer = sf.Functional(bed.linear(steps=8), bed.linear(steps=1)), jnp.asarray(OUTER)
    state = estimator.init(bed.problem(), outer, data, key)
    estimate, _ = jax.jit(lambda state: estimator(bed.problem(), outer, state, data, key))(state)
    value, gradient = exact(ROUND, OUTER)
    np.testing.assert_allclose(estimate.gradient, gradient, rtol=1e-3)
    np.testing.assert_allclose(estimate.outer_loss, value, rtol=1e-6)


def test_labels_are_wrong_in_corrupted_groups_alone(bed, key):
    data = bed.draw(ROUND, key)
    place = {tuple(image): row for row, image in enumerate(np.asarray(bed.images))}
    rows = np.array([place[tuple(image)] for image in np.asarray(data.inner.x)])
    assert rows.max() < 150
    group, label, truth = np.asarray(data.inner.y["group"]), np.asarray(data.inner.y["label"]), np.asarray(bed.labels)
    np.testing.assert_array_equal(group, rows % 3)
    for g, corrupted in enumerate(np.asarray(bed.is_corrupted(ROUND))):
        mine = group == g
        shift = (label[mine] - truth[rows[mine]]) % 10
        assert set(shift) <= {0, 1}
        np.testing.assert_allclose(shift.mean(), 0.8 * corrupted, atol=0.05)
    others = np.array([place[tuple(image)] for image in np.asarray(data.outer.x)])
    assert (others.min(), others.max()) == (150, 249)
    np.testing.assert_array_equal(data.outer.y["label"], truth[others])


def test_groups_are_corrupted_in_turn():
    bed = RotatingCorruption(period=50.0)
    states = np.asarray(jax.jit(jax.vmap(bed.is_corrupted))(jnp.arange(50)))
    np.testing.assert_array_equal(states.sum(axis=1), 2)  # 0.4 of 5
    np.testing.assert_array_equal(states.sum(axis=0), 20)
    assert len(np.unique(states, axis=0)) == 5


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_at_the_corner_that_is_called_best_all_derivatives_point_outwards(seed):
    """For the default numbers, and wherever the corruption is: so it is a local minimum."""
    bed = RotatingCorruption(period=50.0, seed=seed)
    values, gradients = [], []
    find = eqx.filter_jit(bed.best)
    exact = jax.jit(lambda round, outer: (bed.objective(round, outer), bed.gradient(round, outer)))
    for round in jnp.arange(0, 50, 10):
        best = find(round)
        value, gradient = exact(round, best)
        assert (np.asarray(gradient * jnp.sign(best)) < 0).all()
        values.append(float(value))
        gradients.append(np.abs(gradient).min())
    assert max(values) < 0.6 * float(exact(jnp.asarray(0), bed.initial())[0])
    assert min(gradients) > 1e-4


def test_where_the_corner_is_not_the_best_a_search_finds_what_scipy_finds():
    """Few training data: at the corner of the clean groups some derivatives point inwards."""
    bed = RotatingCorruption(components=6, training=150, clean=150, batch=32, seed=6003)
    round = jnp.asarray(80)
    best, both = (
        eqx.filter_jit(bed.best)(round),
        jax.jit(lambda outer: (bed.objective(round, outer), bed.gradient(round, outer))),
    )
    corner = np.where(bed.is_corrupted(round), -3.0, 3.0)
    found = optimize.minimize(
        lambda outer: tuple(map(np.asarray, both(jnp.asarray(outer)))), corner, jac=True, bounds=[(-3, 3)] * 5
    )
    assert found.fun < both(corner)[0] - 3e-3
    np.testing.assert_allclose(both(best)[0], found.fun, atol=1e-6)
    np.testing.assert_allclose(best, found.x, atol=0.05)


def test_the_digits_are_those_of_scikit_learn():
    images, labels = digits(16)
    assert images.shape == (1797, 16)
    np.testing.assert_allclose(np.mean(images**2), 1, rtol=1e-12)
    np.testing.assert_allclose(images.mean(axis=0), 0, atol=1e-12)
    covariance = images.T @ images
    np.testing.assert_allclose(covariance, np.diag(np.diag(covariance)), atol=1e-8 * covariance.max())
    np.testing.assert_array_equal(np.bincount(labels), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])


@pytest.mark.usefixtures("as_users_call")
def test_bad_arguments():
    for options, message in (
        ({"components": 65}, r"components must be a number in \[1, 64\]"),
        ({"training": 1500}, r"training \+ clean must be a number in \[2, 1796\], got training \+ clean=1900"),
        ({"rate": 1.5}, r"rate must be a number in \[0, 1\]"),
    ):
        with pytest.raises(ValueError, match=message):
            RotatingCorruption(**options)
