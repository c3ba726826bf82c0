"""Soft Q-learning as a functional bilevel problem: networks, losses, hypergradients."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cartpole_reference import (
    DISCOUNT,
    INNER,
    MODEL,
    OUTER,
    RATE,
    REFERENCE,
    SIZES,
    TEMPERATURE,
    Q,
    differences,
    estimate,
    inner_gradient,
    inner_jacobian,
    one_hot,
)

import smoothfbo as sf
from smoothfbo.studies.cartpole import algorithm as cartpole_loop
from smoothfbo.studies.cartpole import networks, soft_q
from smoothfbo.studies.cartpole.methods import find


def test_networks_and_targets_equal_the_reference():
    x, y, _ = REFERENCE.data.inner
    v = np.asarray(jax.jit(jax.vmap(Q, in_axes=(None, 0)))(jnp.asarray(INNER), x))
    np.testing.assert_allclose(v, REFERENCE.values(INNER), rtol=1e-12)
    target = REFERENCE.problem().inner_loss.model_target
    computed = jax.jit(jax.vmap(target, in_axes=(None, 0, 0)))(jnp.asarray(OUTER), x, y)
    np.testing.assert_allclose(computed, REFERENCE.model_target(OUTER), rtol=1e-10)
    mean = eqx.filter_jit(REFERENCE.problem().inner_mean)
    loss = mean(jnp.asarray(OUTER), jnp.asarray(v), REFERENCE.data.inner)
    expected = 0.5 * np.mean(np.sum((v - REFERENCE.model_target(OUTER)[:, None]) ** 2, axis=1))
    assert loss == pytest.approx(expected, rel=1e-10)
    mean = eqx.filter_jit(REFERENCE.problem().outer_mean)
    loss = mean(jnp.asarray(OUTER), jnp.asarray(v), REFERENCE.data.outer)
    assert loss == pytest.approx(0.5 * np.mean(np.sum((v - REFERENCE.true_target[:, None]) ** 2, axis=1)), rel=1e-10)


@pytest.mark.parametrize(("sizes", "leak"), [((4, 17, 5, 2), 0.0), ((6, 3, 4), 0.1)])
def test_fused_passes_and_gradients_are_the_plain_ones(sizes, leak):
    """In two blocks of samples, the second of them not full; for lanes of two networks each that share their inputs."""
    plain, fused = (networks.Perceptron(sizes, leak, fused=fused) for fused in (False, True))
    generator = np.random.default_rng(3)
    shapes = (2, 2, plain.parameters), (2, sizes[0], 70), (2, 2, sizes[-1], 70)
    parameters, x, cotangent = (jnp.asarray(generator.normal(size=shape)) for shape in shapes)

    def passes():
        for perceptron in (plain, fused):
            of_all = jax.vmap(jax.vmap(perceptron, in_axes=(0, None)))
            values, gradients = jax.vjp(of_all, parameters, x)
            of_parameters = jax.vjp(lambda p, of_all=of_all: of_all(p, x), parameters)[1](cotangent)
            of_inputs = jax.vjp(lambda x, of_all=of_all: of_all(parameters, x), x)[1](cotangent)
            yield values, gradients(cotangent), of_parameters, of_inputs

    for known, found in zip(*map(jax.tree.leaves, jax.jit(lambda: tuple(passes()))()), strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-10, atol=1e-12)


def test_networks_that_are_differentiated_twice_are_not_fused():
    for name, is_fused in (("fbo", True), ("vep", True), ("omd", False), ("omd-cg", False), ("itd", False)):
        q = networks.QNetworks(*SIZES, (3,), critics=1, fused=True)
        estimator = cartpole_loop.estimator_of(find(name), q, 0.1)
        assert estimator.inner.make.apply.network == networks.Perceptron((SIZES[0], 3, SIZES[1]), fused=is_fused)


@pytest.mark.parametrize("method", ["fbo", "mle", "vep"])
@pytest.mark.parametrize("limits", [None, (0.5, 1.0, 2.0)])
def test_losses_of_all_samples_are_those_of_each(method, limits):
    model = networks.WorldModel(*SIZES, hidden=(3, 3), limits=limits, leak=0.1)
    target = soft_q.ModelTarget(model, Q, jnp.asarray(REFERENCE.target_parameters), DISCOUNT, TEMPERATURE, 0.3)
    problem = soft_q.soft_q_problem(target, method)
    v, outer = jnp.asarray(REFERENCE.values(INNER)), jnp.asarray(OUTER)
    for loss in (problem.inner_loss, problem.outer_loss):
        if hasattr(loss, "batch"):
            each = jax.jit(jax.vmap(loss, in_axes=(None, 0, 0, 0)))(outer, v, *REFERENCE.data.inner[:2])
            of_all = eqx.filter_jit(loss.batch)(outer, v, *REFERENCE.data.inner[:2])
            np.testing.assert_allclose(of_all, each, rtol=1e-12)
    assert hasattr(problem.inner_loss, "batch")
    assert hasattr(problem.outer_loss, "batch") == (method != "fbo")


def test_bounded_models_predict_what_can_happen():
    """s/(1 + |s|/b) and ½ + ½r/(1 + |r|) of the unbounded predictions; the slope never vanishes."""
    bounded = networks.WorldModel(*SIZES, hidden=(3, 3), limits=(0.5, 1.0, 2.0))
    following, reward = jax.jit(jax.vmap(bounded, in_axes=(None, 0)))(jnp.asarray(OUTER), REFERENCE.data.inner.x)
    free, free_reward = REFERENCE.prediction(OUTER)
    limits = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(following, free / (1 + np.abs(free) / limits), rtol=1e-10)
    np.testing.assert_allclose(reward, 0.5 + 0.5 * free_reward / (1 + np.abs(free_reward)), rtol=1e-10)
    far = jax.grad(lambda outer: jnp.sum(bounded(1e3 * outer, networks.StateAction(jnp.ones(3), jnp.ones(2)))[0]))
    assert np.abs(jax.jit(far)(jnp.asarray(OUTER))).max() > 1e-12
    with pytest.raises(ValueError, match="3 observations"):
        networks.WorldModel(*SIZES, limits=(1.0,))


def test_every_method_takes_the_same_inner_step():
    """The Q networks are trained on the model's targets whatever trains the model."""
    gradient = inner_gradient(INNER)
    _, after, _ = estimate("itd")
    np.testing.assert_allclose(after.ravel(), INNER.ravel() - RATE * gradient, rtol=1e-7, atol=1e-9)
    for method in ("mle", "vep", "omd", "fbo"):
        _, after, _ = estimate(method)
        clear = np.abs(gradient) > 1e-6
        moves = (after - INNER).ravel()  # the first step of Adam is the rate times the sign
        np.testing.assert_allclose(moves[clear], -RATE * np.sign(gradient[clear]), rtol=1e-2)


def test_functional_hypergradient_is_the_residual_times_the_slope_of_the_model_target():
    gradient, after, result = estimate("fbo")
    residual = np.sum(REFERENCE.values(after) - REFERENCE.true_target[:, None], axis=1)
    expected = differences(lambda outer: np.mean(residual * REFERENCE.model_target(outer)), OUTER)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)
    for part in gradient:
        assert np.linalg.norm(part) > 0.1  # it reaches the transition and the reward network
    assert result.adjoint_residual < 1e-12
    assert not np.any(result.explicit)


def test_closed_form_equals_the_general_estimator_with_a_converged_adjoint():
    """A tabular adjoint, solved exactly, on samples that are all different."""
    _, first = np.unique(np.concatenate([REFERENCE.observation, REFERENCE.action], 1), axis=0, return_index=True)
    rows = jax.tree.map(lambda leaf: leaf[np.sort(first)], REFERENCE.data)
    table = sf.Linear(one_hot(np.concatenate(rows.inner.x, axis=1)))
    inner = sf.Network.from_pair(Q.init, Q, optax.sgd(0.0), steps=0)
    gradients = []
    for adjoint in (sf.PointwiseAdjoint(), table):
        estimator = sf.Functional(inner, adjoint)
        warm = estimator.init(REFERENCE.problem(), jnp.asarray(OUTER), rows, jax.random.key(0))
        result, _ = eqx.filter_jit(estimator)(REFERENCE.problem(), jnp.asarray(OUTER), warm, rows, jax.random.key(1))
        gradients.append(result.gradient)
        assert result.adjoint_residual < 1e-9
    np.testing.assert_allclose(*gradients, rtol=1e-9, atol=1e-12)
    assert np.linalg.norm(gradients[0]) > 0.1


def test_hypergradient_equals_differences_through_an_exactly_solved_tabular_inner_problem():
    """F(λ) = mean ℓ_out at the table h*_λ that minimises mean ℓ_in, with random outcomes for each pair."""
    pairs = np.concatenate([REFERENCE.observation, REFERENCE.action], axis=1)
    _, cell = np.unique(pairs, axis=0, return_inverse=True)
    membership = np.eye(cell.max() + 1)[cell]  # samples × cells

    def objective(outer):
        table = membership.T @ REFERENCE.model_target(outer) / membership.sum(0)
        return np.mean((membership @ table - REFERENCE.true_target) ** 2)  # two networks, a half each

    features = one_hot(np.unique(pairs, axis=0))
    tabular = sf.Functional(sf.Linear(features, prediction=jnp.zeros(2)), sf.PointwiseAdjoint())
    problem = REFERENCE.problem()
    warm = tabular.init(problem, jnp.asarray(OUTER), REFERENCE.data, jax.random.key(0))
    result, _ = eqx.filter_jit(tabular)(problem, jnp.asarray(OUTER), warm, REFERENCE.data, jax.random.key(1))
    np.testing.assert_allclose(result.gradient, differences(objective, OUTER), rtol=1e-6, atol=1e-8)
    assert result.outer_loss == pytest.approx(objective(OUTER), rel=1e-10)
    for part in result.gradient:
        assert np.linalg.norm(part) > 0.05


def test_likelihood_and_value_equivalence():
    def error(outer):
        following, reward = REFERENCE.prediction(outer)
        squares = np.sum((following - REFERENCE.following) ** 2, axis=1) + (reward - REFERENCE.reward) ** 2
        return np.mean(0.5 * squares)

    np.testing.assert_allclose(estimate("mle")[0], differences(error, OUTER), rtol=1e-6, atol=1e-8)

    def mismatch(outer):
        return np.mean(0.5 * (REFERENCE.model_target(outer) - REFERENCE.true_target) ** 2)

    np.testing.assert_allclose(estimate("vep")[0], differences(mismatch, OUTER), rtol=1e-6, atol=1e-8)


def implicit_reference(parameters, direction):
    """−∂_λ⟨∇_θ L_in, v⟩ = mean Σ_k (∂v_k/∂θ · v) ∂_λ model target."""
    along = np.einsum("pik,p->i", inner_jacobian(parameters), direction)
    return differences(lambda outer: np.mean(along * REFERENCE.model_target(outer)), OUTER)


def test_the_corrected_hypergradient_is_that_of_value_equivalence():
    """v⁺ is the model's target for both Q networks, so that g = 2 mean (T_λ − y) ∂T_λ: by differences, not by VEP."""

    def mismatch(outer):
        return np.mean((REFERENCE.model_target(outer) - REFERENCE.true_target) ** 2)

    np.testing.assert_allclose(estimate("corrected-fbo")[0], differences(mismatch, OUTER), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(estimate("corrected-fbo")[1], estimate("fbo")[1])  # the networks are not corrected


def test_optimal_model_design_with_the_identity():
    gradient, after, _ = estimate("omd")
    residual = REFERENCE.values(after) - REFERENCE.true_target[:, None]
    outer_gradient = np.einsum("pik,ik->p", inner_jacobian(after), residual) / len(residual)
    np.testing.assert_allclose(gradient, implicit_reference(after, outer_gradient), rtol=1e-5, atol=1e-7)
    assert np.linalg.norm(gradient) > 0.1


def test_unrolling_differentiates_through_the_inner_step():
    gradient, _, _ = estimate("itd")
    jacobian, values = inner_jacobian(INNER), REFERENCE.values(INNER)

    def objective(outer):
        residual = values - REFERENCE.model_target(outer)[:, None]
        after = INNER.ravel() - RATE * np.einsum("pik,ik->p", jacobian, residual) / len(residual)
        return 0.5 * np.mean(np.sum((REFERENCE.values(after) - REFERENCE.true_target[:, None]) ** 2, axis=1))

    np.testing.assert_allclose(gradient, differences(objective, OUTER), rtol=1e-5, atol=1e-8)


def test_values_stay_in_the_range_that_rewards_allow():
    largest = cartpole_loop.largest_value(0.99, 0.1, 2)
    # A reward of 1 for ever, and the entropy of two equal actions: the soft value solves v = 1 + γv + α log 2.
    np.testing.assert_allclose(largest, 1 + 0.99 * largest + 0.1 * np.log(2), rtol=1e-12)
    values = jnp.asarray([-3.0, 0.5, 1e6])
    expected = [-0.3, 0.5, largest + 0.1 * (1e6 - largest)]
    bounded = eqx.filter_jit(soft_q.softly_bounded)
    np.testing.assert_allclose(bounded(values, largest), expected, rtol=1e-6)
    # Beyond the bounds there is a slope that leads back.
    slopes = jax.jit(jax.vmap(jax.grad(soft_q.softly_bounded), in_axes=(0, None)))(values, largest)
    np.testing.assert_allclose(slopes, [0.1, 1.0, 0.1], rtol=1e-6)
    np.testing.assert_array_equal(bounded(values, None), values)
    shape = Q.init(jax.random.key(5)).shape
    parameters = 10 * jax.random.normal(jax.random.key(5), shape)  # networks that have run away
    size = Q.network.sizes[0]
    x = networks.StateAction(jnp.asarray(np.ones(size)), jnp.asarray(np.eye(Q.network.sizes[-1])[0]))
    y = soft_q.Experience(*map(jnp.asarray, (0.0, np.ones(size), 0.0, 0.0)))
    outer = jax.random.normal(jax.random.key(6), MODEL.init(jax.random.key(6)).shape)
    target = soft_q.ModelTarget(MODEL, Q, parameters, DISCOUNT, TEMPERATURE, 2.0)
    following, reward = eqx.filter_jit(MODEL)(outer, x)
    value = float(eqx.filter_jit(Q.soft_value)(parameters, following, TEMPERATURE))
    possible = np.clip(value, 0, 2.0)
    assert value != possible
    expected = float(reward) + DISCOUNT * (possible + 0.1 * (value - possible))
    np.testing.assert_allclose(eqx.filter_jit(target)(outer, x, y), expected, rtol=1e-6)


def test_values_of_all_samples_are_those_of_each():
    parameters = jax.random.normal(jax.random.key(8), Q.init(jax.random.key(8)).shape)
    x = REFERENCE.data.inner.x
    each = jax.jit(jax.vmap(Q, in_axes=(None, 0)))(parameters, x)
    np.testing.assert_allclose(eqx.filter_jit(Q.batch)(parameters, x), each, rtol=1e-12)


def test_units_of_a_leaky_model_can_come_back():
    leaky = networks.WorldModel(*SIZES, hidden=(3,), leak=0.1)
    (inputs, hidden, outputs) = leaky.network.sizes
    random = np.random.default_rng(3)
    weights = random.normal(size=(inputs, hidden)), random.normal(size=(hidden, outputs))
    biases = -100 * np.ones(hidden), random.normal(size=outputs)  # all units are off
    row = np.concatenate([weights[0].ravel(), biases[0], weights[1].ravel(), biases[1]])
    outer = jnp.asarray(np.stack([row, row]))
    x = networks.StateAction(jnp.asarray(random.normal(size=SIZES[0])), jnp.asarray(np.eye(SIZES[1])[1]))
    before = np.concatenate(x) @ weights[0] + biases[0]
    expected = np.where(before > 0, before, 0.1 * before) @ weights[1] + biases[1]
    np.testing.assert_allclose(eqx.filter_jit(leaky)(outer, x)[0], expected, rtol=1e-5)

    def largest_slope(model):
        """Of the predictions in the weights of the first layer."""
        slopes = jax.jit(jax.grad(lambda outer: jnp.sum(model(outer, x)[0])))(outer)
        return np.abs(np.asarray(slopes)[0, : inputs * hidden]).max()

    assert largest_slope(leaky) > 1e-3
    assert largest_slope(networks.WorldModel(*SIZES, hidden=(3,))) == 0
