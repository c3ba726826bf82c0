"""What every method is measured against, from the truth alone: the best λ of every round, a λ that never moves, and
the best constant λ in hindsight."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PyTree

from smoothfbo.algebra import norm
from smoothfbo.studies.arena.entries import ArenaProblem

STEPS = 150  # of the search for the best constant λ: four times as many change its gap by less than 0.1 %
STARTS = 3  # lengths of its first step


class Constants(NamedTuple):
    """F_t at the recorded rounds; axes (seed, record)."""

    still: Any  # at the initial λ
    constant: Any  # at the λ with the smallest mean over these rounds
    late: Any  # at the λ with the smallest mean over their second half


def smallest(
    problem: ArenaProblem, seeds: np.ndarray, rounds: np.ndarray, knobs: Mapping[str, np.ndarray]
) -> np.ndarray:
    """min F_t of every seed with its knobs; axes (seed, record). One after the other: a solver may hold anything."""
    times = jnp.asarray(rounds, jnp.int32)

    def one(seed: Array, knobs: dict[str, Array]) -> Array:
        testbed = problem.testbed(seed, **knobs)
        return jax.lax.map(lambda round: testbed.objective(round, testbed.best(round)), times)

    numbers = jnp.asarray(seeds, jnp.uint32), {name: jnp.asarray(values) for name, values in knobs.items()}
    return np.asarray(jax.jit(lambda *each: jax.lax.map(lambda lane: one(*lane), each))(*numbers), float)


def constants(problem: ArenaProblem, seeds: np.ndarray, rounds: np.ndarray) -> Constants:
    """What a λ that never moves achieves, at the start and at its best."""
    times = jnp.asarray(rounds, jnp.int32)

    def one(seed: Array) -> Constants:
        testbed = problem.testbed(seed)

        def along(outer: PyTree) -> Array:
            return jax.vmap(testbed.objective, in_axes=(0, None))(times, outer)

        initial = testbed.project(testbed.initial())
        steps = STEPS // problem.stride  # where the exact gradient is dear; 30 are enough there
        halves = times, times[in_second_half(rounds)]
        every, late = (best_constant(testbed, each, problem.lengths, steps) for each in halves)
        return Constants(along(initial), along(every), along(late))

    found = jax.jit(lambda seeds: jax.lax.map(one, seeds))(jnp.asarray(seeds, jnp.uint32))
    return Constants(*(np.asarray(values, float) for values in found))


def in_second_half(rounds: np.ndarray) -> np.ndarray:
    """Whether a recorded round belongs to the second half."""
    return rounds >= (rounds[-1] + rounds[1]) / 2


def best_constant(testbed: Any, times: Int[Array, " rounds"], lengths: tuple[float, float], steps: int) -> PyTree:
    """argmin over λ of the mean of F_t(λ), by projected descent along its exact gradient g:

        λ ← Proj(λ − s/√k · g/‖g‖),  k = 1, 2, …

    from several first lengths s; the best point that any of them meets.
    """
    dtype = jnp.result_type(float)
    initial = testbed.project(testbed.initial())

    def mean(function: Callable[..., PyTree], outer: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), jax.vmap(function, in_axes=(0, None))(times, outer))

    def descend(length: Array) -> tuple[PyTree, Array]:
        def step(carry: tuple[PyTree, PyTree, Array], k: Array) -> tuple[tuple[PyTree, PyTree, Array], None]:
            outer, best, lowest = carry
            value, gradient = mean(testbed.objective, outer), mean(testbed.gradient, outer)
            best, lowest = optax.tree.where(value < lowest, outer, best), jnp.minimum(lowest, value)
            size = norm(gradient)
            factor = length / jnp.sqrt(k) / jnp.where(size > 0, size, 1)
            moved = jax.tree.map(lambda leaf, slope: leaf - factor.astype(leaf.dtype) * slope, outer, gradient)
            return (testbed.project(moved), best, lowest), None

        start = initial, initial, jnp.asarray(jnp.inf, dtype)
        (_, best, lowest), _ = jax.lax.scan(step, start, 1 + jnp.arange(steps, dtype=dtype))
        return best, lowest

    points, values = jax.vmap(descend)(jnp.asarray(np.geomspace(*lengths, STARTS), dtype))
    return jax.tree.map(lambda leaf: leaf[jnp.argmin(values)], points)
