"""How a policy is evaluated: episodes of the averaged Q networks in the environment as it is at that moment."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from smoothfbo.environments.base import AbstractEnvironment
from smoothfbo.studies.cartpole.config import MOST_AVERAGED, CartPoleConfig
from smoothfbo.studies.cartpole.networks import QNetworks


class Evaluation(NamedTuple):
    returns: Float[Array, " episodes"]
    lengths: Float[Array, " episodes"]
    observation: Float[Array, " observation"]  # mean over all steps
    first: Float[Array, "steps observation"]  # the first episode, step by step; NaN after its end


Policy = Callable[[Float[Array, " observation"]], Int[Array, ""]]


def greedy(
    q: QNetworks,
    networks: Float[Array, "networks critics parameters"],
    counted: Bool[Array, " networks"],
    vote: bool = False,
) -> Policy:
    """The action with the highest mean value of the counted networks: an average of functions, not of parameters.

    With `vote` each network counts once: the action that most of them prefer, and of two such the first.
    """

    def act(observation: Float[Array, " observation"]) -> Int[Array, ""]:
        values = jnp.mean(jax.vmap(q.values, in_axes=(0, None))(networks, observation), axis=1)
        if vote:
            values = jax.nn.one_hot(jnp.argmax(values, axis=1), values.shape[1], dtype=values.dtype)
        return jnp.argmax(jnp.sum(jnp.where(counted[:, None], values, 0), axis=0))

    return act


def evaluate(
    environment: AbstractEnvironment, policy: Policy, time: Int[Array, ""], key: PRNGKeyArray, episodes: int
) -> Evaluation:
    """Episodes of the policy in the environment as it is at `time`."""
    dtype = jnp.result_type(float)
    uniform = jax.random.uniform(key, (episodes, environment.random_size), dtype)
    zero = jnp.zeros(episodes, dtype)

    def one(state: Any, running: Array) -> tuple[Any, Array, Array, Array]:
        state, outcome = environment.step(state, policy(environment.observe(state)), time)
        goes_on = jnp.where(outcome.terminated | outcome.truncated, 0, running)
        seen = jnp.where(running > 0, environment.observe(state), 0)
        return state, goes_on, running * outcome.reward, seen

    def step(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Array]:
        states, running, returns, lengths, total = carry
        shown = jnp.where(running[0] > 0, environment.observe(jax.tree.map(lambda leaf: leaf[0], states)), jnp.nan)
        states, goes_on, rewards, seen = jax.vmap(one)(states, running)
        return (states, goes_on, returns + rewards, lengths + running, total + jnp.sum(seen, axis=0)), shown

    total = jnp.zeros(environment.observation_size, dtype)
    first = (jax.vmap(environment.reset)(uniform), zero + 1, zero, zero, total)
    (_, _, returns, lengths, total), shown = jax.lax.scan(step, first, length=environment.step_limit)
    return Evaluation(returns, lengths, total / jnp.sum(lengths), shown)


def averaged_networks(config: CartPoleConfig) -> list[int]:
    """How many of the newest networks each evaluation averages: a share of the evaluations up to then."""
    evaluations = range(1, config.steps // config.evaluate_every + 1)
    # A hair more than the share: 0.7 · 90 is a little less than 63 in binary fractions.
    return [min(max(1, math.floor(config.averaged * number + 1e-9)), MOST_AVERAGED) for number in evaluations]
