"""What the learner carries from block to block, and what it says about a block."""

from typing import NamedTuple

import jax
from jaxtyping import Array, Bool, Float, PyTree

from smoothfbo.online import State
from smoothfbo.stream.learner.aggregation import Aggregate
from smoothfbo.stream.learner.calibration import Calibrations
from smoothfbo.stream.learner.memory import Memory
from smoothfbo.stream.learner.moments import Moments
from smoothfbo.stream.learner.random_features import Expanded
from smoothfbo.stream.learner.rolling import RawRows, RollingRidge
from smoothfbo.stream.learner.rows import RowMemory
from smoothfbo.stream.learner.since import Since
from smoothfbo.stream.learner.tails import Tails
from smoothfbo.stream.learner.units import TargetRange, Units
from smoothfbo.stream.learner.waiting import Waiting


class LearnerState(NamedTuple):
    """All that the next block needs. `learners` has a first axis: SmoothFBO and, as a reference, FBO."""

    units: Units
    features: Moments
    targets: TargetRange
    tails: Tails
    target: Moments
    memory: Memory
    rows: RowMemory | None  # only for a network
    raw: RawRows
    learners: State
    references: Float[Array, "references outputs coefficients"]
    rolling: RollingRidge | None  # only with references
    calibration: Calibrations | None  # only for classes
    mistakes: Float[Array, " classifiers"] | None  # only for classes
    since: Since
    random: Expanded
    aggregate: Aggregate
    waiting: Waiting | None = None  # only with a delay


class BlockResult(NamedTuple):
    """What came of a block; the methods are the mixture of all experts, then the references.

    - `predictions`: numbers, or indices of classes.
    - `scores`: the mixture's probabilities of every class (regression: the number).
    - `weights`: the w_k of the learned memory for this block.
    - `effects`: of every feature; by how much the prediction rises with one standard deviation of it. In units of the
      target, or of the scores (their length over the classes if there are more than two). Empty for a network.
    - `finite`: False where a round was skipped because its gradient was not finite.
    """

    predictions: Float[Array, "*blocks methods rows"]
    scores: Float[Array, "*blocks rows classes"]
    weights: Float[Array, "*blocks rates"]
    effects: Float[Array, "*blocks columns"]
    finite: Bool[Array, "*blocks"]


def with_more_outputs(old: LearnerState, fresh: LearnerState) -> LearnerState:
    """What was learnt, in the shapes of `fresh`. The mixture begins again: what it weighs are other numbers now.

    So what was predicted of the blocks that wait is not judged; only their fits are.
    """
    waiting = fresh.waiting
    if waiting is not None and old.waiting is not None:
        before, predictions = old.waiting.predictions, waiting.predictions
        predictions = predictions._replace(
            lanes=grow(before.lanes, predictions.lanes), past=grow(before.past, predictions.past)
        )
        waiting = old.waiting._replace(predictions=predictions)
    parts = (state._replace(aggregate=None, waiting=None) for state in (old, fresh))  # pyright: ignore[reportArgumentType]
    return grow(*parts)._replace(aggregate=fresh.aggregate, waiting=waiting)


def grow(old: PyTree, new: PyTree) -> PyTree:
    """The state `new` of a learner with more outputs, filled with what `old` has learnt: outputs stand last."""

    def fill(former: Array, fresh: Array) -> Array:
        if former.shape == fresh.shape:
            return former
        return fresh.at[tuple(slice(0, n) for n in former.shape)].set(former)

    # By position: a network's tree says how many outputs it has, so the two trees differ in that.
    leaves, structure = jax.tree.flatten(new)
    return jax.tree.unflatten(structure, [fill(*pair) for pair in zip(jax.tree.leaves(old), leaves, strict=True)])
