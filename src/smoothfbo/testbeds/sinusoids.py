"""Online meta-learning: a shared start for tasks from a family of sinusoids that drifts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Integer, PRNGKeyArray

from smoothfbo import checks
from smoothfbo.functions.linear import Linear
from smoothfbo.functions.network import Network
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, Samples
from smoothfbo.source import FunctionSource
from smoothfbo.testbeds.base import AbstractTestbed, trained
from smoothfbo.testbeds.bases import fourier
from smoothfbo.testbeds.drift import Drift, as_drift, rise_and_fall
from smoothfbo.types import Number


class TaskInput(NamedTuple):
    """The number of the task in its round, and where its function is evaluated."""

    task: Int[Array, "*n"]
    place: Float[Array, "*n"]


class Family(NamedTuple):
    """The centres of the family: of amplitudes and phases, and the probability of each frequency."""

    amplitude: Float[Array, ""]
    phase: Float[Array, ""]
    frequencies: Float[Array, " m"]


class SinusoidFamilies(AbstractTestbed):
    """Every round brings new tasks y = A sin(2πkz + φ) + noise with few samples each; λ is what they have in common.

    z is uniform on [0, 1]. A task draws its amplitude from A_t ± a and its phase from φ_t ± b, uniformly, and its
    frequency k from 1, …, m with probabilities p_t(k); A_t, φ_t and p_t drift. λ are the coefficients of one function
    λᵀψ(z) in Fourier features ψ, to which the solution of every task is pulled, with strength κ. The number of the task
    is a part of the input x = (task, z), so that the inner function has values of its own for each task:

        ℓ_in = (v − y)² + κ (v − λᵀψ(z))²,     ℓ_out = (v − y)² on other samples of the same tasks,

        h*_λ(task, z) = (f_task(z) + κ λᵀψ(z)) / (1 + κ).

    In L₂ the pull is a ridge penalty κ‖θ − λ‖² of the task's coefficients (Rajeswaran et al., 2019). With c the
    coefficients of a task,

        F_t(λ) = (κ/(1 + κ))² E‖c − λ‖² + σ²,     λ*_t = E c:   A_t p_t(k) sin(b)/b · (cos φ_t, sin φ_t)/√2

    at sin 2πkz and cos 2πkz, and E‖c‖² = (A_t² + a²/3)/2.

    **Arguments:**

    - `tasks`, `samples`, `batch`: tasks of a round, and the inner and the outer samples of each.
    - `frequencies`: m. `pull`: κ. `noise`: σ. `amplitude_spread`, `phase_spread`: a and b.
    - `drift`, `period`: once a period the amplitude goes from 3/2 to 1/2 of `amplitude` and back, the phase goes round,
      and the frequency goes from 1 to m and back (between two whole numbers, tasks have one or the other).
    - `seed`: draws the position of round 0 and the phase there.
    """

    start: Float[Array, ""]
    first_phase: Float[Array, ""]
    drift: Drift
    amplitude: Number
    amplitude_spread: Number
    phase_spread: Number
    pull: Number
    noise: Number
    tasks: int = eqx.field(static=True)
    samples: int = eqx.field(static=True)
    batch: int = eqx.field(static=True)
    frequencies: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        tasks: int = 4,
        samples: int = 10,
        batch: int = 10,
        frequencies: int = 3,
        pull: Number = 1.0,
        drift: str | Drift = "smooth",
        period: Number = 600.0,
        noise: Number = 0.3,
        amplitude: Number = 1.0,
        amplitude_spread: Number = 0.5,
        phase_spread: Number = 0.5,
        seed: int | Integer[Array, ""] = 0,
    ):
        for name, value in {"tasks": tasks, "samples": samples, "batch": batch, "frequencies": frequencies}.items():
            checks.require_integer(value, name, 1)
        checks.require_range(pull, "pull", 0.0, open_low=True)
        for name, value in {"noise": noise, "amplitude": amplitude, "amplitude_spread": amplitude_spread}.items():
            checks.require_range(value, name, 0.0)
        checks.require_range(phase_spread, "phase_spread", 0.0, np.pi)
        key_start, key_phase = jax.random.split(jax.random.key(seed))
        self.start, self.first_phase = jax.random.uniform(key_start), 2 * np.pi * jax.random.uniform(key_phase)
        self.drift = as_drift(drift, period, seed)
        self.amplitude, self.amplitude_spread, self.phase_spread = amplitude, amplitude_spread, phase_spread
        self.pull, self.noise = pull, noise
        self.tasks, self.samples, self.batch, self.frequencies = tasks, samples, batch, frequencies

    @property
    def features(self) -> int:
        return 2 * self.frequencies + 1

    def family(self, round: Int[Array, ""]) -> Family:
        """The centres of round t."""
        position = self.start + self.drift(round)
        centre = 1 + (self.frequencies - 1) * rise_and_fall(position, 0.0)
        distance = jnp.abs(jnp.arange(1, self.frequencies + 1, dtype=centre.dtype) - centre)
        return Family(
            amplitude=self.amplitude * (1 + 0.5 * jnp.cos(2 * np.pi * position)),
            phase=self.first_phase + 2 * np.pi * position,
            frequencies=jnp.maximum(1 - distance, 0),
        )

    # The problem as methods see it.

    def problem(self) -> Problem:
        pull, phi = self.pull, self.phi
        return Problem(
            inner_loss=lambda outer, v, x, y: (v - y) ** 2 + pull * (v - outer @ phi(x.place)) ** 2,
            outer_loss=lambda outer, v, x, y: (v - y) ** 2,  # noqa: ARG005
        )

    def phi(self, place: Float[Array, ""]) -> Float[Array, " features"]:
        """ψ(z): the Fourier features of one place."""
        return fourier(place, self.features)

    def source(self) -> FunctionSource:
        return FunctionSource(self.draw)

    def draw(self, round: Int[Array, ""], key: PRNGKeyArray) -> Data:
        """New tasks, with samples to learn from (inner) and to evaluate with (outer)."""
        keys = jax.random.split(key, 5)
        family, shape = self.family(round), (self.tasks,)
        amplitude = family.amplitude + self.amplitude_spread * jax.random.uniform(keys[0], shape, minval=-1.0)
        phase = family.phase + self.phase_spread * jax.random.uniform(keys[1], shape, minval=-1.0)
        frequency = 1 + jax.random.categorical(keys[2], jnp.log(family.frequencies), shape=shape)

        def samples(count: int, key: PRNGKeyArray) -> Samples:
            key_place, key_noise = jax.random.split(key)
            task = jnp.repeat(jnp.arange(self.tasks), count)
            place = jax.random.uniform(key_place, task.shape)
            angle = 2 * np.pi * frequency[task].astype(place.dtype) * place + phase[task]
            noise = self.noise * jax.random.normal(key_noise, task.shape)
            return Samples(TaskInput(task, place), amplitude[task] * jnp.sin(angle) + noise)

        return Data(samples(self.samples, keys[3]), samples(self.batch, keys[4]))

    def initial(self) -> Float[Array, " features"]:
        return jnp.zeros(self.features)

    def linear(self) -> Linear:
        """Coefficients for every task; with a small ridge, because the samples of a task may be few."""
        tasks, phi = self.tasks, self.phi
        return Linear(lambda x: jnp.outer(jax.nn.one_hot(x.task, tasks), phi(x.place)).ravel(), ridge=1e-3)

    def inner(self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None) -> Network:
        """`linear()` trained by gradient descent: the curvature is 2(1 + κ)/tasks in all directions."""
        rate = 0.2 * self.tasks / (1 + self.pull) if rate is None else rate
        return trained(self.linear(), rate=rate, steps=steps, batch_size=batch_size, adaptive=False)

    # The exact answer.

    def objective(self, round: Int[Array, ""], outer: Float[Array, " features"]) -> Float[Array, ""]:
        second_moment = (self.family(round).amplitude ** 2 + self.amplitude_spread**2 / 3) / 2
        mean = self.best(round)
        variance = second_moment - jnp.sum(mean**2)
        return self.gap(round, outer) + (self.pull / (1 + self.pull)) ** 2 * variance + self.noise**2

    def best(self, round: Int[Array, ""]) -> Float[Array, " features"]:
        """E c, the mean of the tasks' coefficients."""
        amplitude, phase, frequencies = self.family(round)
        narrowing = jnp.sinc(jnp.asarray(self.phase_spread, phase.dtype) / np.pi)  # E cos of the deviation, sin(b)/b
        waves = amplitude * narrowing / np.sqrt(2) * jnp.stack([jnp.sin(phase), jnp.cos(phase)])
        return jnp.append(jnp.zeros(1, phase.dtype), jnp.outer(frequencies, waves))

    def gap(self, round: Int[Array, ""], outer: Float[Array, " features"]) -> Float[Array, ""]:
        """(κ/(1 + κ))² ‖λ − E c‖², without the difference of two large numbers."""
        return (self.pull / (1 + self.pull)) ** 2 * jnp.sum((outer - self.best(round)) ** 2)

    def smoothness(self, rounds: int) -> Number:
        """2(κ/(1 + κ))², exactly."""
        del rounds
        return 2 * (self.pull / (1 + self.pull)) ** 2
