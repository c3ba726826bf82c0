"""What was predicted of rows whose targets are not known yet: kept block by block until it can be judged.

With a delay of d blocks, block i − d becomes known when block i is full, so d blocks wait at most; they stand in a ring
of d slots. It holds predictions only: a target never enters it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from smoothfbo.stream.learner.late import LateMixture


class BlockPrediction(NamedTuple):
    """What was predicted of a block.

    - `lanes`: by the fit under the learned memory, and by the unsmoothed one; `past`: the second moments that the fits
      were made of, as in `Memory.decayed`.
    - `experts`: NaN where one had no part in the mixture; `advice`: by the parts of the mixture. Only with a delay.
    - `outputs`: of which probabilities were made; `classes`: what every classifier predicted. Only for classes.
    - `begun`: whether anything had been learnt by then, in the shapes of now; else there is nothing to judge.
    """

    lanes: Float[Array, "*slots lanes rows outputs"]
    past: Float[Array, "*slots rates kept kept"]
    experts: Float[Array, "*slots experts rows outputs"]
    advice: LateMixture | None
    outputs: Float[Array, "*slots predictors rows outputs"] | None
    classes: Float[Array, "*slots classifiers rows"] | None
    begun: Bool[Array, "*slots"]


class Waiting(NamedTuple):
    """What was predicted of block i in slot i mod length, and how many blocks were kept so far.

    `outdated`: how many of the blocks that are learnt next are not to judge the mixture: see `Mixture.trust_late`.
    """

    predictions: BlockPrediction
    blocks: Int[Array, ""]
    outdated: Int[Array, ""]


def empty_waiting(prediction: BlockPrediction, length: int) -> Waiting:
    """An empty ring for what looks like `prediction`."""
    slots = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), prediction)
    return Waiting(slots, *jnp.zeros((2,), jnp.int32))


def prediction_of(waiting: Waiting, block: Int[Array, ""]) -> BlockPrediction:
    """What was predicted of block `block`, counted from 0."""
    slot = block % waiting.predictions.begun.shape[0]
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, slot, keepdims=False), waiting.predictions)


def put(waiting: Waiting, prediction: BlockPrediction, is_full: Bool[Array, ""]) -> Waiting:
    """One block more, if it is full: a block that is not will be predicted again."""
    slot = waiting.blocks % waiting.predictions.begun.shape[0]

    def fill(all: Array, new: Array) -> Array:
        old = jax.lax.dynamic_index_in_dim(all, slot, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(all, jnp.where(is_full, new, old), slot, 0)

    return waiting._replace(
        predictions=jax.tree.map(fill, waiting.predictions, prediction),
        blocks=waiting.blocks + is_full.astype(jnp.int32),
    )
