"""Acting and remembering."""

import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cartpole_reference import network
from probe import Probe

from smoothfbo.environments.cartpole import CartPole
from smoothfbo.functions.base import FunctionState
from smoothfbo.hypergradients import InnerState
from smoothfbo.studies.cartpole import networks
from smoothfbo.studies.cartpole.replay import Replay


def replay(environment, **options):
    sizes = environment.observation_size, environment.actions
    defaults = {"method": "fbo", "random_steps": 50, "capacity": 200, "batch": 16}
    return Replay(environment, networks.QNetworks(*sizes, (4,)), networks.WorldModel(*sizes), **{**defaults, **options})


class Learner(NamedTuple):
    """As much of a learner's state as a source looks at."""

    estimator: InnerState


def learner_with(parameters):
    return Learner(InnerState(FunctionState(parameters, ())))


@functools.cache
def short_memory():
    source = replay(CartPole(), random_steps=1, batch=4, capacity=4)
    state, _ = jax.jit(source.init)(jax.random.key(0))

    @eqx.filter_jit
    def step(state, parameters):
        return source(state, jnp.asarray(0), learner_with(parameters), jax.random.key(1))

    return source, state, source.q.init(jax.random.key(0)), step


@pytest.mark.parametrize(
    ("change", "terminated", "truncated"),
    [
        ({}, 0, False),
        ({"steps": jnp.asarray(499, jnp.int32)}, 0, True),
        ({"observation": jnp.array([9.0, 0, 0, 0])}, 1, False),
    ],
)
def test_time_limits_bootstrap_and_terminations_do_not(change, terminated, truncated):
    source, state, parameters, step = short_memory()
    before = state.environment._replace(**change)
    after, (data, problem) = step(state._replace(environment=before), parameters)
    row = np.asarray(after.memory)[1]
    assert row[-1] == terminated
    assert (after.environment.steps == 0) == bool(terminated or truncated)
    np.testing.assert_array_equal(row[:4], source.environment.observe(before))
    # the target of this transition, real and imagined
    newest = np.flatnonzero((data.inner.x.observation == row[:4]).all(1))
    assert newest.size
    x, y, _ = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[newest[0]]), data.inner)
    soft_value = eqx.filter_jit(source.q.soft_value)
    value = soft_value(parameters, jnp.asarray(row[6:10]), source.temperature)
    assert y.target == pytest.approx(float(y.reward) + (1 - terminated) * 0.99 * float(value), rel=1e-9)
    outer = jnp.ones((2, source.model.network.parameters))
    imagined, reward = eqx.filter_jit(source.model)(outer, x)
    value = soft_value(parameters, imagined, source.temperature)
    expected = float(reward) + (1 - terminated) * 0.99 * float(value)
    assert eqx.filter_jit(problem.inner_loss.model_target)(outer, x, y) == pytest.approx(expected, rel=1e-9)


def test_target_networks_follow_and_the_memory_goes_round():
    source = replay(Probe(), capacity=64, target_rate=0.25)
    state, example = jax.jit(source.init)(jax.random.key(0))
    assert example.inner.x.observation.shape == (16, 2)
    memory = np.asarray(state.memory)
    assert np.any(memory[:50], axis=1).all()
    assert not np.any(memory[50:])
    first, second = (source.q.init(jax.random.key(seed)) for seed in (0, 1))
    step = eqx.filter_jit(lambda state, round, key, parameters: source(state, round, learner_with(parameters), key))
    state, _ = step(state, jnp.asarray(0), jax.random.key(1), first)
    np.testing.assert_array_equal(state.target, first)
    state, _ = step(state, jnp.asarray(1), jax.random.key(1), second)
    np.testing.assert_allclose(state.target, 0.75 * np.asarray(first) + 0.25 * np.asarray(second), rtol=1e-12)
    for round in range(2, 30):
        old = np.asarray(state.memory)
        state, (data, _) = step(state, jnp.asarray(round), jax.random.key(round), second)
        memory = np.asarray(state.memory)
        changed = np.flatnonzero((old != memory).any(1))
        assert set(changed) <= {(50 + round) % 64}
        rows = np.concatenate([data.inner.x.observation, data.inner.x.action], 1)
        assert all((memory[:, :4] == row).all(1).any() for row in rows)


def test_final_batches_are_drawn_on_their_own_where_they_are_asked_for():
    source = replay(CartPole(), independent_final=True)
    state, first = jax.jit(source.init)(jax.random.key(0))
    assert first.final.inner.x.observation.shape == first.inner.x.observation.shape == (16, 4)
    parameters = source.q.init(jax.random.key(0))
    step = eqx.filter_jit(lambda key: source(state, jnp.asarray(3), learner_with(parameters), key))
    soft_value = eqx.filter_jit(source.q.soft_value)
    picked = []
    for seed in range(20):
        after, (data, _) = jax.tree.map(np.asarray, step(jax.random.key(seed)))
        for part in (data, data.final):
            places = (part.inner.x.observation[:, None] == after.memory[:54, :4]).all(-1)
            assert (places.sum(1) >= 1).all()
            picked.append(places.argmax(1))
            y = part.inner.y
            following = np.asarray(soft_value(after.target, y.next_observation.T, source.temperature))
            np.testing.assert_allclose(  # the targets belong to the same rows
                y.target, y.reward + 0.99 * (1 - y.terminated) * following, rtol=1e-9
            )
    fitted, final = np.concatenate(picked[::2]), np.concatenate(picked[1::2])
    assert np.mean(fitted == final) < 0.06  # 1/54 by chance, 1 if they were the same
    assert abs(np.corrcoef(fitted, final)[0, 1]) < 0.2
    assert jax.eval_shape(replay(CartPole()).init, jax.random.key(0))[1].final is None


def test_policy_is_soft_with_a_share_of_random_actions():
    source = replay(CartPole(), temperature=0.5, exploration=0.2)
    parameters = jax.random.normal(jax.random.key(0), (2, source.q.network.parameters))
    observation = jnp.asarray([0.1, -0.3, 0.05, 0.4])
    values = np.mean([network((4, 4, 2), np.asarray(each), np.asarray(observation)) for each in parameters], axis=0)
    soft = np.exp(values / 0.5) / np.exp(values / 0.5).sum()
    policy = eqx.filter_jit(source.policy)
    np.testing.assert_allclose(policy(parameters, observation), 0.8 * soft + 0.1, rtol=1e-9)
    # and the actions taken have these frequencies
    state, _ = jax.jit(source.init)(jax.random.key(0))

    def action(key):
        after, _ = source(state, jnp.asarray(0), learner_with(parameters), key)
        return after.memory[50, 4:6]

    taken = jax.jit(jax.vmap(action))(jax.random.split(jax.random.key(1), 4000))
    expected = policy(parameters, source.environment.observe(state.environment))
    np.testing.assert_allclose(np.mean(taken, axis=0), expected, atol=4 * 0.5 / np.sqrt(4000))
