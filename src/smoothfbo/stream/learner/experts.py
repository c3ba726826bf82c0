"""The fixed experts: ridge regressions under a ladder of forgetting rates, refitted after every row."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.stream.learner.ladder import FAMILIES, ladder
from smoothfbo.stream.learner.recursive import predict_row_by_row


def ladder_predictions(
    means: Float[Array, "memories size size"],
    counts: Float[Array, " memories"],
    inputs: Float[Array, "rows p"],
    goal: Float[Array, "rows outputs"],
    previous: Float[Array, "rows outputs"],
    known: Float[Array, " rows"],
) -> Float[Array, "experts rows outputs"]:
    """Predictions in standard units, refitted after every row whose target is known.

    `means` are the second moments of (inputs, and every target with its last known value) under every rate, then
    since the last change, and `counts` their rows.
    """
    matrices, products = ladder_systems(means, counts, inputs.shape[1])
    offsets = jnp.stack([previous * float(family.of_difference) for family in FAMILIES])
    offsets = jnp.repeat(offsets, len(matrices) // len(FAMILIES), axis=0)
    offsets = jnp.concatenate([offsets, jnp.zeros_like(previous)[None]])

    def predict(matrix: Array, product: Array, offset: Array) -> Array:
        return offset + predict_row_by_row(matrix, product, inputs, goal - offset, known)

    return jax.vmap(predict)(matrices, products, offsets)


def ladder_systems(
    means: Float[Array, "memories size size"], counts: Float[Array, " memories"], p: int
) -> tuple[Float[Array, "experts p p"], Float[Array, "experts outputs p"]]:
    """Second moments of the inputs, ridge included, and their products with what each expert predicts."""
    chosen = jnp.asarray((*ladder(len(counts) - 1), len(counts) - 1))
    sums = means[chosen] * counts[chosen][:, None, None]
    moments = sums[:, :p, :p]
    level = sums[:, p::2, :p]
    difference = level - sums[:, p + 1 :: 2, :p]
    eye = jnp.eye(p, dtype=means.dtype)
    # Of what has come since the last change there is the first family only, which stands last.
    parts = [(family, slice(-1)) for family in FAMILIES] + [(FAMILIES[0], slice(-1, None))]
    matrices = jnp.concatenate([moments[part] + family.ridge * eye for family, part in parts])
    products = jnp.concatenate([(difference if family.of_difference else level)[part] for family, part in parts])
    return matrices, products
