"""Model-based soft Q-learning as a functional bilevel problem (Section 6.2 of the paper).

    inner   ½ Σ_k (v_k − r_λ(x) − γ(1−d) V̄(s_λ(x)))²      values learnt with the world model λ
    outer   ½ Σ_k (v_k − r' − γ(1−d) V̄(s'))²              and judged by what really happened

x is a state and an action, v the values that the Q networks give it (two, or one as in the paper), V̄ the soft value of
the lagged target networks h̄, and d marks terminal states (a time limit is none). Parameters are ONE vector per network:
optimisers, windows and checks then handle a single array, which is what a step costs on a GPU.
"""

import math
from abc import abstractmethod
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from smoothfbo.algebra import lane_by_lane
from smoothfbo.problem import Problem
from smoothfbo.types import Number


class StateAction(NamedTuple):
    """x: where the agent was and what it did."""

    observation: Float[Array, "... observation"]
    action: Float[Array, "... actions"]  # one-hot


class Experience(NamedTuple):
    """y: what came of it."""

    reward: Float[Array, "..."]
    next_observation: Float[Array, "... observation"]
    terminated: Float[Array, "..."]  # 1 at the end of the task, else 0; 0 at a time limit
    target: Float[Array, "..."]  # r' + γ(1−d) V̄(s'): it does not depend on λ, so it is computed once a round


class Perceptron(eqx.Module):
    """A ReLU network with these layer sizes, as a function of one vector of parameters.

    `leak` is the slope of its units below zero. `fused` makes a pass of many inputs one kernel on a GPU, which can be
    differentiated once; see `fused.py`.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    leak: float = eqx.field(static=True, default=0.0)
    fused: bool = eqx.field(static=True, default=False)

    @property
    def parameters(self) -> int:
        return sum((inputs + 1) * outputs for inputs, outputs in pairwise(self.sizes))

    def init(self, key: PRNGKeyArray) -> Float[Array, " parameters"]:
        """Orthogonal weights, scaled by √2 and by 1e-2 in the last layer; no biases."""
        layers = len(self.sizes) - 1
        parts = []
        for layer, (inputs, outputs) in enumerate(pairwise(self.sizes)):
            scale = math.sqrt(2) if layer < layers - 1 else 1e-2
            weight = jax.nn.initializers.orthogonal(scale)(jax.random.fold_in(key, layer), (inputs, outputs))
            parts += [weight.ravel(), jnp.zeros(outputs, weight.dtype)]
        return jnp.concatenate(parts)

    def __call__(
        self, parameters: Float[Array, " parameters"], x: Float[Array, "inputs *samples"]
    ) -> Float[Array, "outputs *samples"]:
        """Of one input, or of many as the columns of a matrix: on a CPU that is the faster way round."""
        if self.fused and x.ndim == 2:
            from smoothfbo.studies.cartpole.fused import Form, fused  # it imports Pallas

            return fused(Form(self.sizes, self.leak), parameters, x)
        position = 0
        for layer, (inputs, outputs) in enumerate(pairwise(self.sizes)):
            weight = parameters[position : position + inputs * outputs].reshape(inputs, outputs)
            position += inputs * outputs
            bias = parameters[position : position + outputs].reshape(outputs, *(1 for _ in x.shape[1:]))
            x = weight.T @ (self._activate(x) if layer else x) + bias
            position += outputs
        return x

    def _activate(self, x: Float[Array, "hidden *samples"]) -> Float[Array, "hidden *samples"]:
        return jax.nn.leaky_relu(x, self.leak) if self.leak else jax.nn.relu(x)


class QNetworks(eqx.Module):
    """Q networks of the same form, the critics: the inner function. Their parameters are the rows of one matrix.

    Two of them damp overestimation (the minimum counts in targets, the mean when acting); one is the paper's h.
    """

    network: Perceptron
    critics: int = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        actions: int,
        hidden: tuple[int, ...] = (32, 32),
        critics: int = 2,
        fused: bool = False,
    ):
        self.network = Perceptron((observation_size, *hidden, actions), fused=fused)
        self.critics = critics

    @property
    def plain(self) -> "QNetworks":
        """The same ones, not fused: these can be differentiated as often as one likes."""
        observation_size, *hidden, actions = self.network.sizes
        return QNetworks(observation_size, actions, tuple(hidden), self.critics)

    @eqx.filter_jit
    def init(self, key: PRNGKeyArray, x: StateAction | None = None) -> Float[Array, "critics parameters"]:
        del x
        return jnp.stack([self.network.init(each) for each in jax.random.split(key, self.critics)])

    def values(
        self, parameters: Float[Array, "critics parameters"], observation: Float[Array, "observation *samples"]
    ) -> Float[Array, "critics actions *samples"]:
        """Of one observation, or of many as the columns of a matrix."""
        return jax.vmap(self.network, in_axes=(0, None))(parameters, observation)

    def __call__(self, parameters: Float[Array, "critics parameters"], x: StateAction) -> Float[Array, " critics"]:
        """v: the values that the critics give the action that was taken."""
        return jnp.sum(self.values(parameters, x.observation) * x.action, axis=-1)

    def batch(self, parameters: Float[Array, "critics parameters"], x: StateAction) -> Float[Array, "samples critics"]:
        """v of all samples at once."""
        return jnp.sum(self.values(parameters, x.observation.T) * x.action.T, axis=1).T

    def soft_value(
        self,
        parameters: Float[Array, "critics parameters"],
        observation: Float[Array, "observation *samples"],
        temperature: Number,
    ) -> Float[Array, "*samples"]:
        """V̄(s) = α log Σ_a exp(min_k Q_k(s, a) / α), of one observation or of many as columns."""
        values = jnp.min(self.values(parameters, observation), axis=0)
        alpha = jnp.asarray(temperature, values.dtype)
        return alpha * jax.nn.logsumexp(values / alpha, axis=0)


class WorldModel(eqx.Module):
    """s_λ and r_λ: the next observation and the reward, by a network each. Their parameters are the rows of λ.

    Both networks have the same form, so that they run as one; of the reward's only the first output is used.

    With `limits` b, predictions stay in the range of what can happen: observations s/(1 + |s|/b), and rewards in
    [0, 1], ½ + ½ r/(1 + |r|). Without them nothing keeps a model near the data, and a ReLU network gives the states
    that it invents values without bound. The slope of these bounds falls slowly, so that a model can come back; that
    of tanh is zero in floating point soon after.

    `leak` is the slope of the hidden units below zero: without it a unit that is off for all data stays off, and
    there are only three.
    """

    network: Perceptron
    limits: tuple[float, ...] | None = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        actions: int,
        hidden: tuple[int, ...] = (3, 3),
        limits: tuple[float, ...] | None = None,
        leak: float = 0.0,
        fused: bool = False,
    ):
        if limits is not None and len(limits) != observation_size:
            raise ValueError(f"limits must be one number for each of {observation_size} observations, got {limits}.")
        self.network = Perceptron((observation_size + actions, *hidden, observation_size), leak, fused)
        self.limits = limits

    @eqx.filter_jit
    def init(self, key: PRNGKeyArray) -> Float[Array, "2 parameters"]:
        def initial(key: PRNGKeyArray) -> Float[Array, "2 parameters"]:
            return jnp.stack([self.network.init(each) for each in jax.random.split(key)])

        return lane_by_lane(initial, key)  # the QR of the orthogonal initialisation

    def __call__(
        self, outer: Float[Array, "2 parameters"], x: StateAction
    ) -> tuple[Float[Array, "observation *samples"], Float[Array, "*samples"]]:
        outputs = jax.vmap(self.network, in_axes=(0, None))(outer, jnp.concatenate(x))
        following, reward = outputs[0], outputs[1, 0]
        if self.limits is None:
            return following, reward
        limits = jnp.asarray(self.limits, following.dtype).reshape(-1, *(1 for _ in following.shape[1:]))
        return limits * jax.nn.soft_sign(following / limits), 0.5 + 0.5 * jax.nn.soft_sign(reward)


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
