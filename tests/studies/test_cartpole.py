"""The reinforcement-learning study: every method against its formula in NumPy, then the loop, then the programs."""

import functools
import itertools
from dataclasses import replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from probe import Probe

import smoothfbo as sf
from smoothfbo.environments.cartpole import CartPole
from smoothfbo.errors import UsageError
from smoothfbo.functions.base import FunctionState
from smoothfbo.hypergradients import InnerState
from smoothfbo.studies.cartpole import program as cartpole
from smoothfbo.studies.cartpole import soft_q
from smoothfbo.studies.cartpole.config import STUDIED, CartPoleConfig
from smoothfbo.studies.cartpole.replay import Replay, inner_parameters

DISCOUNT, TEMPERATURE = 0.9, 0.3
RATE = 0.05
SIZES = (3, 2)  # observation, actions
Q = soft_q.TwinQ(*SIZES, hidden=(5,))
MODEL = soft_q.WorldModel(*SIZES, hidden=(3, 3))


# --- an independent reference: NumPy, float64, and no derivative but central differences -----------------------------


def network(sizes, parameters, x):
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        weight, parameters = parameters[: inputs * outputs].reshape(inputs, outputs), parameters[inputs * outputs :]
        bias, parameters = parameters[:outputs], parameters[outputs:]
        x = (np.maximum(x, 0) if layer else x) @ weight + bias
    assert parameters.size == 0
    return x


def differences(function, point, step=1e-6):
    """The gradient of a function of a vector (or the Jacobian) by central differences."""
    moves = step * np.eye(point.size).reshape(point.size, *point.shape)
    slopes = np.stack([(function(point + move) - function(point - move)) / (2 * step) for move in moves])
    return slopes.reshape(*point.shape, *slopes.shape[1:])


class Reference(NamedTuple):
    """A batch from a small Markov decision process, and the quantities of the problem on it."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    following: np.ndarray
    terminated: np.ndarray
    target_parameters: np.ndarray

    @classmethod
    def draw(cls, seed=0, samples=24):
        """Five states, two actions, several random outcomes for each pair; whether it ends depends on the pair."""
        generator = np.random.default_rng(seed)
        states, ends = generator.normal(size=(5, 3)), generator.random((5, 2)) < 0.25
        state, action = generator.integers(5, size=samples), generator.integers(2, size=samples)
        return cls(
            states[state],
            np.eye(2)[action],
            generator.normal(size=samples),
            states[generator.integers(5, size=samples)],
            ends[state, action].astype(float),
            generator.normal(size=(2, Q.network.parameters)),
        )

    def soft_value(self, observation):
        values = [network((3, 5, 2), parameters, observation) for parameters in self.target_parameters]
        return TEMPERATURE * np.log(np.sum(np.exp(np.minimum(*values) / TEMPERATURE), axis=-1))

    def prediction(self, outer):
        inputs = np.concatenate([self.observation, self.action], axis=1)
        return network((5, 3, 3, 3), outer[0], inputs), network((5, 3, 3, 3), outer[1], inputs)[:, 0]

    def model_target(self, outer):
        following, reward = self.prediction(outer)
        return reward + DISCOUNT * (1 - self.terminated) * self.soft_value(following)

    @property
    def true_target(self):
        return self.reward + DISCOUNT * (1 - self.terminated) * self.soft_value(self.following)

    def values(self, parameters):
        both = [network((3, 5, 2), each, self.observation) for each in parameters.reshape(2, -1)]
        return np.stack([np.sum(each * self.action, axis=1) for each in both], axis=1)

    @property
    def data(self):
        x = soft_q.StateAction(jnp.asarray(self.observation), jnp.asarray(self.action))
        known = (self.reward, self.following, self.terminated, self.true_target)
        samples = sf.Samples(x, soft_q.Experience(*map(jnp.asarray, known)))
        return sf.Data(samples, samples)

    def problem(self, method="fbo"):
        target = soft_q.ModelTarget(MODEL, Q, jnp.asarray(self.target_parameters), DISCOUNT, TEMPERATURE)
        return soft_q.soft_q_problem(target, method)


REFERENCE = Reference.draw()
OUTER = np.random.default_rng(1).normal(size=(2, 42))
INNER = np.random.default_rng(2).normal(size=(2, Q.network.parameters))


@functools.cache
def estimate(method):
    """The hypergradient of a method at OUTER after one inner step from INNER, and the Q networks after it."""
    hypergradient = cartpole.hypergradient_of(method, Q, RATE)
    problem, data = REFERENCE.problem(method), REFERENCE.data
    warm = hypergradient.init(problem, jnp.asarray(OUTER), data, jax.random.key(0))
    warm = warm._replace(inner=warm.inner._replace(params=jnp.asarray(INNER)))
    result, warm = eqx.filter_jit(hypergradient)(problem, jnp.asarray(OUTER), warm, data, jax.random.key(1))
    return np.asarray(result.gradient), np.asarray(inner_parameters(warm)), result


def one_hot(pairs):
    """Features that make a linear function a table over pairs of state and action."""
    return lambda x: jnp.all(jnp.asarray(pairs) == jnp.concatenate(x), axis=1).astype(float)


def inner_jacobian(parameters):
    """∂v/∂θ at every sample: (parameters, samples, 2)."""
    return differences(REFERENCE.values, parameters.ravel())


def inner_gradient(parameters):
    """∇_θ of the inner loss: mean Σ_k (v_k − model target) ∂v_k/∂θ."""
    residual = REFERENCE.values(parameters) - REFERENCE.model_target(OUTER)[:, None]
    return np.einsum("pik,ik->p", inner_jacobian(parameters), residual) / len(residual)


def test_networks_and_targets_equal_the_reference():
    x, y = REFERENCE.data.inner
    v = np.asarray(jax.vmap(Q, in_axes=(None, 0))(jnp.asarray(INNER), x))
    np.testing.assert_allclose(v, REFERENCE.values(INNER), rtol=1e-12)
    target = REFERENCE.problem().inner_loss.model_target
    computed = jax.vmap(target, in_axes=(None, 0, 0))(jnp.asarray(OUTER), x, y)
    np.testing.assert_allclose(computed, REFERENCE.model_target(OUTER), rtol=1e-10)
    loss = REFERENCE.problem().inner_mean(jnp.asarray(OUTER), jnp.asarray(v), REFERENCE.data.inner)
    expected = 0.5 * np.mean(np.sum((v - REFERENCE.model_target(OUTER)[:, None]) ** 2, axis=1))
    assert loss == pytest.approx(expected, rel=1e-10)
    loss = REFERENCE.problem().outer_mean(jnp.asarray(OUTER), jnp.asarray(v), REFERENCE.data.outer)
    assert loss == pytest.approx(0.5 * np.mean(np.sum((v - REFERENCE.true_target[:, None]) ** 2, axis=1)), rel=1e-10)


@pytest.mark.parametrize("method", ["fbo", "mle", "vep"])
@pytest.mark.parametrize("limits", [None, (0.5, 1.0, 2.0)])
def test_losses_of_all_samples_are_those_of_each(method, limits):
    model = soft_q.WorldModel(*SIZES, hidden=(3, 3), limits=limits, leak=0.1)
    target = soft_q.ModelTarget(model, Q, jnp.asarray(REFERENCE.target_parameters), DISCOUNT, TEMPERATURE, 0.3)
    problem = soft_q.soft_q_problem(target, method)
    v, outer = jnp.asarray(REFERENCE.values(INNER)), jnp.asarray(OUTER)
    for loss in (problem.inner_loss, problem.outer_loss):
        if hasattr(loss, "batch"):
            each = jax.vmap(loss, in_axes=(None, 0, 0, 0))(outer, v, *REFERENCE.data.inner)
            np.testing.assert_allclose(loss.batch(outer, v, *REFERENCE.data.inner), each, rtol=1e-12)
    assert hasattr(problem.inner_loss, "batch")
    assert hasattr(problem.outer_loss, "batch") == (method != "fbo")


def test_bounded_models_predict_what_can_happen():
    """s/(1 + |s|/b) and ½ + ½r/(1 + |r|) of the unbounded predictions; the slope never vanishes."""
    bounded = soft_q.WorldModel(*SIZES, hidden=(3, 3), limits=(0.5, 1.0, 2.0))
    following, reward = jax.vmap(bounded, in_axes=(None, 0))(jnp.asarray(OUTER), REFERENCE.data.inner.x)
    free, free_reward = REFERENCE.prediction(OUTER)
    limits = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(following, free / (1 + np.abs(free) / limits), rtol=1e-10)
    np.testing.assert_allclose(reward, 0.5 + 0.5 * free_reward / (1 + np.abs(free_reward)), rtol=1e-10)
    far = jax.grad(lambda outer: jnp.sum(bounded(1e3 * outer, soft_q.StateAction(jnp.ones(3), jnp.ones(2)))[0]))
    assert np.abs(far(jnp.asarray(OUTER))).max() > 1e-12
    with pytest.raises(ValueError, match="3 observations"):
        soft_q.WorldModel(*SIZES, limits=(1.0,))


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


# --- acting and remembering ------------------------------------------------------------------------------------------


def replay(environment, **options):
    sizes = environment.observation_size, environment.actions
    defaults = {"method": "fbo", "random_steps": 50, "capacity": 200, "batch": 16}
    return Replay(environment, soft_q.TwinQ(*sizes, (4,)), soft_q.WorldModel(*sizes), **{**defaults, **options})


class Learner(NamedTuple):
    """As much of a learner's state as a stream looks at."""

    estimator: InnerState


def learner_with(parameters):
    return Learner(InnerState(FunctionState(parameters, ())))


@functools.cache
def short_memory():
    stream = replay(CartPole(), random_steps=1, batch=4, capacity=4)
    state, _ = jax.jit(stream.init)(jax.random.key(0))

    @eqx.filter_jit
    def step(state, parameters):
        return stream(state, jnp.asarray(0), learner_with(parameters), jax.random.key(1))

    return stream, state, stream.q.init(jax.random.key(0)), step


@pytest.mark.parametrize(
    ("change", "terminated", "truncated"),
    [({}, 0, False), ({"steps": jnp.asarray(499, jnp.int32)}, 0, True), ({"position": jnp.asarray(9.0)}, 1, False)],
)
def test_time_limits_bootstrap_and_terminations_do_not(change, terminated, truncated):
    stream, state, parameters, step = short_memory()
    before = state.environment._replace(**change)
    after, (data, problem) = step(state._replace(environment=before), parameters)
    row = after.memory[1]
    assert row[-1] == terminated
    assert (after.environment.steps == 0) == bool(terminated or truncated)
    np.testing.assert_array_equal(row[:4], stream.environment.observe(before))
    # the target of this transition, real and imagined
    newest = np.flatnonzero((data.inner.x.observation == row[:4]).all(1))
    assert newest.size
    y = jax.tree.map(lambda leaf: leaf[newest[0]], data.inner.y)
    value = stream.q.soft_value(parameters, row[6:10], stream.temperature)
    assert y.target == pytest.approx(float(y.reward + (1 - terminated) * 0.99 * value), rel=1e-9)
    outer = jnp.ones((2, stream.model.network.parameters))
    x = jax.tree.map(lambda leaf: leaf[newest[0]], data.inner.x)
    imagined, reward = stream.model(outer, x)
    value = stream.q.soft_value(parameters, imagined, stream.temperature)
    expected = reward + (1 - terminated) * 0.99 * value
    assert problem.inner_loss.model_target(outer, x, y) == pytest.approx(float(expected), rel=1e-9)


def test_target_networks_follow_and_the_memory_goes_round():
    stream = replay(Probe(), capacity=64, target_rate=0.25)
    state, example = jax.jit(stream.init)(jax.random.key(0))
    assert example.inner.x.observation.shape == (16, 2)
    assert np.any(state.memory[:50], axis=1).all()
    assert not np.any(state.memory[50:])
    first, second = (stream.q.init(jax.random.key(seed)) for seed in (0, 1))
    step = eqx.filter_jit(lambda state, round, key, parameters: stream(state, round, learner_with(parameters), key))
    state, _ = step(state, jnp.asarray(0), jax.random.key(1), first)
    np.testing.assert_array_equal(state.target, first)
    state, _ = step(state, jnp.asarray(1), jax.random.key(1), second)
    np.testing.assert_allclose(state.target, 0.75 * first + 0.25 * second, rtol=1e-12)
    for round in range(2, 30):
        old = state.memory
        state, (data, _) = step(state, jnp.asarray(round), jax.random.key(round), second)
        changed = np.flatnonzero((old != state.memory).any(1))
        assert set(changed) <= {(50 + round) % 64}
        rows = np.concatenate([data.inner.x.observation, data.inner.x.action], 1)
        assert all((state.memory[:, :4] == row).all(1).any() for row in rows)


def test_policy_is_soft_with_a_share_of_random_actions():
    stream = replay(CartPole(), temperature=0.5, exploration=0.2)
    parameters = jax.random.normal(jax.random.key(0), (2, stream.q.network.parameters))
    observation = jnp.asarray([0.1, -0.3, 0.05, 0.4])
    values = np.mean([network((4, 4, 2), np.asarray(each), np.asarray(observation)) for each in parameters], axis=0)
    soft = np.exp(values / 0.5) / np.exp(values / 0.5).sum()
    np.testing.assert_allclose(stream.policy(parameters, observation), 0.8 * soft + 0.1, rtol=1e-9)
    # and the actions taken have these frequencies
    state, _ = jax.jit(stream.init)(jax.random.key(0))

    def action(key):
        after, _ = stream(state, jnp.asarray(0), learner_with(parameters), key)
        return after.memory[50, 4:6]

    taken = jax.jit(jax.vmap(action))(jax.random.split(jax.random.key(1), 4000))
    expected = stream.policy(parameters, stream.environment.observe(state.environment))
    np.testing.assert_allclose(taken.mean(0), expected, atol=4 * 0.5 / np.sqrt(4000))


def newest(q, parameters):
    return cartpole.greedy(q, parameters[None], jnp.ones(1, bool))


def test_evaluation_counts_the_rewards_of_whole_episodes():
    """A policy that always pushes to the left, followed by hand."""
    environment, q = CartPole(reward_low=-0.05, reward_high=0.1), soft_q.TwinQ(4, 2, (3,))
    parameters = jnp.zeros((2, q.network.parameters)).at[:, -2].set(1.0)  # the bias of action 0
    key = jax.random.key(5)
    result = jax.jit(lambda: cartpole.evaluate(environment, newest(q, parameters), jnp.asarray(0), key, 3))()
    step = jax.jit(environment.step)
    for index, uniform in enumerate(jax.random.uniform(key, (3, 4))):
        state, total, steps, done = environment.reset(uniform), 0.0, 0, False
        while not done:
            state, outcome = step(state, jnp.asarray(0), jnp.asarray(0))
            total, steps = total + float(outcome.reward), steps + 1
            done = bool(outcome.terminated | outcome.truncated)
        assert (total, steps) == (result.returns[index], result.lengths[index])
        assert 0 < total < steps


# --- learning --------------------------------------------------------------------------------------------------------


def numbers(**changes):
    values = {
        "seed": 0,
        "interval": jnp.zeros((2, 2)),
        "inner_rate": 1e-2,
        "outer_rate": 1e-3,  # well below the inner rate: a model that moves faster than the values follow runs away
        "target_rate": 0.1,
        "temperature": 1e-2,
        "final_rate": 1.0,
        "window": jnp.asarray(10),
        "mix": 0.4,
    }
    return cartpole.Numbers(**{**values, **changes})


def test_rates_fall_linearly_to_their_last_share():
    stream = Replay(Probe(), soft_q.TwinQ(2, 2, (4,)), soft_q.WorldModel(2, 2, (3,)), method="fbo")
    algorithm = cartpole.learner("fbo", stream, numbers(final_rate=0.2), clip=0.0, capacity=10, rounds=10)
    for optimiser, first in ((algorithm.optimiser, 1e-3), (algorithm.estimator.inner.optimiser, 1e-2)):
        state, sizes = optimiser.init(jnp.ones(1)), []
        with jax.numpy_dtype_promotion("standard"):
            for _ in range(12):
                update, state = optimiser.update(jnp.ones(1), state, jnp.ones(1))
                sizes.append(-float(update[0]))  # Adam's step for a constant gradient is its rate
        expected = first * np.maximum(1 - 0.8 * np.arange(12) / 10, 0.2)
        np.testing.assert_allclose(sizes, expected, rtol=1e-5)


@pytest.mark.parametrize("method", STUDIED)
def test_every_method_solves_the_probe(method):
    stream = Replay(
        Probe(),
        soft_q.TwinQ(2, 2, (16,)),
        soft_q.WorldModel(2, 2, (8,)),
        method=method.removeprefix("smooth-"),
        discount=DISCOUNT,
        target_rate=0.1,
        exploration=0.2,
        random_steps=100,
        capacity=1000,
        batch=32,
    )
    rate = 0.1 if method.endswith("itd") else 1e-2

    def train(key):
        algorithm = cartpole.learner(method, stream, numbers(inner_rate=rate), clip=1.0, capacity=10, rounds=1)
        key_model, key_run = jax.random.split(key)
        outer = stream.model.init(key_model)
        final, trace = sf.run(
            algorithm, stream, outer, rounds=4000, key=key_run, record=lambda state, info: info.finite
        )
        parameters = inner_parameters(final.learner.estimator)
        observations = jnp.asarray([[0.0, 1.0], [0.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
        values = jax.vmap(stream.q.values, in_axes=(None, 0))(parameters, observations)
        returns = cartpole.evaluate(stream.environment, newest(stream.q, parameters), jnp.asarray(0), key, 4).returns
        return jnp.mean(values, axis=1), returns, jnp.all(trace)

    with jax.enable_x64(False):
        values, returns, finite = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(3), 2))
    assert finite.all()
    np.testing.assert_array_equal(returns, 1)
    # The value of the start, whose side means nothing, and of the second step on the side that pays.
    np.testing.assert_allclose(values[:, :2].max(-1), DISCOUNT, atol=0.15)
    np.testing.assert_allclose(values[:, 2].max(-1), 1, atol=0.15)


def test_an_evaluation_is_what_gymnasium_makes_of_the_same_policy():
    """Greedy episodes, step by step in CartPole-v1, paid by the interval."""
    import gymnasium

    environment = CartPole(reward_low=-0.02, reward_high=0.1)
    q = soft_q.TwinQ(4, 2, (8,))
    parameters = jax.random.normal(jax.random.key(2), q.init(jax.random.key(2)).shape)
    key, episodes = jax.random.key(7), 3
    result = cartpole.evaluate(environment, newest(q, parameters), jnp.asarray(0), key, episodes)
    starts = (2 * jax.random.uniform(key, (episodes, 4), parameters.dtype) - 1) * 0.05
    reference = gymnasium.make("CartPole-v1").unwrapped
    for start, total, length in zip(starts, result.returns, result.lengths, strict=True):
        reference.reset(seed=0)
        reference.state, seen, paid, ended = tuple(map(float, start)), [], 0.0, False
        while not ended and len(seen) < 500:
            seen.append(np.array(reference.state))
            values = q.values(parameters, jnp.asarray(seen[-1], parameters.dtype))
            _, _, ended, _, _ = reference.step(int(np.argmax(np.mean(values, axis=0))))
            paid += -0.02 <= reference.state[2] <= 0.1
        assert (total, length) == (paid, len(seen))
        if np.array_equal(start, starts[0]):
            shown = np.asarray(result.first)
            np.testing.assert_allclose(shown[: len(seen)], seen, atol=1e-5)
            assert np.isnan(shown[len(seen) :]).all()


def test_networks_are_averaged_as_functions():
    q, observations = soft_q.TwinQ(4, 2, (5,)), np.random.default_rng(1).normal(size=(200, 4))
    networks = jax.random.normal(jax.random.key(1), (4, *q.init(jax.random.key(1)).shape)).at[2].set(jnp.nan)
    counted = jnp.array([True, True, False, True])
    actions = jax.vmap(cartpole.greedy(q, networks, counted))(jnp.asarray(observations))

    def values(parameters):
        """Of both actions, by hand; axes (observation, action)."""
        first, bias, second, last = np.split(np.asarray(parameters), [20, 25, 35])
        return np.maximum(observations @ first.reshape(4, 5) + bias, 0) @ second.reshape(5, 2) + last

    each = np.array([[values(row) for row in pair] for pair in networks[counted]])
    np.testing.assert_array_equal(actions, each.mean(axis=(0, 1)).argmax(axis=1))
    parameters = networks[counted].mean(axis=0)
    assert (actions != np.mean([values(row) for row in parameters], axis=0).argmax(axis=1)).any()
    assert (actions != each[-1].mean(axis=0).argmax(axis=1)).any()


def test_evaluations_judge_a_share_of_the_networks_so_far_and_the_newest():
    small = {"random_steps": 30, "batch": 8, "capacity": 60, "q_hidden": (4,), "seeds": 3, "window": (1,)}
    config = CartPoleConfig(
        methods=("vep",), environment=("drifting",), steps=60, evaluate_every=10, episodes=2, averaged=0.5, **small
    )
    assert cartpole.averaged_networks(config) == [1, 1, 1, 2, 2, 3]
    many = CartPoleConfig(steps=1_000_000, evaluate_every=10_000)
    assert [cartpole.averaged_networks(replace(many, averaged=share))[89] for share in (0.0, 0.3, 0.7)] == [1, 27, 50]
    assert cartpole.averaged_networks(replace(many, evaluate_every=100_000, averaged=0.7))[-1] == 7
    (program,) = cartpole.programs(config)
    lanes, _ = whole_run(program)
    advance = jax.jit(jax.vmap(program.advance))
    generator = jax.random.key(4)
    alone, together = [], []
    for number, members in ((3, 2), (4, 2), (5, 3)):
        # Networks that act differently stand for those of the evaluations before.
        before = lanes[number]
        earlier = jax.random.normal(jax.random.fold_in(generator, number), before.networks.shape)
        after, rows = advance(program.numbers, before._replace(networks=earlier))
        newest = inner_parameters(after.run.learner.estimator)
        np.testing.assert_array_equal(after.networks, earlier.at[:, number % 3].set(newest))

        def judge(numbers, networks, number=number):
            time = jnp.asarray(10 * number + 9, jnp.int32)
            stream = cartpole.replay(config, "vep", numbers)
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(numbers.seed), 1), time)
            policy = cartpole.greedy(stream.q, networks, jnp.ones(len(networks), bool))
            return cartpole.evaluate(stream.environment, policy, time, key, 2)

        places = [(number - age) % 3 for age in range(members)]
        averaged = jax.vmap(judge)(program.numbers, after.networks[:, jnp.array(places)])
        for name, expected in {
            "return_mean": averaged.returns.mean(-1),
            "return_min": averaged.returns.min(-1),
            "return_max": averaged.returns.max(-1),
            "episode_length": averaged.lengths.mean(-1),
            "pole_angle": averaged.observation[:, cartpole.POLE_ANGLE],
            "shown": averaged.first[:, :200:4, :3:2],
        }.items():
            np.testing.assert_allclose(rows[name][:, 0], expected, rtol=1e-12, err_msg=name)
        single = jax.vmap(judge)(program.numbers, newest[:, None])
        np.testing.assert_array_equal(rows["newest_return"][:, 0], single.returns.mean(-1))
        alone.append(single)
        together.append(averaged)
    # The comparison says something: the two policies differ in every figure.
    for one, other in zip(alone, together, strict=True):
        assert all((a != b).any() for a, b in zip(one, other, strict=True))


SMALL_CONFIG = CartPoleConfig(
    methods=("fbo", "smooth-fbo"),
    environment=("stationary", "drifting"),
    steps=40,
    evaluate_every=20,
    episodes=3,
    seeds=2,
    window=(1, 5),
    mix=(0.0,),
    random_steps=30,
    batch=8,
    capacity=60,
    q_hidden=(4,),
)


@functools.cache
def small_programs():
    results = {}
    for program in cartpole.programs(SMALL_CONFIG):
        results[program.name] = (program, *whole_run(program))
    return results


def whole_run(program):
    """The lanes before the first chunk and after each, and the rows of each."""
    lanes, rows = [jax.jit(jax.vmap(program.start))(program.numbers)], []
    advance = jax.jit(jax.vmap(program.advance))
    for _ in range(program.chunks):
        lane, records = advance(program.numbers, lanes[-1])
        lanes.append(lane)
        rows.append(records)
    return lanes, rows


def test_programs_hold_every_setting_and_seed_and_report_a_row_per_chunk():
    program, _, rows = small_programs()["smooth-fbo"]
    assert len(program.lanes) == 2 * 2 * 2
    assert {(lane["environment"], lane["window"], lane["seed"]) for lane in program.lanes} == {
        (environment, window, seed)
        for environment in ("stationary", "drifting")
        for window in (1, 5)
        for seed in (0, 1)
    }
    assert (program.rounds, program.chunk, program.chunks) == (40, 20, 2)
    for chunk, records in enumerate(rows):
        assert all(column.shape[:2] == (8, 1) for column in records.values())
        assert (records["round"] == 20 * chunk + 19).all()
        assert records["finite"].all()
        for name in set(records) - {"training_return", "shown"}:  # no episode ended, or one has
            assert np.isfinite(records[name]).all(), name
        assert (records["return_min"] <= records["return_mean"]).all()
        assert (records["return_mean"] <= records["return_max"]).all()
    drifting = np.array([lane["environment"] == "drifting" for lane in program.lanes])
    np.testing.assert_allclose(rows[1]["reward_low"][~drifting], -0.2095, rtol=1e-6)
    np.testing.assert_allclose(rows[1]["reward_low"][drifting], -0.2095 + 39 / 40 * 0.1495, rtol=1e-6)
    np.testing.assert_allclose(rows[1]["reward_high"][drifting], 0.06 + 39 / 40 * 0.1495, rtol=1e-6)


def rounds_of(config, program, index, lane, rounds):
    """The rounds of a lane once more, one by one, with their gradients; and the state after them."""
    pick = functools.partial(jax.tree.map, lambda leaf: leaf[index])
    numbers, state = pick(program.numbers), pick(lane.run)
    state = state._replace(source=state.source._replace(tally=jax.tree.map(jnp.zeros_like, state.source.tally)))
    stream = cartpole.replay(config, program.name, numbers)
    algorithm = cartpole.learner(
        program.name, stream, numbers, clip=config.clip, capacity=max(config.window), rounds=config.steps
    )
    return sf.run(algorithm, stream, rounds=rounds, state=state, record=lambda state, info: info)


def test_a_row_sums_up_its_rounds():
    program, lanes, rows = small_programs()["smooth-fbo"]
    index = next(i for i, lane in enumerate(program.lanes) if lane["window"] == 5 and lane["environment"] == "drifting")
    last, infos = rounds_of(SMALL_CONFIG, program, index, lanes[1], 20)
    row = {name: np.asarray(values)[index, 0] for name, values in rows[1].items()}
    raw, used = (np.sqrt(np.sum(np.square(g), axis=(1, 2))) for g in (infos.gradient, infos.smoothed))
    assert not np.allclose(raw, used, rtol=0.1)
    tally = last.source.tally
    assert tally.steps == 20
    for name, expected in {
        "hypergradient_norm": raw.mean(),
        "used_norm": used.mean(),
        "hypergradient_squares": (raw**2).sum(),
        "used_squares": (used**2).sum(),
        "inner_loss": infos.inner_loss.mean(),
        "outer_loss": infos.outer_loss.mean(),
        "training_pole_angle": tally.observations[cartpole.POLE_ANGLE] / 20,
    }.items():
        np.testing.assert_allclose(row[name], expected, rtol=1e-6, err_msg=name)


def test_training_returns_are_means_over_the_episodes_that_ended():
    config = replace(SMALL_CONFIG, steps=120, evaluate_every=120, environment=("drifting",), methods=("fbo",))
    (program,) = cartpole.programs(config)
    (_, after), (row,) = whole_run(program)
    tally = after.run.source.tally
    assert (tally.episodes > 1).all()
    np.testing.assert_array_equal(row["training_episodes"][:, 0], tally.episodes)
    np.testing.assert_allclose(row["training_return"][:, 0], tally.returns / tally.episodes, rtol=1e-12)


def test_a_lane_that_stops_within_a_chunk_is_marked():
    config = replace(SMALL_CONFIG, methods=("itd",), environment=("drifting",), inner_rate=(1e4,), evaluate_every=40)
    (program,) = cartpole.programs(config)
    lanes, rows = whole_run(program)
    _, infos = rounds_of(config, program, 0, lanes[0], 40)
    assert infos.finite[0]
    assert not infos.finite[-1]
    assert not rows[0]["finite"][0, 0]


def test_options_reach_what_they_are_for():
    config = replace(SMALL_CONFIG, methods=("itd", "fbo"), itd_factor=7.0, inner_steps=3, inner_rate=(0.01,))
    itd, fbo = cartpole.programs(config)
    np.testing.assert_allclose(itd.numbers.inner_rate, 0.07)
    np.testing.assert_allclose(fbo.numbers.inner_rate, 0.01)
    lanes, _ = whole_run(fbo)
    counts = [leaf for leaf in jax.tree.leaves(lanes[1].run.learner.estimator.inner.optimiser) if leaf.ndim == 1]
    assert counts
    assert all((count == 3 * 20).all() for count in counts)
    one = jax.tree.map(lambda leaf: leaf[0], fbo.numbers)
    stream = cartpole.replay(replace(config, discount=0.8, model_leak=0.3), "fbo", one)
    assert stream.discount == 0.8
    assert stream.model.network.leak == 0.3
    np.testing.assert_allclose(stream.largest_value, (1 + one.temperature * np.log(2)) / (1 - 0.8))
    assert cartpole.replay(replace(config, bounded_values=False), "fbo", one).largest_value is None
    inverses = {name: cartpole.hypergradient_of(name, Q, RATE).inverse for name in ("omd", "omd-cg")}
    assert isinstance(inverses["omd"], sf.IdentityInverse)
    assert isinstance(inverses["omd-cg"], sf.ConjugateGradient)


@pytest.mark.parametrize(("clip", "size"), [(0.5, 0.5), (0.0, 50.0), (100.0, 50.0)])
def test_gradients_are_clipped_before_adam(clip, size):
    stream = Replay(Probe(), soft_q.TwinQ(2, 2, (4,)), soft_q.WorldModel(2, 2, (3,)), method="fbo")
    optimiser = cartpole.learner("fbo", stream, numbers(), clip=clip, capacity=10, rounds=10).optimiser
    gradient = jnp.array([30.0, 40.0])
    with jax.numpy_dtype_promotion("standard"):
        _, state = optimiser.update(gradient, optimiser.init(gradient), gradient)
    (moment,) = [part.mu for part in jax.tree.leaves(state, is_leaf=lambda s: hasattr(s, "mu")) if hasattr(part, "mu")]
    np.testing.assert_allclose(moment, 0.1 * size * np.array([0.6, 0.8]), rtol=1e-6)  # Adam keeps 1 − 0.9 of it


def test_a_window_of_one_is_no_smoothing_and_longer_ones_are_not():
    program, lanes, rows = small_programs()["smooth-fbo"]
    plain_program, plain_lanes, plain_rows = small_programs()["fbo"]
    last, plain_last = lanes[-1].run.learner.outer, plain_lanes[-1].run.learner.outer
    for index, lane in enumerate(program.lanes):
        same = {key: lane[key] for key in ("environment", "seed")}
        twin = next(i for i, other in enumerate(plain_program.lanes) if same.items() <= other.items())
        difference = np.abs(last[index] - plain_last[twin]).max()
        assert (difference < 1e-12) == (lane["window"] == 1)
        if lane["window"] == 1:
            np.testing.assert_allclose(rows[1]["used_squares"][index], plain_rows[1]["used_squares"][twin], rtol=1e-9)


def test_seeds_differ_in_every_random_choice():
    program, lanes, _ = small_programs()["fbo"]
    states = [lane.run for lane in lanes]
    one, other = (jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), states[0]) for i in (0, 1))
    assert [lane["seed"] for lane in program.lanes[:2]] == [0, 1]
    weights = slice(0, 6 * 3)  # the first layer of both networks; biases start at zero
    assert not np.isclose(one.learner.outer[:, weights], other.learner.outer[:, weights]).any()
    assert not np.isclose(*one.learner.outer[:, weights]).any()
    first, second = inner_parameters(states[0].learner.estimator)[:2]
    assert not np.isclose(first[:, : 4 * 4], second[:, : 4 * 4]).any()
    assert not np.isclose(first[0, : 4 * 4], first[1, : 4 * 4]).any()  # and the two networks of a pair
    assert not np.array_equal(one.learner.key, other.learner.key)
    assert not np.array_equal(one.key, other.key)
    assert not np.isclose(one.source.memory[0, :4], other.source.memory[0, :4]).any()  # the first state
    actions = [state.source.memory[:30, 4] for state in (one, other)]
    assert 5 < np.sum(actions[0] != actions[1]) < 25
    later = [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), states[-1]) for i in (0, 1)]
    assert not np.isclose(later[0].source.environment[:4], later[1].source.environment[:4]).any()
    # mini-batches: the same memory, the keys of the two lanes
    config = CartPoleConfig(
        random_steps=30, batch=8, capacity=60, q_hidden=(4,), steps=40, evaluate_every=20, window=(1,)
    )
    lane = jax.tree.map(lambda leaf: leaf[0], program.numbers)
    stream = cartpole.replay(config, "fbo", lane)
    shared = jax.tree.map(lambda leaf: leaf[0], states[0])
    batches = [
        stream(shared.source, jnp.asarray(0), shared.learner, jax.random.fold_in(jax.random.wrap_key_data(key), 0))[1]
        for key in (one.key, other.key)
    ]
    assert not np.array_equal(*(batch.data.inner.x.observation for batch in batches))
    # stationary and drifting lanes of one seed share all of it: they differ in the reward alone
    drifting = next(i for i, each in enumerate(program.lanes) if each["environment"] == "drifting")
    np.testing.assert_array_equal(states[0].source.memory[0], states[0].source.memory[drifting])


def test_a_lane_that_is_not_finite_stops_and_is_marked_while_the_others_go_on():
    program, (before, *_), _ = small_programs()["fbo"]
    learner = before.run.learner
    broken = learner._replace(outer=learner.outer.at[0].set(jnp.nan))
    lane, records = jax.jit(jax.vmap(program.advance))(
        program.numbers, before._replace(run=before.run._replace(learner=broken))
    )
    after = lane.run.learner
    assert records["finite"].tolist() == [[False], [True], [True], [True]]
    assert records["skipped"][:, 0].tolist() == [20, 0, 0, 0]
    np.testing.assert_array_equal(inner_parameters(after.estimator)[0], inner_parameters(learner.estimator)[0])
    assert np.isfinite(after.outer[1:]).all()


def test_values_stay_in_the_range_that_rewards_allow():
    largest = cartpole.largest_value(0.99, 0.1, 2)
    # A reward of 1 for ever, and the entropy of two equal actions: the soft value solves v = 1 + γv + α log 2.
    np.testing.assert_allclose(largest, 1 + 0.99 * largest + 0.1 * np.log(2), rtol=1e-12)
    values = jnp.asarray([-3.0, 0.5, 1e6])
    expected = [-0.3, 0.5, largest + 0.1 * (1e6 - largest)]
    np.testing.assert_allclose(soft_q.possible_value(values, largest), expected, rtol=1e-6)
    # Beyond the bounds there is a slope that leads back.
    slopes = jax.vmap(jax.grad(soft_q.possible_value), in_axes=(0, None))(values, largest)
    np.testing.assert_allclose(slopes, [0.1, 1.0, 0.1], rtol=1e-6)
    np.testing.assert_array_equal(soft_q.possible_value(values, None), values)
    shape = Q.init(jax.random.key(5)).shape
    parameters = 10 * jax.random.normal(jax.random.key(5), shape)  # networks that have run away
    size = Q.network.sizes[0]
    x = soft_q.StateAction(jnp.ones(size), jnp.eye(Q.network.sizes[-1])[0])
    y = soft_q.Experience(jnp.zeros(()), jnp.ones(size), jnp.zeros(()), jnp.zeros(()))
    outer = jax.random.normal(jax.random.key(6), MODEL.init(jax.random.key(6)).shape)
    target = soft_q.ModelTarget(MODEL, Q, parameters, DISCOUNT, TEMPERATURE, 2.0)
    following, reward = MODEL(outer, x)
    value = float(Q.soft_value(parameters, following, TEMPERATURE))
    possible = np.clip(value, 0, 2.0)
    assert value != possible
    expected = float(reward) + DISCOUNT * (possible + 0.1 * (value - possible))
    np.testing.assert_allclose(target(outer, x, y), expected, rtol=1e-6)


def test_values_of_all_samples_are_those_of_each():
    parameters = jax.random.normal(jax.random.key(8), Q.init(jax.random.key(8)).shape)
    x = REFERENCE.data.inner.x
    each = jax.vmap(Q, in_axes=(None, 0))(parameters, x)
    np.testing.assert_allclose(Q.batch(parameters, x), each, rtol=1e-12)


def test_units_of_a_leaky_model_can_come_back():
    leaky = soft_q.WorldModel(*SIZES, hidden=(3,), leak=0.1)
    (inputs, hidden, outputs) = leaky.network.sizes
    random = np.random.default_rng(3)
    weights = random.normal(size=(inputs, hidden)), random.normal(size=(hidden, outputs))
    biases = -100 * np.ones(hidden), random.normal(size=outputs)  # all units are off
    row = np.concatenate([weights[0].ravel(), biases[0], weights[1].ravel(), biases[1]])
    outer = jnp.asarray(np.stack([row, row]))
    x = soft_q.StateAction(jnp.asarray(random.normal(size=SIZES[0])), jnp.eye(SIZES[1])[1].astype(outer.dtype))
    before = np.concatenate(x) @ weights[0] + biases[0]
    expected = np.where(before > 0, before, 0.1 * before) @ weights[1] + biases[1]
    np.testing.assert_allclose(leaky(outer, x)[0], expected, rtol=1e-5)

    def prediction(outer):
        return jnp.sum(leaky(outer, x)[0])

    first_layer = jax.grad(prediction)(outer)[0, : inputs * hidden]
    assert np.abs(first_layer).max() > 1e-3
    off = jax.grad(lambda outer: jnp.sum(soft_q.WorldModel(*SIZES, hidden=(3,))(outer, x)[0]))(outer)
    assert np.abs(off[0, : inputs * hidden]).max() == 0


def test_settings_of_a_method_replace_the_grid():
    config = CartPoleConfig(
        methods=("fbo", "smooth-fbo"), seeds=1, environment=("drifting",), inner_rate=(1e-3, 3e-3), window=(10, 100)
    )
    plain, smooth = cartpole.programs(config, {"smooth-fbo": [{"inner_rate": 5e-4, "window": 7, "mix": 0.8}]})
    assert [lane["inner_rate"] for lane in plain.lanes] == [1e-3, 3e-3]
    (lane,) = smooth.lanes
    assert (lane["inner_rate"], lane["window"], lane["mix"]) == (5e-4, 7, 0.8)
    assert smooth.numbers.window.tolist() == [7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("sarsa",)}, "--methods must be one or more of mle, omd.* got sarsa"),
        ({"environment": ("moving",)}, "--environment must be one or more of stationary, drifting, got moving"),
        ({"capacity": 100}, "--capacity must be at least batch = 256, got 100"),
        ({"inner_rate": (0.0,)}, "--inner-rate must be positive"),
        ({"outer_rate": (1e-3, -1.0)}, "--outer-rate must be positive and finite, got -1.0"),
        ({"target_rate": (1.5,)}, "--target-rate must be at most 1"),
        ({"temperature": (0.0,)}, "--temperature must be positive"),
        ({"first_interval": (0.1, 0.1)}, "--first-interval must be a low below a high, both finite, got 0.1 0.1"),
        ({"last_interval": (0.2, -0.2)}, "--last-interval must be a low below a high"),
        ({"window": (0,)}, "--window must be between 1 and steps"),
        ({"mix": (1.2,)}, "--mix must be between 0 and 1"),
        ({"steps": 15_000}, "--steps must be a multiple of evaluate_every = 10000, got 15000"),
        ({"seeds": 0}, "--seeds must be an integer of at least 1"),
        ({"inner_steps": 0}, "--inner-steps must be an integer of at least 1"),
        ({"methods": ()}, "--methods must be one or more of mle"),
        ({"discount": 1.0}, "--discount must be at least 0 and below 1"),
    ],
)
def test_bad_configurations_say_what_is_wrong(options, message):
    with pytest.raises(UsageError, match=message):
        CartPoleConfig(**options)
