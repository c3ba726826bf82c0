"""A two-step environment whose optimal values are known: whoever cannot solve it has a mistake."""

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from smoothfbo.environments.base import AbstractEnvironment, Outcome


class ProbeState(NamedTuple):
    stage: Float[Array, ""]  # 0 or 1
    side: Float[Array, ""]  # −1 or 1


class Probe(AbstractEnvironment):
    """The first action chooses a side, the second step pays 1 on the right side (1) and ends the episode.

    The side at the start is random and of no consequence. With discount γ the optimal values are
    Q*(first, right) = γ, Q*(first, left) = 0, Q*(second, ·) = 1 on the right side and 0 on the left one, so both
    the transition and the reward must be understood, and nothing must be bootstrapped at the end.
    """

    actions: ClassVar[int] = 2
    observation_size: ClassVar[int] = 2
    observation_limits: ClassVar[tuple[float, ...]] = (2.0, 2.0)
    random_size: ClassVar[int] = 1
    step_limit: ClassVar[int] = 2

    def reset(self, uniform: Float[Array, " 1"]) -> ProbeState:
        return ProbeState(jnp.zeros((), uniform.dtype), _sign(uniform[0] < 0.5, uniform))

    def step(self, state: ProbeState, action: Int[Array, ""], time: Int[Array, ""]) -> tuple[ProbeState, Outcome]:
        del time
        second = state.stage == 1
        side = jnp.where(second, state.side, _sign(action == 1, state.side))
        outcome = Outcome(
            reward=(second & (side > 0)).astype(side.dtype), terminated=second, truncated=jnp.zeros((), bool)
        )
        return ProbeState(jnp.ones_like(state.stage), side), outcome

    def observe(self, state: ProbeState) -> Float[Array, " 2"]:
        return jnp.stack(state)


def _sign(positive: Array, like: Array) -> Float[Array, ""]:
    return jnp.where(positive, 1, -1).astype(like.dtype)
