"""The Q networks and the world model.

The parameters of a network are ONE vector: optimisers, windows and checks then handle a single array, which is what a
step costs on a GPU.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from smoothfbo.algebra import lane_by_lane
from smoothfbo.types import Number


class StateAction(NamedTuple):
    """x: where the agent was and what it did."""

    observation: Float[Array, "... observation"]
    action: Float[Array, "... actions"]  # one-hot


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
        """The values of one input, or of many as the columns of a matrix: on a CPU that is the faster way round."""
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
        """The same networks, not fused: these can be differentiated as often as one likes."""
        observation_size, *hidden, actions = self.network.sizes
        return QNetworks(observation_size, actions, tuple(hidden), self.critics)

    @eqx.filter_jit
    def init(self, key: PRNGKeyArray, x: StateAction | None = None) -> Float[Array, "critics parameters"]:
        del x
        return jnp.stack([self.network.init(each) for each in jax.random.split(key, self.critics)])

    def values(
        self, parameters: Float[Array, "critics parameters"], observation: Float[Array, "observation *samples"]
    ) -> Float[Array, "critics actions *samples"]:
        """The soft value of one observation, or of many as the columns of a matrix."""
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
