"""The source of the reinforcement-learning study: act, remember, hand out a mini-batch and the problem of the round."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.environments.base import AbstractEnvironment
from smoothfbo.samples import Data, Samples
from smoothfbo.source import AbstractSource, Round
from smoothfbo.studies.cartpole.networks import QNetworks, StateAction, WorldModel
from smoothfbo.studies.cartpole.soft_q import Experience, ModelTarget, bellman_target, softly_bounded
from smoothfbo.studies.cartpole.soft_q import soft_q_problem as problem_of
from smoothfbo.types import Number


class Tally(NamedTuple):
    """What happened while acting, since it was last set to zero."""

    episodes: Float[Array, ""]
    returns: Float[Array, ""]  # of the finished episodes, summed
    observations: Float[Array, " observation"]  # summed
    steps: Float[Array, ""]


class ReplayState(NamedTuple):
    environment: PyTree
    episode_return: Float[Array, ""]
    memory: Float[Array, "capacity row"]  # one row a transition: (s, a one-hot, r, s', d)
    target: Float[Array, "critics parameters"]  # h̄
    tally: Tally


class Replay(AbstractSource):
    """One environment step a round, and a mini-batch of remembered transitions as inner and outer data.

    - Acting: the soft policy π(a|s) ∝ exp(mean_k Q_k(s, a)/α) of the learner's current values, with probability
      `exploration` a random action; the first `random_steps` actions are random, and come before round 0.
    - The target networks follow the learner, h̄ ← (1−τ)h̄ + τh, and are a part of the round's problem.
    - The environment's time is the round.
    - With `independent_final` the hypergradient has a mini-batch of its own, drawn independently of the one that the
      inner step sees (step 3 of Algorithm FuncGrad); without it both are the same.
    """

    environment: AbstractEnvironment
    q: QNetworks
    model: WorldModel
    method: str = eqx.field(static=True)
    discount: Number = 0.99
    temperature: Number = 0.01  # α
    target_rate: Number = 0.005  # τ
    exploration: Number = 0.1
    largest_value: Number | None = None  # that a state can have; None is no bound
    random_steps: int = eqx.field(static=True, default=1_000)
    capacity: int = eqx.field(static=True, default=100_000)
    batch: int = eqx.field(static=True, default=256)
    independent_final: bool = eqx.field(static=True, default=False)

    @property
    def _drawn(self) -> int:
        """Remembered transitions of a round."""
        return 2 * self.batch if self.independent_final else self.batch

    def __check_init__(self) -> None:
        checks.require_integer(self.batch, "batch", 1)
        checks.require_integer(self.capacity, "capacity", self.batch)
        checks.require_integer(self.random_steps, "random_steps", 1)

    def init(self, key: PRNGKeyArray) -> tuple[ReplayState, Data]:
        """The state after the random steps."""
        key_start, key_steps = jax.random.split(key)
        environment = self.environment
        dtype = jnp.result_type(float)

        def zeros(*shape: int) -> Array:
            return jnp.zeros(shape, dtype)

        row = 2 * environment.observation_size + environment.actions + 2
        state = ReplayState(
            environment=environment.reset(jax.random.uniform(key_start, (environment.random_size,), dtype)),
            episode_return=zeros(),
            memory=zeros(self.capacity, row),
            target=zeros(self.q.critics, self.q.network.parameters),
            tally=Tally(zeros(), zeros(), zeros(environment.observation_size), zeros()),
        )

        def random_step(state: ReplayState, index: Int[Array, ""]) -> tuple[ReplayState, None]:
            uniform = jax.random.uniform(jax.random.fold_in(key_steps, index), (1 + environment.random_size,), dtype)
            equal = jnp.full(environment.actions, 1 / environment.actions, dtype)
            return self._act(state, equal, uniform, jnp.zeros((), jnp.int32), index % self.capacity), None

        state, _ = jax.lax.scan(random_step, state, jnp.arange(self.random_steps))
        rows = jnp.zeros(self._drawn, jnp.int32)
        return state._replace(tally=jax.tree.map(jnp.zeros_like, state.tally)), self._data(state, rows)

    def __call__(
        self, state: ReplayState, round: Int[Array, ""], learner: Any, key: PRNGKeyArray
    ) -> tuple[ReplayState, Round]:
        # All random numbers of the round in one call: a generator's cost is the call, not the numbers.
        bits = jax.random.bits(key, (self._drawn + 1 + self.environment.random_size,), jnp.uint32)
        uniform = _uniform(bits[self._drawn :], state.memory.dtype)
        parameters = inner_parameters(learner.estimator)
        policy = self.policy(parameters, self.environment.observe(state.environment))
        remembered = self.random_steps + round
        state = self._act(state, policy, uniform, round, remembered % self.capacity)

        filled = jnp.minimum(remembered + 1, self.capacity)
        rows = jax.lax.rem(bits[: self._drawn], filled.astype(jnp.uint32)).astype(jnp.int32)
        rate = jnp.where(round == 0, 1, jnp.asarray(self.target_rate, parameters.dtype))  # h̄_0 = h_0
        state = state._replace(target=state.target + rate * (parameters - state.target))
        return state, Round(self._data(state, rows), problem_of(self.model_target(state.target), self.method))

    def policy(
        self, parameters: Float[Array, "critics parameters"], observation: Float[Array, " observation"]
    ) -> Float[Array, " actions"]:
        """Probabilities of the actions."""
        values = jnp.mean(self.q.values(parameters, observation[:, None])[..., 0], axis=0)
        soft = jax.nn.softmax(values / jnp.asarray(self.temperature, values.dtype))
        share = jnp.asarray(self.exploration, values.dtype)
        return (1 - share) * soft + share / self.environment.actions

    def model_target(self, target: Float[Array, "critics parameters"]) -> ModelTarget:
        return ModelTarget(self.model, self.q, target, self.discount, self.temperature, self.largest_value)

    def _act(
        self, state: ReplayState, policy: Array, uniform: Array, time: Int[Array, ""], slot: Int[Array, ""]
    ) -> ReplayState:
        """One step of the environment, remembered in `slot`; a new episode begins where one ends."""
        environment = self.environment
        # The first action whose cumulated probability exceeds the random number.
        action = jnp.sum(jnp.cumsum(policy)[:-1] <= uniform[0])
        before = environment.observe(state.environment)
        following, outcome = environment.step(state.environment, action, time)
        after = environment.observe(following)
        ended = outcome.terminated | outcome.truncated
        one_hot = (jnp.arange(environment.actions) == action).astype(before.dtype)
        ending = jnp.stack([outcome.reward, outcome.terminated.astype(before.dtype)])
        row = jnp.concatenate([before, one_hot, after, ending])

        total = state.episode_return + outcome.reward
        first = environment.reset(uniform[1:])
        tally = state.tally
        finished = ended.astype(total.dtype)
        return state._replace(
            environment=optax.tree.where(ended, first, following),
            episode_return=jnp.where(ended, 0, total),
            # Written before the mini-batch is read: the other way round, XLA would copy all of the memory each round.
            memory=jax.lax.dynamic_update_index_in_dim(state.memory, row, slot, 0),
            tally=Tally(
                tally.episodes + finished, tally.returns + finished * total, tally.observations + after, tally.steps + 1
            ),
        )

    def _data(self, state: ReplayState, rows: Int[Array, " drawn"]) -> Data:
        samples = self._samples(state, rows)
        if not self.independent_final:
            return Data(samples, samples)
        fitted = jax.tree.map(lambda leaf: leaf[: self.batch], samples)
        final = jax.tree.map(lambda leaf: leaf[self.batch :], samples)
        return Data(fitted, fitted, Data(final, final))

    def _samples(self, state: ReplayState, rows: Int[Array, " drawn"]) -> Samples:
        batch = state.memory.at[rows].get(mode="promise_in_bounds")
        size, actions = self.environment.observation_size, self.environment.actions
        x = StateAction(batch[:, :size], batch[:, size : size + actions])
        following, reward, terminated = batch[:, size + actions : -2], batch[:, -2], batch[:, -1]
        values = self.q.soft_value(state.target, following.T, self.temperature)
        target = bellman_target(reward, terminated, softly_bounded(values, self.largest_value), self.discount)
        return Samples(x, Experience(reward, following, terminated, target))


def inner_parameters(warm: Any) -> Float[Array, "... critics parameters"]:
    """The current Q networks, out of any estimator's warm state."""
    return warm.inner.params


def _uniform(bits: Array, dtype: Any) -> Array:
    """Uniform numbers in [0, 1), exact multiples of 2⁻²⁴, which single precision holds."""
    return (bits >> 8).astype(dtype) * jnp.asarray(2.0**-24, dtype)
