"""CartPole-v1 in pure JAX, with a rewarded interval of pole angles and everything in it able to drift."""

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from smoothfbo.environments.base import AbstractEnvironment, Outcome
from smoothfbo.types import Number

# A number, or how it moves: a function of the steps taken so far.
Schedule: TypeAlias = Number | Callable[[Int[Array, ""]], Float[Array, ""]]

ANGLE_LIMIT = 12 * 2 * math.pi / 360
POSITION_LIMIT = 2.4
SECONDS_PER_STEP = 0.02
FIRST_STATE_SPREAD = 0.05

# The rewarded intervals of the paper: the stationary task keeps the first, the drifting one moves to the second.
FIRST_INTERVAL = (-0.2095, 0.06)
LAST_INTERVAL = (-0.06, 0.2095)


class Linear(eqx.Module):
    """From `begin` to `end` in a straight line over `duration` steps, and `end` from then on."""

    begin: Number
    end: Number
    duration: Number

    def __call__(self, time: Int[Array, ""] | int) -> Float[Array, ""]:
        dtype = jnp.result_type(float)
        begin, end, duration = (jnp.asarray(value, dtype) for value in (self.begin, self.end, self.duration))
        return begin + (end - begin) * jnp.clip(jnp.asarray(time, dtype) / duration, 0, 1)

    def __check_init__(self) -> None:
        if isinstance(self.duration, int | float) and not self.duration > 0:
            raise ValueError(f"duration must be a positive number of steps, got {self.duration}.")


class Parameters(NamedTuple):
    """Reward and physics at one moment. Everything derived is a property."""

    reward_low: Float[Array, ""]
    reward_high: Float[Array, ""]
    gravity: Float[Array, ""]
    cart_mass: Float[Array, ""]
    pole_mass: Float[Array, ""]
    pole_length: Float[Array, ""]
    force: Float[Array, ""]

    @property
    def total_mass(self) -> Float[Array, ""]:
        return self.cart_mass + self.pole_mass

    @property
    def half_length(self) -> Float[Array, ""]:
        return self.pole_length / 2

    @property
    def pole_mass_length(self) -> Float[Array, ""]:
        return self.pole_mass * self.half_length


class CartPoleState(NamedTuple):
    """Where cart and pole are, how fast they move, and how long the episode has lasted.

    The four numbers are ONE array: a loop on a GPU copies and stacks every array of its state by a kernel of its own.
    """

    observation: Float[Array, "*lanes 4"]  # position, velocity, angle and angular velocity
    steps: Int[Array, "*lanes"]  # in this episode

    @property
    def position(self) -> Float[Array, "*lanes"]:
        return self.observation[..., 0]

    @property
    def angle(self) -> Float[Array, "*lanes"]:
        return self.observation[..., 2]


class CartPole(AbstractEnvironment):
    """A pole on a cart that is pushed to the left (0) or right (1); dynamics and endings of CartPole-v1.

    The reward is 1 if the pole's angle after the step lies in [reward_low, reward_high], else 0. Every field is a
    number, or a function of the steps taken since the environment came to be, such as `Linear`.
    """

    reward_low: Schedule = FIRST_INTERVAL[0]
    reward_high: Schedule = FIRST_INTERVAL[1]
    gravity: Schedule = 9.8
    cart_mass: Schedule = 1.0
    pole_mass: Schedule = 0.1
    pole_length: Schedule = 1.0
    force: Schedule = 10.0

    actions: ClassVar[int] = 2
    observation_size: ClassVar[int] = 4
    observation_limits: ClassVar[tuple[float, ...]] = (2 * POSITION_LIMIT, 4.0, 2 * ANGLE_LIMIT, 4.0)
    random_size: ClassVar[int] = 4
    step_limit: ClassVar[int] = 500

    def __check_init__(self) -> None:
        low, high = self.reward_low, self.reward_high
        if isinstance(low, int | float) and isinstance(high, int | float) and not low < high:
            raise ValueError(f"reward_low must be below reward_high, got {low} and {high}.")

    def parameters(self, time: Int[Array, ""] | int) -> Parameters:
        """All that may drift, at one moment."""

        def value(schedule: Schedule) -> Float[Array, ""]:
            return jnp.asarray(schedule(jnp.asarray(time)) if callable(schedule) else schedule, jnp.result_type(float))

        return Parameters(*(value(getattr(self, name)) for name in Parameters._fields))

    def reset(self, uniform: Float[Array, " 4"]) -> CartPoleState:
        return CartPoleState((2 * uniform - 1) * FIRST_STATE_SPREAD, jnp.zeros((), jnp.int32))

    def step(
        self, state: CartPoleState, action: Int[Array, ""] | int, time: Int[Array, ""] | int
    ) -> tuple[CartPoleState, Outcome]:
        parameters = Parameters(*(value.astype(state.angle.dtype) for value in self.parameters(time)))
        following = _move(state, jnp.where(jnp.asarray(action) == 1, parameters.force, -parameters.force), parameters)
        rewarded = (parameters.reward_low <= following.angle) & (following.angle <= parameters.reward_high)
        outcome = Outcome(
            reward=rewarded.astype(state.angle.dtype),
            terminated=_has_fallen(following),
            truncated=following.steps >= self.step_limit,
        )
        return following, outcome

    def observe(self, state: CartPoleState) -> Float[Array, " 4"]:
        return state.observation


def drifting(duration: Number) -> CartPole:
    """The paper's drifting task: the rewarded interval moves in `duration` steps from its first to its last place."""
    low, high = (Linear(*ends, duration) for ends in zip(FIRST_INTERVAL, LAST_INTERVAL, strict=True))
    return CartPole(reward_low=low, reward_high=high)


def _move(state: CartPoleState, force: Float[Array, ""], parameters: Parameters) -> CartPoleState:
    """One step of Euler's method of the equations of Florian (2007), without friction:

    θ'' = (g sin θ − p cos θ) / (l (4/3 − m cos²θ / M)),   x'' = p − m l θ'' cos θ / M,
    p = (F + m l θ'² sin θ) / M,   m the pole's mass, M the total mass, l half the pole's length.
    """
    _, velocity, angle, angular_velocity = state.observation
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (force + parameters.pole_mass_length * angular_velocity**2 * sine) / parameters.total_mass
    inertia = parameters.half_length * (4 / 3 - parameters.pole_mass * cosine**2 / parameters.total_mass)
    angular_acceleration = (parameters.gravity * sine - cosine * push) / inertia
    acceleration = push - parameters.pole_mass_length * angular_acceleration * cosine / parameters.total_mass
    speeds = jnp.stack([velocity, acceleration, angular_velocity, angular_acceleration])
    return CartPoleState(state.observation + SECONDS_PER_STEP * speeds, state.steps + 1)


def _has_fallen(state: CartPoleState) -> Bool[Array, ""]:
    return (jnp.abs(state.position) > POSITION_LIMIT) | (jnp.abs(state.angle) > ANGLE_LIMIT)
