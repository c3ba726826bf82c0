"""A non-linear expert in closed form: recursive least squares on random Fourier features.

    φ(x) = (z, 1, √2 cos(Ωz + b)),   z = standardised x,   Ω sparse and normal, b uniform on [0, 2π)

(Rahimi & Recht, NeurIPS 2007). A row of Ω uses two columns only, so that functions of two columns are met even among
many that do not matter (Hashemi, Schaeffer, Shi, Topcu, Tran & Ward, 2023); half of the rows leave out the lags of the
target.

They learn what a linear expert leaves over, and the difference from the last known value.

The inverse P = (Σ ρ^age φφᵀ + λI)⁻¹ is kept, and a block is added by Woodbury's identity. Forgetting would let the
ridge λI fade where the data do not vary, so every block adds a few rows √c·e_j with target 0, in turns: on average
they restore what ρ takes from λI.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from smoothfbo.algebra import transposed_product
from smoothfbo.stream.learner.recursive import eliminate

COUNT = 64
RIDGE = 10.0
CLIP = 3.0  # of z inside the cosine
MEMORY = 128  # blocks
RESTORED = 4  # entries of λI that a block restores


class RandomFeatures(NamedTuple):
    """P and the coefficients; `blocks` says whose turn it is."""

    inverse: Float[Array, "size size"]
    coefficients: Float[Array, "goals size"]
    blocks: Int[Array, ""]


class Expanded(NamedTuple):
    """The fits to random features and, where there are any, to products of columns."""

    waves: RandomFeatures
    products: RandomFeatures | None


def draw(columns: int, lags: tuple[int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Ω and b; numbers, not traced."""
    random = np.random.default_rng(seed)
    others = [j for j in range(columns) if not lags[0] <= j < lags[1]] or list(range(columns))
    matrix = np.zeros((COUNT, columns))
    for i in range(COUNT):
        choice = others if i % 2 == 0 else list(range(columns))
        chosen = random.choice(choice, size=min(2, len(choice)), replace=False) if choice else []
        matrix[i, chosen] = random.normal(size=len(chosen))
    return matrix, random.uniform(0, 2 * np.pi, COUNT)


def empty_random_features(columns: int, goals: int) -> RandomFeatures:
    return empty_fit(columns + 1 + COUNT, goals)


def empty_fit(size: int, goals: int) -> RandomFeatures:
    return RandomFeatures(jnp.eye(size) / RIDGE, jnp.zeros((goals, size)), jnp.zeros((), jnp.int32))


def expand(inputs: Float[Array, "rows p"], matrix: np.ndarray, phases: np.ndarray) -> Float[Array, "rows size"]:
    """φ of standardised rows whose last column is the constant."""
    angles = jnp.clip(inputs[:, :-1], -CLIP, CLIP) @ jnp.asarray(matrix.T) + jnp.asarray(phases)
    return jnp.concatenate([inputs, jnp.sqrt(2.0) * jnp.cos(angles)], axis=1)


def recur(
    state: RandomFeatures,
    rows: Float[Array, "rows size"],
    goals: Float[Array, "rows goals"],
    known: Float[Array, " rows"],
) -> tuple[RandomFeatures, Float[Array, "rows goals"], Float[Array, "rows goals"]]:
    """The state with a block more; its rows predicted one after the other; and predicted by the past alone.

    With φ the rows and K = φP, elimination of [I + φPφᵀ | K | y − φθ] leaves u_r, pivots d_r and innovations ε_r:
    P ← P − Σ_r u_r u_rᵀ/d_r and θ ← θ + Σ_r u_r ε_r/d_r.
    """
    size, count = state.inverse.shape[0], rows.shape[0]
    retention = 1 - 1 / MEMORY
    goals = goals * known[:, None]
    turn = (state.blocks * RESTORED + jnp.arange(RESTORED, dtype=jnp.int32)) % size
    amount = jnp.sqrt(RIDGE * (1 - retention) * size / RESTORED)
    restoring = amount * (turn[:, None] == jnp.arange(size, dtype=jnp.int32)).astype(rows.dtype)
    together = jnp.concatenate([rows, restoring])
    weights = jnp.concatenate([known, jnp.ones(RESTORED, rows.dtype)])
    targets = jnp.concatenate([goals, jnp.zeros((RESTORED, goals.shape[1]), goals.dtype)])
    inverse = state.inverse / retention
    by_past = together @ state.coefficients.T
    gain = together @ inverse
    square = gain @ together.T + jnp.eye(len(weights), dtype=rows.dtype)
    done = eliminate(jnp.concatenate([square, gain, -by_past], axis=1), weights, targets)
    directions, ahead = done.rest[:, :size], -done.rest[:, size:]
    innovations = targets - ahead
    scaled = directions * (weights / done.pivots)[:, None]
    inverse = inverse - transposed_product(scaled, directions)
    coefficients = state.coefficients + transposed_product(innovations, scaled)
    after = RandomFeatures((inverse + inverse.T) / 2, coefficients, state.blocks + 1)
    # Every pivot is 1 + xᵀPx of some P ≥ 0. Where rounding has spoilt that, or a value was not finite, begin again.
    is_sound = jnp.all(done.pivots > 0.5) & jnp.all(jnp.isfinite(after.coefficients))
    fresh = empty_fit(size, goals.shape[1])
    after = optax.tree.where(is_sound, after, fresh)
    return after, ahead[:count], by_past[:count]
