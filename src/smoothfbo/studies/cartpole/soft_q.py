"""Model-based soft Q-learning as a functional bilevel problem (Section 6.2 of the paper).

    inner   ½ Σ_k (v_k − r_λ(x) − γ(1−d) V̄(s_λ(x)))²      values learnt with the world model λ
    outer   ½ Σ_k (v_k − r' − γ(1−d) V̄(s'))²              and judged by what really happened

x is a state and an action, v the values that the Q networks give it (two, or one as in the paper), V̄ the soft value of
the lagged target networks h̄, and d marks terminal states (a time limit is none).
"""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.problem import Problem
from smoothfbo.studies.cartpole.networks import QNetworks, StateAction, WorldModel
from smoothfbo.types import Number


class Experience(NamedTuple):
    """y: what came of it."""

    reward: Float[Array, "..."]
    next_observation: Float[Array, "... observation"]
    terminated: Float[Array, "..."]  # 1 at the end of the task, else 0; 0 at a time limit
    target: Float[Array, "..."]  # r' + γ(1−d) V̄(s'): it does not depend on λ, so it is computed once a round


class ModelTarget(eqx.Module):
    """r_λ(x) + γ(1−d) V̄(s_λ(x)): what the world model λ says that an action is worth."""

    model: WorldModel
    q: QNetworks
    target: Float[Array, "critics parameters"]  # h̄_t, the lagged networks: a leaf of the problem of round t
    discount: Number
    temperature: Number
    largest_value: Number | None = None

    def __call__(self, outer: Float[Array, "2 parameters"], x: StateAction, y: Experience) -> Float[Array, "*samples"]:
        following, reward = self.model(outer, x)
        value = self.q.soft_value(self.target, following, self.temperature)
        return bellman_target(reward, y.terminated, softly_bounded(value, self.largest_value), self.discount)


def softly_bounded(value: Float[Array, "..."], largest: Number | None) -> Float[Array, "..."]:
    """The value itself within [0, largest]; beyond, only a tenth of what it exceeds the bound by. None is no bound.

    With rewards in [0, 1] no policy is worth less than 0 or more than (1 + α log(actions)) / (1 − γ), so the bound
    leaves every solution as it is. Without it a world model may invent states of any value: values, hypergradients
    and the model then drive each other up without end. The tenth lets a model come back: the gradient of a hard
    bound is zero, and a state that the model has moved beyond it stays there.
    """
    if largest is None:
        return value
    possible = jnp.clip(value, 0, jnp.asarray(largest, value.dtype))
    return possible + 0.1 * (value - possible)


def bellman_target(
    reward: Float[Array, "..."], terminated: Float[Array, "..."], value: Float[Array, "..."], discount: Number
) -> Float[Array, "..."]:
    """r + γ(1−d)V."""
    return reward + jnp.asarray(discount, reward.dtype) * (1 - terminated) * value


class AbstractLoss(eqx.Module):
    """A loss of one sample whose formula holds for many as well, if these are the columns of all its arguments."""

    @abstractmethod
    def __call__(
        self, outer: Array, v: Float[Array, "critics *samples"], x: StateAction, y: Experience
    ) -> Float[Array, "*samples"]: ...

    def batch(
        self, outer: Array, v: Float[Array, "samples critics"], x: StateAction, y: Experience
    ) -> Float[Array, " samples"]:
        return self(outer, *jax.tree.map(jnp.transpose, (v, x, y)))


class ModelBellmanError(AbstractLoss):
    """The inner loss: ½ Σ_k (v_k − r_λ(x) − γ(1−d) V̄(s_λ(x)))²."""

    model_target: ModelTarget

    def __call__(self, outer: Array, v: Array, x: StateAction, y: Experience) -> Array:
        return 0.5 * jnp.sum((v - self.model_target(outer, x, y)) ** 2, axis=0)


def bellman_error(outer: Array, v: Float[Array, " critics"], x: StateAction, y: Experience) -> Float[Array, ""]:
    """The outer loss: ½ Σ_k (v_k − r' − γ(1−d) V̄(s'))²."""
    del outer, x
    return 0.5 * jnp.sum((v - y.target) ** 2)


class Likelihood(AbstractLoss):
    """½‖s_λ(x) − s'‖² + ½(r_λ(x) − r')²: maximum likelihood under Gaussian noise, blind to what values need."""

    model: WorldModel

    def __call__(self, outer: Array, v: Array, x: StateAction, y: Experience) -> Array:
        del v
        following, reward = self.model(outer, x)
        return 0.5 * jnp.sum((following - y.next_observation) ** 2, axis=0) + 0.5 * (reward - y.reward) ** 2


class ValueEquivalence(AbstractLoss):
    """½(r_λ(x) + γ(1−d) V̄(s_λ(x)) − r' − γ(1−d) V̄(s'))²: the model need only predict values (VEP)."""

    model_target: ModelTarget

    def __call__(self, outer: Array, v: Array, x: StateAction, y: Experience) -> Array:
        del v
        return 0.5 * (self.model_target(outer, x, y) - y.target) ** 2


def soft_q_problem(model_target: ModelTarget, method: str) -> Problem:
    """The bilevel problem of a round. MLE and VEP judge the model by losses of their own, all else is the same."""
    judges = {"mle": Likelihood(model_target.model), "vep": ValueEquivalence(model_target)}
    return Problem(ModelBellmanError(model_target), judges.get(method, bellman_error))
