"""The fixed experts: ridge regressions under a ladder of forgetting rates, refitted after every row."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.stream.learner.ladder import FAMILIES, ladder
from smoothfbo.stream.learner.recursive import predict_row_by_row


def ladder_predictions(
    means: Float[Array, "rates size size"],
    counts: Float[Array, " rates"],
    inputs: Float[Array, "rows p"],
    goal: Float[Array, "rows outputs"],
    previous: Float[Array, "rows outputs"],
    known: Float[Array, " rows"],
) -> Float[Array, "experts rows outputs"]:
    """Predictions in standard units, refitted after every row whose target is known.

    `means` are the second moments of (inputs, and every target with its last known value) under every rate, and
    `counts` their rows.
    """
    chosen = jnp.asarray(ladder(len(counts)))
    sums = means[chosen] * counts[chosen][:, None, None]
    p = inputs.shape[1]
    moments = sums[:, :p, :p]
    level = sums[:, p::2, :p]
    difference = level - sums[:, p + 1 :: 2, :p]
    eye = jnp.eye(p, dtype=inputs.dtype)
    matrices = jnp.concatenate([moments + family.ridge * eye for family in FAMILIES])
    products = jnp.concatenate([difference if family.of_difference else level for family in FAMILIES])
    offsets = jnp.stack([previous * float(family.of_difference) for family in FAMILIES])
    offsets = jnp.repeat(offsets, len(chosen), axis=0)

    def predict(matrix: Array, product: Array, offset: Array) -> Array:
        return offset + predict_row_by_row(matrix, product, inputs, goal - offset, known)

    return jax.vmap(predict)(matrices, products, offsets)
