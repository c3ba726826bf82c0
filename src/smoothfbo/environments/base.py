"""The interface of an environment: pure functions of states that are pytrees."""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int


class Outcome(NamedTuple):
    """What a step brings beside the next state."""

    reward: Float[Array, ""]
    terminated: Bool[Array, ""]  # the end of the task: nothing follows, so nothing is bootstrapped
    truncated: Bool[Array, ""]  # the time limit: the state has a future that is merely not seen


class AbstractEnvironment(eqx.Module):
    """An environment with finitely many actions. Nothing is random but the first state of an episode.

    `time` counts all steps since the environment came to be, over episodes: whatever drifts is a function of it.
    """

    actions: ClassVar[int]  # actions are 0, …, actions − 1
    observation_size: ClassVar[int]
    observation_limits: ClassVar[tuple[float, ...]]  # sizes that observations hardly ever exceed
    random_size: ClassVar[int]  # how many random numbers an episode starts with
    step_limit: ClassVar[int]  # the longest episode

    @abstractmethod
    def reset(self, uniform: Float[Array, " random_size"]) -> Any:
        """The first state of an episode, made of independent uniform numbers in [0, 1)."""

    @abstractmethod
    def step(self, state: Any, action: Int[Array, ""], time: Int[Array, ""]) -> tuple[Any, Outcome]:
        """One step. At the end of an episode the last state is returned, not a new first one."""

    @abstractmethod
    def observe(self, state: Any) -> Float[Array, " observation_size"]:
        """What is seen of a state."""
