"""Evaluations of policies."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cartpole_reference import compiled, newest, whole_run

from smoothfbo.environments.cartpole import CartPole
from smoothfbo.studies.cartpole import algorithm as cartpole_loop
from smoothfbo.studies.cartpole import evaluation, report
from smoothfbo.studies.cartpole import program as cartpole
from smoothfbo.studies.cartpole.config import CartPoleConfig
from smoothfbo.studies.cartpole.methods import find
from smoothfbo.studies.cartpole.networks import QNetworks
from smoothfbo.studies.cartpole.replay import inner_parameters


def test_evaluation_counts_the_rewards_of_whole_episodes():
    """A policy that always pushes to the left, followed by hand."""
    environment, q = CartPole(reward_low=-0.05, reward_high=0.1), QNetworks(4, 2, (3,))
    parameters = jnp.zeros((2, q.network.parameters)).at[:, -2].set(1.0)  # the bias of action 0
    key = jax.random.key(5)
    result = jax.jit(lambda: evaluation.evaluate(environment, newest(q, parameters), jnp.asarray(0), key, 3))()
    step = jax.jit(environment.step)
    for index, uniform in enumerate(jax.random.uniform(key, (3, 4))):
        state, total, steps, done = environment.reset(uniform), 0.0, 0, False
        while not done:
            state, outcome = step(state, jnp.asarray(0), jnp.asarray(0))
            total, steps = total + float(outcome.reward), steps + 1
            done = bool(outcome.terminated | outcome.truncated)
        assert (total, steps) == (result.returns[index], result.lengths[index])
        assert 0 < total < steps


def test_an_evaluation_is_what_gymnasium_makes_of_the_same_policy():
    """Greedy episodes, step by step in CartPole-v1, paid by the interval."""
    import gymnasium

    environment = CartPole(reward_low=-0.02, reward_high=0.1)
    q = QNetworks(4, 2, (8,))
    parameters = jax.random.normal(jax.random.key(2), q.init(jax.random.key(2)).shape)
    key, episodes = jax.random.key(7), 3
    result = jax.jit(lambda: evaluation.evaluate(environment, newest(q, parameters), jnp.asarray(0), key, episodes))()
    values_of = eqx.filter_jit(q.values)
    starts = (2 * jax.random.uniform(key, (episodes, 4), parameters.dtype) - 1) * 0.05
    reference = gymnasium.make("CartPole-v1").unwrapped
    for start, total, length in zip(starts, result.returns, result.lengths, strict=True):
        reference.reset(seed=0)
        reference.state, seen, paid, ended = tuple(map(float, start)), [], 0.0, False
        while not ended and len(seen) < 500:
            seen.append(np.array(reference.state))
            values = values_of(parameters, jnp.asarray(seen[-1], parameters.dtype))
            _, _, ended, _, _ = reference.step(int(np.argmax(np.mean(values, axis=0))))
            paid += -0.02 <= reference.state[2] <= 0.1
        assert (total, length) == (paid, len(seen))
        if np.array_equal(start, starts[0]):
            shown = np.asarray(result.first)
            np.testing.assert_allclose(shown[: len(seen)], seen, atol=1e-5)
            assert np.isnan(shown[len(seen) :]).all()


def test_networks_are_averaged_as_functions():
    q, observations = QNetworks(4, 2, (5,)), np.random.default_rng(1).normal(size=(200, 4))
    networks = jax.random.normal(jax.random.key(1), (4, *q.init(jax.random.key(1)).shape)).at[2].set(jnp.nan)
    counted = jnp.array([True, True, False, True])
    actions = jax.jit(jax.vmap(evaluation.greedy(q, networks, counted)))(jnp.asarray(observations))

    def values(parameters):
        """Of both actions, by hand; axes (observation, action)."""
        first, bias, second, last = np.split(np.asarray(parameters), [20, 25, 35])
        return np.maximum(observations @ first.reshape(4, 5) + bias, 0) @ second.reshape(5, 2) + last

    each = np.array([[values(row) for row in pair] for pair in networks[counted]])
    np.testing.assert_array_equal(actions, each.mean(axis=(0, 1)).argmax(axis=1))
    parameters = networks[counted].mean(axis=0)
    assert (actions != np.mean([values(row) for row in parameters], axis=0).argmax(axis=1)).any()
    assert (actions != each[-1].mean(axis=0).argmax(axis=1)).any()
    votes = jax.jit(jax.vmap(evaluation.greedy(q, networks, counted, vote=True)))(jnp.asarray(observations))
    np.testing.assert_array_equal(votes, each.mean(axis=1).argmax(axis=2).sum(axis=0) >= 2)  # two of three networks
    assert (actions != votes).any()


def test_evaluations_judge_a_share_of_the_networks_so_far_and_the_newest():
    small = {"random_steps": 30, "batch": 8, "capacity": 60, "q_hidden": (4,), "seeds": 3, "window": (1,)}
    config = CartPoleConfig(
        methods=("vep",), environment=("drifting",), steps=60, evaluate_every=10, episodes=2, averaged=0.5, **small
    )
    assert evaluation.averaged_networks(config) == [1, 1, 1, 2, 2, 3]
    many = CartPoleConfig(steps=1_000_000, evaluate_every=10_000)
    assert [evaluation.averaged_networks(replace(many, averaged=share))[89] for share in (0.0, 0.3, 0.7)] == [1, 27, 50]
    assert evaluation.averaged_networks(replace(many, evaluate_every=100_000, averaged=0.7))[-1] == 7
    (program,) = cartpole.programs(config)
    lanes, _ = whole_run(program)
    advance = compiled(program.advance)
    generator = jax.random.key(4)

    @partial(jax.jit, static_argnums=2)
    def judge(time, networks, vote=False):
        def one(numbers, networks):
            source = cartpole_loop.replay(config, find("vep"), numbers)
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(numbers.seed), 1), time)
            policy = evaluation.greedy(source.q, networks, jnp.ones(len(networks), bool), vote)
            return evaluation.evaluate(source.environment, policy, time, key, 2)

        return jax.vmap(one)(program.numbers, networks)

    alone, together = [], []
    for number, members in ((3, 2), (4, 2), (5, 3)):
        # Networks that act differently stand for those of the evaluations before.
        before = lanes[number]
        earlier = jax.random.normal(jax.random.fold_in(generator, number), before.networks.shape)
        after, rows = advance(program.numbers, before._replace(networks=earlier))
        newest = inner_parameters(after.run.learner.estimator)
        np.testing.assert_array_equal(after.networks, earlier.at[:, number % 3].set(newest))
        time, places = np.int32(10 * number + 9), [(number - age) % 3 for age in range(members)]
        averaged = judge(time, np.asarray(after.networks)[:, places])
        for name, expected in {
            "return_mean": averaged.returns.mean(-1),
            "return_min": averaged.returns.min(-1),
            "return_max": averaged.returns.max(-1),
            "episode_length": averaged.lengths.mean(-1),
            "pole_angle": averaged.observation[:, cartpole.POLE_ANGLE],
            "shown": averaged.first[:, :200:4, :3:2],
        }.items():
            np.testing.assert_allclose(rows[name][:, 0], expected, rtol=1e-12, err_msg=name)
        single = judge(time, newest[:, None])
        np.testing.assert_array_equal(rows["newest_return"][:, 0], single.returns.mean(-1))
        alone.append(single)
        together.append(averaged)
    # The comparison says something: the two policies differ in every figure.
    for one, other in zip(alone, together, strict=True):
        assert all((a != b).any() for a, b in zip(one, other, strict=True))
    (voting,) = cartpole.programs(replace(config, vote=True))
    _, rows = compiled(voting.advance)(program.numbers, before._replace(networks=earlier))
    votes = judge(time, np.asarray(after.networks)[:, places], True)
    np.testing.assert_allclose(rows["return_mean"][:, 0], votes.returns.mean(-1), rtol=1e-12)
    assert (votes.returns != together[-1].returns).any()
    for name, vote in (("the votes", True), ("the mean values", False)):
        assert f"Evaluated are {name} of the Q networks" in report.networks_evaluated({"averaged": 0.5, "vote": vote})
