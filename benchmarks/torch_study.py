"""The CartPole study with the method fbo, as one would write it in PyTorch: modules, optimisers, a loop over steps.

It computes what `smoothfbo.studies.cartpole` computes for one lane, in the same order; tests/test_benchmarks.py
compares the two update by update.
"""

import copy
import math
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp

from smoothfbo.studies.cartpole.config import CartPoleConfig

OBSERVATION, ACTIONS = 4, 2
ANGLE_LIMIT, POSITION_LIMIT, STEP_LIMIT = 12 * 2 * math.pi / 360, 2.4, 500
GRAVITY, FORCE, TOTAL_MASS, POLE_MASS, HALF_LENGTH, SECONDS = 9.8, 10.0, 1.1, 0.1, 0.5, 0.02


class Batch(NamedTuple):
    """Transitions, one a row."""

    observation: Tensor
    action: Tensor  # one-hot
    following: Tensor
    reward: Tensor
    terminated: Tensor


class QNetworks(nn.Module):
    """Two Q networks of the same form; values have axes (network, sample, action)."""

    def __init__(self, hidden: Sequence[int]):
        super().__init__()
        self.networks = nn.ModuleList(perceptron((OBSERVATION, *hidden, ACTIONS)) for _ in range(2))

    def forward(self, observation: Tensor) -> Tensor:
        return torch.stack([network(observation) for network in self.networks])


class WorldModel(nn.Module):
    """The next observation and the reward, by a network each."""

    def __init__(self, hidden: Sequence[int], leak: float):
        super().__init__()
        self.transition = perceptron((OBSERVATION + ACTIONS, *hidden, OBSERVATION), leak)
        self.reward = perceptron((OBSERVATION + ACTIONS, *hidden, 1), leak)

    def forward(self, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.cat([observation, action], dim=1)
        return self.transition(x), self.reward(x)[:, 0]


class Learner:
    """Q networks, world model and their optimisers; `update` is one round of the functional method."""

    def __init__(self, config: CartPoleConfig):
        self.config, self.temperature = config, config.temperature[0]
        self.largest_value = (1 + self.temperature * math.log(ACTIONS)) / (1 - config.discount)
        self.q, self.model = QNetworks(config.q_hidden), WorldModel(config.model_hidden, config.model_leak)
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        # Fused is the fastest of Adam's forms here, by a factor of three.
        self.inner_optimiser = torch.optim.Adam(self.q.parameters(), config.inner_rate[0], fused=True)
        self.outer_optimiser = torch.optim.Adam(self.model.parameters(), config.outer_rate[0], fused=True)

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Target networks, one Adam step of the Q networks on the model's Bellman error, one of the world model.

        Under the squared losses the adjoint of a sample is −(v − y), so the gradient of the world model is that of
        mean y_λ(x) Σ_k (v_k − y), with the values v after their step held fixed. Returns both losses.
        """
        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.q.parameters()), self.config.target_rate[0])
            y = self.bellman(batch.reward, self.target(batch.following), batch.terminated)
        following, reward = self.model(batch.observation, batch.action)
        y_model = self.bellman(reward, self.target(following), batch.terminated)

        inner_loss = half_squares(taken(self.q(batch.observation), batch.action) - y_model.detach())
        self.inner_optimiser.zero_grad()
        inner_loss.backward()
        self.inner_optimiser.step()

        with torch.no_grad():
            errors = taken(self.q(batch.observation), batch.action) - y
        self.outer_optimiser.zero_grad()
        (y_model * errors.sum(0)).mean().backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.outer_optimiser.step()
        return inner_loss.detach(), half_squares(errors)

    def bellman(self, reward: Tensor, values: Tensor, terminated: Tensor) -> Tensor:
        """r + γ(1−d)V, V = α log Σ_a exp(min_k Q_k / α), of which a tenth counts beyond what rewards allow."""
        soft = self.temperature * torch.logsumexp(values.amin(0) / self.temperature, dim=-1)
        value = torch.lerp(soft.clamp(0, self.largest_value), soft, 0.1)
        return reward + self.config.discount * (1 - terminated) * value

    @torch.no_grad()
    def first_probability(self, observation: Sequence[float]) -> float:
        """Of the first action under the soft policy, with a share of random actions."""
        low, high = self.q(torch.tensor(observation)).mean(0).tolist()
        soft = 1 / (1 + math.exp(min((high - low) / self.temperature, 700)))
        return (1 - self.config.exploration) * soft + self.config.exploration / ACTIONS


class CompiledLearner(Learner):
    """The same update as one graph for `torch.compile`: gradients by `torch.func`, Adam written out.

    `Learner.update` does not compile as a whole: it fails at the backward passes.
    """

    def __init__(self, config: CartPoleConfig):
        super().__init__(config)
        modules = (self.q, self.target, self.model)
        self.parameters = tuple({name: leaf.detach() for name, leaf in m.named_parameters()} for m in modules)
        self.inner_moments, self.outer_moments = moments(self.parameters[0]), moments(self.parameters[2])
        self.compiled = torch.compile(self.graph, fullgraph=True)

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self.compiled(*self.parameters, self.inner_moments, self.outer_moments, batch)

    def graph(self, q: Any, target: Any, model: Any, inner: Any, outer: Any, batch: Batch) -> tuple[Tensor, Tensor]:
        for name, leaf in target.items():
            leaf.lerp_(q[name], self.config.target_rate[0])

        def values(q: Any) -> Tensor:
            return taken(functional_call(self.q, q, (batch.observation,)), batch.action)

        def bellman(reward: Tensor, following: Tensor) -> Tensor:
            return self.bellman(reward, functional_call(self.target, target, (following,)), batch.terminated)

        def predicted(model: Any) -> Tensor:
            following, reward = functional_call(self.model, model, (batch.observation, batch.action))
            return bellman(reward, following)

        y_model, backward = vjp(predicted, model)
        inner_loss = half_squares(values(q) - y_model)
        adam(q, grad(lambda q: half_squares(values(q) - y_model))(q), inner, self.config.inner_rate[0])
        errors = values(q) - bellman(batch.reward, batch.following)
        (gradient,) = backward(errors.sum(0) / errors.shape[1])
        norm = torch.sqrt(sum(leaf.square().sum() for leaf in gradient.values()))
        scale = torch.clamp(self.config.clip / (norm + 1e-6), max=1)
        adam(model, {name: scale * leaf for name, leaf in gradient.items()}, outer, self.config.outer_rate[0])
        return inner_loss, half_squares(errors)


class Lane:
    """An environment, a memory and a learner."""

    def __init__(self, config: CartPoleConfig, seed: int, compiled: bool = False):
        torch.manual_seed(seed)
        self.learner = CompiledLearner(config) if compiled else Learner(config)
        self.config, self.random = config, np.random.default_rng(seed)
        self.memory = np.zeros((config.capacity, 2 * OBSERVATION + ACTIONS + 2), np.float32)
        self.remembered, self.round = 0, 0
        self.reset()
        for _ in range(config.random_steps):
            self.act(0.5)

    def run(self, steps: int) -> None:
        """Environment steps, and an update after each."""
        for _ in range(steps):
            self.act(self.learner.first_probability(self.state))
            self.learner.update(self.batch())
            self.round += 1

    def reset(self) -> None:
        self.state, self.age = self.random.uniform(-0.05, 0.05, OBSERVATION).tolist(), 0

    def act(self, first_probability: float) -> None:
        before, right = self.state, self.random.random() >= first_probability
        self.state = move(before, FORCE if right else -FORCE)
        self.age += 1
        position, _, angle, _ = self.state
        low, high = self.interval()
        terminated = abs(position) > POSITION_LIMIT or abs(angle) > ANGLE_LIMIT
        row = (*before, not right, right, *self.state, low <= angle <= high, terminated)
        self.memory[self.remembered % self.config.capacity] = row
        self.remembered += 1
        if terminated or self.age >= STEP_LIMIT:
            self.reset()

    def interval(self) -> tuple[float, float]:
        """Rewarded angles, on their way from the first to the last place."""
        share = min(self.round / self.config.steps, 1)
        (first_low, first_high), (last_low, last_high) = self.config.first_interval, self.config.last_interval
        return first_low + share * (last_low - first_low), first_high + share * (last_high - first_high)

    def batch(self) -> Batch:
        rows = self.random.integers(min(self.remembered, self.config.capacity), size=self.config.batch)
        transitions = torch.from_numpy(self.memory[rows])
        *parts, reward, terminated = transitions.split((OBSERVATION, ACTIONS, OBSERVATION, 1, 1), dim=1)
        return Batch(*parts, reward[:, 0], terminated[:, 0])


def work(connection: Connection, config: CartPoleConfig, seeds: Sequence[int], compiled: bool) -> None:
    """A process of its own: run the lanes as many steps as it is told, until it is told none."""
    torch.set_num_threads(1)
    lanes = [Lane(config, seed, compiled) for seed in seeds]
    while steps := connection.recv():
        for lane in lanes:
            lane.run(steps)
        connection.send(steps)


def perceptron(sizes: Sequence[int], leak: float = 0.0) -> nn.Sequential:
    """ReLU between the layers; orthogonal weights, scaled by √2 and by 1e-2 in the last layer, no biases."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(leak) if leak else nn.ReLU()]
        nn.init.orthogonal_(layers[-2].weight, math.sqrt(2) if len(layers) < 2 * len(sizes) - 2 else 1e-2)
        nn.init.zeros_(layers[-2].bias)
    return nn.Sequential(*layers[:-1])


def taken(values: Tensor, action: Tensor) -> Tensor:
    """v: both values of the action that was taken."""
    return (values * action).sum(-1)


def half_squares(errors: Tensor) -> Tensor:
    return 0.5 * errors.square().sum(0).mean()


def moments(parameters: dict[str, Tensor]) -> dict[str, Any]:
    """Adam's memory: steps so far, and the two averages of every array."""
    averages = {name: (torch.zeros_like(leaf), torch.zeros_like(leaf)) for name, leaf in parameters.items()}
    return {"steps": next(iter(parameters.values())).new_zeros(()), "averages": averages}


def adam(parameters: dict[str, Tensor], gradient: dict[str, Tensor], memory: dict[str, Any], rate: float) -> None:
    steps = memory["steps"].add_(1)
    for name, leaf in parameters.items():
        first, second = memory["averages"][name]
        first.lerp_(gradient[name], 0.1)
        second.lerp_(gradient[name].square(), 0.001)
        leaf.sub_(rate * first / (1 - 0.9**steps) / (torch.sqrt(second / (1 - 0.999**steps)) + 1e-8))


def move(state: Sequence[float], force: float) -> list[float]:
    """One step of Euler's method of the cart and its pole."""
    _, velocity, angle, angular_velocity = state
    sine, cosine = math.sin(angle), math.cos(angle)
    push = (force + POLE_MASS * HALF_LENGTH * angular_velocity**2 * sine) / TOTAL_MASS
    inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cosine**2 / TOTAL_MASS)
    angular_acceleration = (GRAVITY * sine - cosine * push) / inertia
    acceleration = push - POLE_MASS * HALF_LENGTH * angular_acceleration * cosine / TOTAL_MASS
    speeds = (velocity, acceleration, angular_velocity, angular_acceleration)
    return [value + SECONDS * speed for value, speed in zip(state, speeds, strict=True)]
