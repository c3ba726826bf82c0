"""Replayed windows: the last w losses at the current λ, with the noise that they came with."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from smoothfbo import regret
from smoothfbo.hypergradients import Oracle
from smoothfbo.online import Online
from smoothfbo.runs import run
from smoothfbo.smoothing import window_average
from smoothfbo.source import AbstractSource, Round
from smoothfbo.studies.theory.statements import Check, Columns, Judge
from smoothfbo.testbeds import DriftingCosine


class Sample(NamedTuple):
    """The sampled objective of one round, f(λ) = −L Σ_j (cosine_j cos λ_j + sine_j sin λ_j) + ⟨noise, λ⟩.

    It is linear in the sample, so the mean of w sampled objectives belongs to the mean of their samples: a window of
    any length is evaluated at the current λ in O(d).
    """

    cosine: Float[Array, "*rounds d"]
    sine: Float[Array, "*rounds d"]
    noise: Float[Array, "*rounds d"]


def sampled_gradient(problem: DriftingCosine, outer: Array, sample: Sample) -> Array:
    """∇f(λ) = L (sin λ · cosine − cos λ · sine) + noise."""
    return problem.curvature * (jnp.sin(outer) * sample.cosine - jnp.cos(outer) * sample.sine) + sample.noise


def draw_sample(problem: DriftingCosine, shifted: Array, round: Int[Array, ""], key: PRNGKeyArray) -> Sample:
    """An unbiased sample of F_t, with noise of one of two kinds.

    Added (`shifted` = 0): ∇f = ∇F_t + ξ, the same ξ at every λ, as `DriftingCosine.oracle` has it. Shifted
    (`shifted` = 1): f(λ) = −L Σ_j cos(λ_j − c_j − η_j)/κ with η_j ~ N(0, s²) and κ = E cos η = exp(−s²/2), so that the
    noise depends on λ. There, with s² = log(1 + σ²/(L²d)), the *uniform* variance is that of the oracle:
    ∇f − ∇F_t is P sin λ − R cos λ, coordinate by coordinate, so E sup_λ‖∇f − ∇F_t‖² ≤ E‖P‖² + E‖R‖² =
    L²d(1/κ² − 1) = σ².
    """
    centre, normal = problem.centre(round), jax.random.normal(key, (problem.dimension,))
    spread = shifted * jnp.log1p(problem.noise**2 / (problem.curvature**2 * problem.dimension))
    place, scale = centre + jnp.sqrt(spread) * normal, jnp.exp(spread / 2)
    added = (1 - shifted) * problem.noise / jnp.sqrt(jnp.asarray(problem.dimension, normal.dtype)) * normal
    return Sample(jnp.cos(place) * scale, jnp.sin(place) * scale, added)


class ReplayedSamples(AbstractSource):
    """Hands out the mean sample of the last w rounds (what is before round 0 is zero, as in the paper)."""

    problem: DriftingCosine
    shifted: Array
    window: Array
    key: PRNGKeyArray
    capacity: int = eqx.field(static=True)

    def draw(self, round: Int[Array, ""]) -> Sample:
        return draw_sample(self.problem, self.shifted, round, jax.random.fold_in(self.key, round))

    def _mean(self) -> optax.GradientTransformation:
        return window_average(self.window, capacity=self.capacity, constant=True)

    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Sample]:
        del key
        first = self.draw(jnp.zeros((), jnp.int32))
        return self._mean().init(first), first

    def __call__(self, state: PyTree, round: Int[Array, ""], learner: Any, key: PRNGKeyArray) -> tuple[PyTree, Round]:
        del learner, key
        mean, state = self._mean().update(self.draw(round), state)
        return state, Round(mean)


def replay(source: ReplayedSamples, step: Array, rounds: int) -> tuple[Array, Array]:
    """λ_{t+1} = λ_t − α (1/w) Σ_{i<w} ∇f_{t−i}(λ_t): all T + 1 iterates, and the T gradients."""
    problem = source.problem
    oracle = Oracle(lambda outer, sample, key: sampled_gradient(problem, outer, sample))  # noqa: ARG005
    final, (outers, gradients) = run(
        Online(None, oracle, optax.sgd(step), monitor=False),
        source,
        problem.initial(),
        rounds=rounds,
        key=source.key,
        record=lambda state, info: (info.outer, info.gradient),  # noqa: ARG005
    )
    return jnp.concatenate([outers, final.learner.outer[None]]), gradients


def replayed_lane(
    problem: DriftingCosine, window: Array, step: Array, key: Array, rounds: int, capacity: int, *, shifted: Any
) -> Columns:
    """Everything that the statements about replay need of one run."""
    source = ReplayedSamples(problem, jnp.asarray(shifted), window, key, capacity)
    everything, gradients = replay(source, step, rounds)
    outers, times = everything[:-1], jnp.arange(rounds)

    def mean(values: PyTree) -> PyTree:
        return regret.window_mean(values, window, capacity=capacity)

    target = regret.window_gradients(problem.gradient, outers, window, capacity=capacity)
    exact = jax.vmap(lambda round: draw_sample(_without_noise(problem), jnp.zeros(()), round, key))(times)
    noises = jax.tree.map(jnp.subtract, mean(jax.vmap(source.draw)(times)), mean(exact))
    now = jax.vmap(problem.gradient)(times, outers)
    square = regret.squared_norms
    noise = jax.vmap(lambda outer, noise: sampled_gradient(problem, outer, noise))(outers, noises)
    error = gradients - target
    return {
        "regret": square(target),
        "regret_one": square(now),
        "proxy": square(gradients),
        "error": square(error),
        "noise": square(noise),
        "tracking": jnp.zeros(rounds),
        "mismatch": square(error - noise),
        "largest_noise": problem.curvature**2 * square((noises.cosine, noises.sine)) + square(noises.noise),
        "ageing": square(now - target),
        "largest_ageing": _largest_ageing(problem, window, now) ** 2,
        "telescoping": regret.telescoping(problem.objective, everything, window, capacity=capacity),
    }


def _without_noise(problem: DriftingCosine) -> DriftingCosine:
    return DriftingCosine(
        problem.dimension, curvature=problem.curvature, noise=0.0, speed=problem.speed, slowing=problem.slowing,
        wobble=problem.wobble,
    )  # fmt: skip


def _largest_ageing(problem: DriftingCosine, window: Array, now: Array) -> Array:
    """(1/w) Σ_{i<m} Σ_{j<i} ω_{t−j} + (1 − m/w)‖∇F_t(λ_t)‖ with m = min(t + 1, w) and ω_t = sup_λ‖∇F_t − ∇F_{t−1}‖.

    It bounds ‖∇F_t(λ_t) − ∇F_{t,w}(λ_t)‖. The inner sums have ω_{t−j} once for every i > j, that is m − 1 − j times.
    """
    rounds = len(now)
    centres = jax.vmap(problem.centre)(jnp.arange(rounds))
    changes = jnp.sqrt(jnp.sum(jnp.sin(jnp.diff(centres, axis=0) / 2) ** 2, axis=1)) * 2 * problem.curvature
    changes = jnp.concatenate([jnp.zeros(1), changes])  # ω_0: nothing came before

    def at(round: Array) -> Array:
        terms = jnp.minimum(round + 1, window)
        lags = round - jnp.arange(rounds)
        counts = jnp.where(lags >= 0, jnp.maximum(terms - 1 - lags, 0), 0).astype(now.dtype)
        filled = terms / window
        return jnp.sum(counts * changes) / window + (1 - filled) * jnp.linalg.norm(now[round])

    return jax.vmap(at)(jnp.arange(rounds))


DESCENT = "replay, descent: BLR ≤ 2/α (2Q + min(V₁, 2TQ/w)) + Γ"


def judge_descent(
    judge: Judge, problem: Any, columns: Columns, constants: dict[str, Any], step: float, window: int
) -> list[Check]:
    """What holds on every path, however the gradients were made."""
    del problem
    rounds, bound, variation = columns["regret"].shape[1], constants["objective_bound"], constants["variation"]
    judge.pathwise(
        "replay, telescoping: Σ F_tw(λ_t) − F_tw(λ_t+1) ≤ 2Q + min(V₁, 2TQ/w)",
        columns["telescoping"],
        2 * bound + min(variation, 2 * rounds * bound / window),
    )
    gamma = columns["error"].sum(axis=1)
    judge.pathwise(DESCENT, columns["regret"].sum(axis=1), _bound(judge, gamma, constants, step, window, rounds))
    return judge.checks


def judge_replay(
    judge: Judge, problem: DriftingCosine, columns: Columns, constants: dict[str, Any], step: float, window: int
) -> list[Check]:
    """What is proved about replayed windows, see docs/concepts/proved.md."""
    rounds, noise = columns["regret"].shape[1], float(problem.noise) ** 2
    total = {name: values.sum(axis=1) for name, values in columns.items() if values.ndim == 2}
    judge.identity("replay: error = noise, no tracking term", columns["mismatch"], columns["proxy"])
    judge_descent(judge, problem, columns, constants, step, window)
    judge.pathwise("replay: ‖e_t‖² ≤ sup_λ‖ζ̄_t(λ)‖²", columns["error"], columns["largest_noise"])
    filled = np.minimum(np.arange(1, rounds + 1), window).sum() / window**2
    judge.equality(
        "replay, variance: E Σ sup_λ‖ζ̄_t(λ)‖² = σ² Σ min(t+1, w)/w²",
        total["largest_noise"],
        np.full(len(total["largest_noise"]), noise * filled),
    )
    error = regret.replayed_error(rounds=rounds, window=window, noise=noise)
    judge.expectation(
        "theorem (replayed): E BLR ≤ 2/α (2Q + min(V₁, 2TQ/w)) + Tσ²/w",
        total["regret"],
        _bound(judge, error, constants, step, window, rounds),
    )
    judge.pathwise(
        "replay, ageing: ‖∇F_t − ∇F_tw‖ ≤ drift within the window", columns["ageing"], columns["largest_ageing"]
    )
    judge.pathwise(
        "replay, each round's own objective: BLR_1 ≤ 2 BLR_w + 2A",
        total["regret_one"],
        2 * total["regret"] + 2 * total["ageing"],
    )
    return judge.checks


def _bound(judge: Judge, error: Any, constants: dict[str, Any], step: float, window: int, rounds: int) -> np.ndarray:
    known = {name: constants[name] for name in ("smoothness", "objective_bound", "variation")}
    return np.asarray(
        regret.descent_bound(error, step=step, rounds=rounds, window=window, allow_large_step=not judge.within, **known)
    )


def compare_with_stored(lanes: Any, pairs: dict[str, str]) -> Iterator[Check]:
    """E BLR_w of replayed windows (left side) against that of stored ones, at every setting: measured, not judged."""
    means = lanes.groupby(["problem", "window", "drift", "step"])["regret"].mean()
    for (problem, window, drift, step), value in means.items():
        if problem in pairs:
            stored = pairs[problem]
            judge = Judge(problem, int(window), float(drift), float(step), within=step <= 1 + 1e-9)
            name = f"measured: E BLR, replayed against stored ({stored} problem)"
            judge.measured(name, value, means[stored, window, drift, step])
            yield from judge.checks
