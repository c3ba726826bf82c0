"""Weighted ridge regression in any dimension, with its exact hypergradients.

    inner   ½ mean_i exp(λ_i)(x_iᵀθ − y_i)² + ρ/2 ‖θ‖²      d parameters θ, one log weight λ_i for each of n samples
    outer   ½ mean_j (x_jᵀθ − y_j)²                         on other samples

With K = XXᵀ all exact values are those of n × n systems, so they cost little whatever d is.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SAMPLES = 64  # of each kind
RIDGE, STEP = 0.01, 2.0  # the largest curvature is about 0.5 for every d
TOLERANCE, MAX_STEPS, TERMS, STEPS = 1e-6, 100, 20, 20
FAMILIES = ("conjugate gradients", "Neumann series", "unrolled")
DRAWS = 20  # a quarter beyond LARGE
LARGE = 10_000


class Draw(NamedTuple):
    y: Any
    y_outer: Any
    log_weights: Any
    solution: Any  # the minimiser θ̂ of the inner problem


class Ridge(NamedTuple):
    """The problem in one dimension, with several draws of all but the inputs: errors are means over them."""

    x: Any
    x_outer: Any
    draws: Sequence[Draw]


def make(dimension: int) -> tuple[Ridge, list[dict[str, np.ndarray]]]:
    """Data whose curvature does not depend on d, feature j having the size j^(−3/4); and the exact hypergradients."""
    random = np.random.default_rng(dimension)
    sizes = np.arange(1, dimension + 1, dtype=np.float32) ** -0.75
    sizes /= np.linalg.norm(sizes)
    x, x_outer = (random.standard_normal((SAMPLES, dimension), np.float32) for _ in range(2))
    x *= sizes
    x_outer *= sizes
    kernel, across = np.zeros((2, SAMPLES, SAMPLES))
    for block, block_outer in zip(_columns(x), _columns(x_outer), strict=True):
        kernel += block @ block.T
        across += block @ block_outer.T
    draws, coefficients, values = [], [], []
    for _ in range(DRAWS if dimension <= LARGE else DRAWS // 4):
        truth = 3 * random.standard_normal(dimension, np.float32)
        y, y_outer = (each @ truth + 0.3 * random.standard_normal(SAMPLES, np.float32) for each in (x, x_outer))
        log_weights = 0.5 * random.standard_normal(SAMPLES, np.float32)
        wide = (each.astype(np.float64) for each in (y, y_outer, log_weights))
        coefficient, value = exact(kernel, across, *wide)
        draws.append(Draw(y, y_outer, log_weights, None))
        coefficients.append(coefficient)
        values.append(value)
    solutions = np.concatenate([np.stack(coefficients) @ block for block in _columns(x)], axis=1).astype(np.float32)
    return Ridge(x, x_outer, [d._replace(solution=each) for d, each in zip(draws, solutions, strict=True)]), values


def exact(
    kernel: np.ndarray, across: np.ndarray, y: np.ndarray, y_outer: np.ndarray, log_weights: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """a in θ̂ = Xᵀa, and what each family would return without rounding, in double precision.

    Let w = exp(λ)/n be the weights, A = K diag(w) + ρI and b = X∇_θL_out. The implicit hypergradient is −w(Xθ̂ − y)u
    with u = A⁻¹b, or u = η Σ_{k<terms} (I − ηA)^k b; unrolled it is −η Σ_m w(Xθ_m − y) (I − ηA)^(steps−1−m) b.
    """
    weights = np.exp(log_weights) / SAMPLES
    curvature = kernel * weights + RIDGE * np.eye(SAMPLES)
    decay = np.eye(SAMPLES) - STEP * curvature

    coefficients = np.linalg.solve(curvature.T, weights * y)
    slope = across @ (across.T @ coefficients - y_outer) / SAMPLES
    pull = -weights * (kernel @ coefficients - y)
    series = STEP * sum(np.linalg.matrix_power(decay, power) for power in range(TERMS)) @ slope

    path = [np.zeros(SAMPLES)]  # θ_m = Xᵀ path[m]
    for _ in range(STEPS):
        path.append((1 - STEP * RIDGE) * path[-1] - STEP * weights * (kernel @ path[-1] - y))
    back = across @ (across.T @ path[-1] - y_outer) / SAMPLES
    unrolled = np.zeros(SAMPLES)
    for position in reversed(path[:-1]):
        unrolled -= STEP * weights * (kernel @ position - y) * back
        back = decay @ back
    values = (pull * np.linalg.solve(curvature, slope), pull * series, unrolled)
    return coefficients, dict(zip(FAMILIES, values, strict=True))


def _columns(matrix: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks of columns in double precision, one at a time."""
    return (matrix[:, first : first + 50_000].astype(np.float64) for first in range(0, matrix.shape[1], 50_000))


def save(path: Path, ridge: Ridge) -> None:
    """The inputs and the first draw."""
    np.savez(path, x=ridge.x, x_outer=ridge.x_outer, **ridge.draws[0]._asdict())


def load(path: Path) -> Ridge:
    with np.load(path, allow_pickle=False) as file:
        return Ridge(file["x"], file["x_outer"], [Draw(*(file[name] for name in Draw._fields))])
