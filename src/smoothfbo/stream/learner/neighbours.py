"""Classes of similar rows: two experts that look at the nearest of the last rows.

    p_c(x) = Σ_i w_i 1[y_i = c] / Σ_i w_i,   w_i = 1/(0.2 + d_i²/d_k²),   d_i² = Σ_j m_j² (x_j − x_ij)²

over the k rows with the smallest d_i, in standard units (Fix & Hodges, 1951; weights that fall with the distance:
Dudani, IEEE Transactions on Systems, Man, and Cybernetics 6, 1976). For the first expert all m_j are 1. For the second

    m_j² = 0.05² + between_j/variance_j,   between_j = Σ_c cov(x_j, 1[y = c])²/P(c),

the share of the variance of a column that lies between the classes: columns that tell nothing about them hardly count.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

COUNTS = (3, 7)  # k of the two
NEARNESS = 0.2
SMALLEST = 0.05  # of m


def column_weights(moments: Float[Array, "size size"], p: int) -> Float[Array, " columns"]:
    """m, from the means of zzᵀ with z = (x, 1, and the indicator of every class but the first with its last one)."""
    mean, shares, joint = moments[p - 1, : p - 1], moments[p - 1, p::2], moments[p::2, : p - 1]
    shares = jnp.concatenate([1 - jnp.sum(shares, keepdims=True), shares])
    joint = jnp.concatenate([mean[None] - jnp.sum(joint, axis=0, keepdims=True), joint])
    covariances = joint - shares[:, None] * mean
    # A class without rows has no covariance either.
    between = jnp.sum(covariances**2 / jnp.where(shares > 0, shares, 1)[:, None], axis=0)
    variance = jnp.diagonal(moments)[: p - 1] - mean**2
    return jnp.sqrt(SMALLEST**2 + jnp.where(variance > 0, between / jnp.where(variance > 0, variance, 1), 0))


def class_shares(
    rows: Float[Array, "rows columns"],
    others: Float[Array, "others columns"],
    classes: Float[Array, "others outputs"],
    counts: Bool[Array, "rows others"],
    neighbours: int,
) -> Float[Array, "rows outputs"]:
    """p of every row among the others that count for it; NaN where none does. Of equally near ones the last counts."""
    squares = jnp.sum(rows**2, axis=1)[:, None] - 2 * rows @ others.T + jnp.sum(others**2, axis=1)
    distances, indices = _nearest(jnp.where(counts, jnp.maximum(squares, 0), jnp.inf), neighbours)
    exists = jnp.isfinite(distances)
    furthest = jnp.max(jnp.where(exists, distances, 0), axis=1, keepdims=True)
    nearness = 1 / (NEARNESS + distances / jnp.where(furthest > 0, furthest, 1))
    weights = jnp.where(exists, nearness, 0)
    return jnp.einsum("rk,rko->ro", weights, classes[indices]) / jnp.sum(weights, axis=1, keepdims=True)


def _nearest(
    distances: Float[Array, "rows others"], count: int
) -> tuple[Float[Array, "rows count"], Int[Array, "rows count"]]:
    """The smallest of every row and where they stand. For so few, one after the other is far faster than a sort."""
    places = jnp.arange(distances.shape[1], dtype=jnp.int32)
    found = []
    for _ in range(count):
        smallest = jnp.min(distances, axis=1)
        place = jnp.max(jnp.where(distances == smallest[:, None], places, -1), axis=1)
        distances = jnp.where(places == place[:, None], jnp.inf, distances)
        found.append((smallest, place))
    values, indices = zip(*found, strict=True)
    return jnp.stack(values, axis=1), jnp.stack(indices, axis=1)
