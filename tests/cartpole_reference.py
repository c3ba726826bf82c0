"""CartPole's problem once more: NumPy, float64, and no derivative but central differences."""

import functools
import itertools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import smoothfbo as sf
from smoothfbo.studies.cartpole import algorithm as cartpole_loop
from smoothfbo.studies.cartpole import evaluation, networks, soft_q
from smoothfbo.studies.cartpole.methods import find
from smoothfbo.studies.cartpole.replay import inner_parameters

DISCOUNT, TEMPERATURE = 0.9, 0.3
RATE = 0.05
SIZES = (3, 2)  # observation, actions
Q = networks.QNetworks(*SIZES, hidden=(5,))
MODEL = networks.WorldModel(*SIZES, hidden=(3, 3))


def network(sizes, parameters, x):
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        weight, parameters = parameters[: inputs * outputs].reshape(inputs, outputs), parameters[inputs * outputs :]
        bias, parameters = parameters[:outputs], parameters[outputs:]
        x = (np.maximum(x, 0) if layer else x) @ weight + bias
    assert parameters.size == 0
    return x


def differences(function, point, step=1e-6):
    """The gradient of a function of a vector (or the Jacobian) by central differences."""
    moves = step * np.eye(point.size).reshape(point.size, *point.shape)
    slopes = np.stack([(function(point + move) - function(point - move)) / (2 * step) for move in moves])
    return slopes.reshape(*point.shape, *slopes.shape[1:])


class Reference(NamedTuple):
    """A batch from a small Markov decision process, and the quantities of the problem on it."""

    observation: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    following: np.ndarray
    terminated: np.ndarray
    target_parameters: np.ndarray

    @classmethod
    def draw(cls, seed=0, samples=24):
        """Five states, two actions, several random outcomes for each pair; whether it ends depends on the pair."""
        generator = np.random.default_rng(seed)
        states, ends = generator.normal(size=(5, 3)), generator.random((5, 2)) < 0.25
        state, action = generator.integers(5, size=samples), generator.integers(2, size=samples)
        return cls(
            states[state],
            np.eye(2)[action],
            generator.normal(size=samples),
            states[generator.integers(5, size=samples)],
            ends[state, action].astype(float),
            generator.normal(size=(2, Q.network.parameters)),
        )

    def soft_value(self, observation):
        values = [network((3, 5, 2), parameters, observation) for parameters in self.target_parameters]
        return TEMPERATURE * np.log(np.sum(np.exp(np.minimum(*values) / TEMPERATURE), axis=-1))

    def prediction(self, outer):
        inputs = np.concatenate([self.observation, self.action], axis=1)
        return network((5, 3, 3, 3), outer[0], inputs), network((5, 3, 3, 3), outer[1], inputs)[:, 0]

    def model_target(self, outer):
        following, reward = self.prediction(outer)
        return reward + DISCOUNT * (1 - self.terminated) * self.soft_value(following)

    @property
    def true_target(self):
        return self.reward + DISCOUNT * (1 - self.terminated) * self.soft_value(self.following)

    def values(self, parameters):
        both = [network((3, 5, 2), each, self.observation) for each in parameters.reshape(2, -1)]
        return np.stack([np.sum(each * self.action, axis=1) for each in both], axis=1)

    @property
    def data(self):
        x = networks.StateAction(jnp.asarray(self.observation), jnp.asarray(self.action))
        known = (self.reward, self.following, self.terminated, self.true_target)
        samples = sf.Samples(x, soft_q.Experience(*map(jnp.asarray, known)))
        return sf.Data(samples, samples)

    def problem(self, method="fbo"):
        target = soft_q.ModelTarget(MODEL, Q, jnp.asarray(self.target_parameters), DISCOUNT, TEMPERATURE)
        return soft_q.soft_q_problem(target, method)


REFERENCE = Reference.draw()
OUTER = np.random.default_rng(1).normal(size=(2, 42))
INNER = np.random.default_rng(2).normal(size=(2, Q.network.parameters))


@functools.cache
def estimate(method):
    """The hypergradient of a method at OUTER after one inner step from INNER, and the Q networks after it."""
    hypergradient = cartpole_loop.estimator_of(find(method), Q, RATE)
    problem, data = REFERENCE.problem(method), REFERENCE.data
    warm = hypergradient.init(problem, jnp.asarray(OUTER), data, jax.random.key(0))
    warm = warm._replace(inner=warm.inner._replace(params=jnp.asarray(INNER)))
    result, warm = eqx.filter_jit(hypergradient)(problem, jnp.asarray(OUTER), warm, data, jax.random.key(1))
    return np.asarray(result.gradient), np.asarray(inner_parameters(warm)), result


def one_hot(pairs):
    """Features that make a linear function a table over pairs of state and action."""
    return lambda x: jnp.all(jnp.asarray(pairs) == jnp.concatenate(x), axis=1).astype(float)


def inner_jacobian(parameters):
    """∂v/∂θ at every sample: (parameters, samples, 2)."""
    return differences(REFERENCE.values, parameters.ravel())


def inner_gradient(parameters):
    """∇_θ of the inner loss: mean Σ_k (v_k − model target) ∂v_k/∂θ."""
    residual = REFERENCE.values(parameters) - REFERENCE.model_target(OUTER)[:, None]
    return np.einsum("pik,ik->p", inner_jacobian(parameters), residual) / len(residual)


def newest(q, parameters):
    return evaluation.greedy(q, parameters[None], jnp.ones(1, bool))


@functools.cache
def compiled(advance):
    """For all lanes of a program; compiled once."""
    return jax.jit(jax.vmap(advance))


def whole_run(program):
    """The lanes before the first chunk and after each, and the rows of each."""
    lanes, rows = [jax.jit(jax.vmap(program.start))(program.numbers)], []
    advance = compiled(program.advance)
    for _ in range(program.chunks):
        lane, records = advance(program.numbers, lanes[-1])
        lanes.append(lane)
        rows.append(records)
    return lanes, rows
