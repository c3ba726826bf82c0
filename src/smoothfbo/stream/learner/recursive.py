"""Ridge regression that is refitted after every row, for a block of rows in one elimination.

Given the second moments M of the past (ridge included), its products g with the targets, and the rows x_1 … x_n of a
block, recursive least squares predicts ŷ_r = x_rᵀθ_{r−1}, where θ_{r−1} is fitted to the past and to the rows before r.
The innovations y_r − ŷ_r are the last column of the triangular form of

    [ M    Xᵀ   g ]
    [ X   −I    y ]

(Gaussian elimination without pivoting; Kailath, Sayed & Hassibi, *Linear Estimation*, 2000, ch. 2 and 12). There are
two steps. Eliminating [ M  Xᵀ  g ] alone leaves pivots D and rows [ R  r ] with X M⁻¹[ Xᵀ  g ] = RᵀD⁻¹[ R  r ]. What
is left of the table is then [ I + RᵀD⁻¹R   RᵀD⁻¹r − y ], up to sign; eliminating its row r updates the rows after it by
the innovation of r. A row whose target is not known is not eliminated. y_r is added when its turn comes and not before:
ŷ_r must not depend on it, not even by rounding.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.algebra import transposed_product

PANEL = (
    4  # columns that are eliminated before the table is cut: few enough for little waste, many for quick compilation
)


class Eliminated(NamedTuple):
    """Row j as it was when it was eliminated: its pivot, and what stands right of the square."""

    pivots: Float[Array, " size"]
    rest: Float[Array, "size columns"]


def eliminate(
    table: Float[Array, "size all"], weights: Float[Array, " size"], late: Float[Array, "size last"] | None = None
) -> Eliminated:
    """T_i ← T_i − w_j (T_ij / T_jj) T_j for all rows i > j, column after column; w_j = 0 leaves row j out.

    `late` is added to the last entries of row j when it is eliminated; what is returned does not contain it.
    """
    size, start = weights.shape[0], 0
    if late is not None:
        before = table.shape[1] - late.shape[1]
        late = jnp.concatenate([jnp.zeros((size, before), table.dtype), late], axis=1)
    pivots, rest = [], []
    while start < size:
        width = min(PANEL, size - start)
        rows, first = jnp.arange(size - start), start

        def step(j: Array, table: Array, rows: Array = rows, first: int = first) -> Array:
            factor = jnp.where(rows > j, table[:, j] * (weights[first + j] / table[j, j]), 0)
            row = table[j] if late is None else table[j] + late[first + j, first:]
            return table - factor[:, None] * row

        table = jax.lax.fori_loop(0, width, step, table)
        pivots.append(jnp.diagonal(table[:width, :width]))
        rest.append(table[:width, size - start :])
        table, start = table[width:, width:], start + width
    return Eliminated(jnp.concatenate(pivots), jnp.concatenate(rest))


def predict_row_by_row(
    moments: Float[Array, "size size"],
    products: Float[Array, "outputs size"],
    rows: Float[Array, "rows size"],
    targets: Float[Array, "rows outputs"],
    known: Float[Array, " rows"],
) -> Float[Array, "rows outputs"]:
    """ŷ_r of all rows; with `known` = 0 everywhere, the predictions X M⁻¹g of the past alone.

    A number between 0 and 1 in `known` is the weight of a row: I becomes 1/weight on the diagonal.
    """
    count, is_known = rows.shape[0], known > 0
    goals = jnp.where(is_known[:, None], targets, 0)
    inner = _inner(moments, products, rows)
    covariance = inner[:, :count] + jnp.diag(1 / jnp.where(is_known, known, 1))
    table = jnp.concatenate([covariance, -inner[:, count:]], axis=1)
    return -eliminate(table, is_known.astype(rows.dtype), goals).rest


def _inner(moments: Array, products: Array, rows: Array) -> Float[Array, "rows columns"]:
    """X M⁻¹[ Xᵀ  g ]."""
    above = jnp.concatenate([moments, rows.T, products.T], axis=1)
    past = eliminate(above, jnp.ones(moments.shape[0], rows.dtype))
    return transposed_product(past.rest[:, : rows.shape[0]] / past.pivots[:, None], past.rest)


class Fit(NamedTuple):
    """M⁻¹ and θ = M⁻¹g."""

    inverse: Float[Array, "*fits size size"]
    coefficients: Float[Array, "*fits size"]


def fit_to_past(moments: Float[Array, "size size"], product: Float[Array, " size"]) -> Fit:
    size = product.shape[0]
    found = _inner(moments, product[None], jnp.eye(size, dtype=moments.dtype))
    return Fit(found[:, :size], found[:, size])
