"""The rounds of the learner as one compiled program: predict a block, then learn from it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from smoothfbo.stream.learner import problem as bilevel
from smoothfbo.stream.learner.aggregation import Aggregate
from smoothfbo.stream.learner.blocks import Blocks
from smoothfbo.stream.learner.mixture import Mixture
from smoothfbo.stream.learner.panel import Panel
from smoothfbo.stream.learner.random_features import Expanded
from smoothfbo.stream.learner.since import Since, has_begun_again, has_lasted
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import BlockResult, LearnerState
from smoothfbo.stream.learner.views import Views, classes_of
from smoothfbo.stream.learner.waiting import BlockPrediction, empty_waiting, prediction_of, put
from smoothfbo.stream.rows import Rows


class Layers(NamedTuple):
    """What learns row by row, after the targets of a block."""

    since: Since
    random: Expanded
    aggregate: Aggregate
    mistakes: Float[Array, " classifiers"] | None


class PredictedBlock(NamedTuple):
    """What was predicted for a block, and what its targets make of the layers that learn row by row."""

    prediction: BlockPrediction
    after: Layers
    result: BlockResult


class Rounds:
    """Two functions of a specification, each one compiled program: `init` and `advance`.

    Fits learn block by block (`Blocks`). On top of them experts say what they think of each row (`Panel`), and their
    opinions are mixed (`Mixture`); these two also learn row by row. With a delay they learn from predictions of
    that time, which wait in the state until the targets are known.
    """

    def __init__(self, spec: Specification):
        self.spec, self.views = spec, Views(spec)
        self.blocks = Blocks(spec, self.views)
        self.panel, self.mixture = Panel(spec, self.views), Mixture(spec, self.views)
        self.init: Callable[[], LearnerState] = jax.jit(self._init)
        self.advance: Callable[..., tuple[LearnerState, BlockResult]] = jax.jit(self._advance, donate_argnums=0)

    def _init(self) -> LearnerState:
        random, weights = self._begin_again()
        state = LearnerState(
            **self.blocks.init(),
            calibration=self.mixture.no_calibration(),
            mistakes=self.mixture.no_mistakes(),
            since=self.panel.no_changes(),
            random=random,
            aggregate=weights,
        )
        if not self.spec.delay:
            return state
        block = Rows(jnp.zeros((self.spec.rows, self.spec.features)), *jnp.zeros((2, self.spec.rows)))
        prediction = jax.eval_shape(lambda: self._predict(state, block).prediction)
        return state._replace(waiting=empty_waiting(prediction, self.spec.delay))

    def _begin_again(self) -> tuple[Expanded, Aggregate]:
        return self.panel.no_random_features(), self.mixture.no_weights()

    def _advance(
        self,
        state: LearnerState,
        blocks: Rows,
        late: Rows | None,
        count: Int[Array, ""],
        learn: Int[Array, ""],
        keep: Int[Array, ""],
        weights: Float[Array, "blocks rows"] | None = None,
    ) -> tuple[LearnerState, BlockResult]:
        """Predict the first `count` blocks one after the other; after each, learn from one, `learn` times.

        `late` are the blocks that are learnt, and `keep` says of how many blocks the predictions are kept until then;
        None if they are those that are predicted, whose rows may then have `weights`. There is room for more; how many
        are used is traced, so one program serves long files and single rows, and gives the same bits for both.
        """

        def one(index: Array, carry: tuple[LearnerState, BlockResult]) -> tuple[LearnerState, BlockResult]:
            state, results = carry
            block = _block(blocks, index)
            weight = None if weights is None else jax.lax.dynamic_index_in_dim(weights, index, keepdims=False)
            predicted = self._predict(state, block, weight)

            waiting, state = state.waiting, state._replace(waiting=None)
            outdated = None if waiting is None else waiting.outdated

            def learn_one() -> tuple[LearnerState, Bool[Array, ""], Int[Array, ""] | None]:
                if late is None or waiting is None:
                    return *self._learn(state, block, predicted.prediction, predicted.after, weight), None
                return self._learn_late(
                    state, _block(late, index), prediction_of(waiting, state.memory.blocks), waiting.outdated
                )

            state, finite, outdated = jax.lax.cond(
                index < learn, learn_one, lambda: (state, jnp.asarray(True), outdated)
            )
            if waiting is not None:  # after learning: its place is that of the block that was learnt
                waiting = put(waiting._replace(outdated=outdated), predicted.prediction, index < keep)
                state = state._replace(waiting=waiting)
            result = predicted.result._replace(finite=finite)
            results = jax.tree.map(
                lambda all, new: jax.lax.dynamic_update_index_in_dim(all, new, index, 0), results, result
            )
            return state, results

        shapes = jax.eval_shape(lambda: self._predict(state, jax.tree.map(lambda leaf: leaf[0], blocks)).result)
        room = blocks.target.shape[0]
        empty = jax.tree.map(lambda leaf: jnp.zeros((room, *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, count, one, (state, empty))

    def _predict(self, state: LearnerState, block: Rows, weight: Float[Array, " rows"] | None = None) -> PredictedBlock:
        """Predict the rows of a block one after the other; without a delay, each by the targets before it."""
        spec, views = self.spec, self.views
        begun = state.memory.blocks > 0
        counts = self._counts(state, block, begun & (spec.delay == 0))
        inputs = views.inputs(state, block.features)
        mean, spread = views.units_of_target(state)
        previous = views.previous(state, block.previous)
        # Before anything was learnt, every method says what it saw last.
        lanes = jnp.where(begun, self.blocks.lanes(state, inputs) * spread + mean, previous)
        opinions = self.panel.predict(state, block, inputs, lanes[:1], counts, weight)
        experts = jnp.where(begun, opinions.experts, previous)
        mixed = self.mixture.mix(state, block, experts, counts)
        others = experts[:0]
        if spec.with_references:
            references = self.blocks.references(state, block.features, inputs, mean, spread)
            others = jnp.where(begun, jnp.concatenate([lanes[1:], references]), previous)
        shown = len(experts) if spec.with_references else 0
        if spec.is_classification:
            voted = self.mixture.vote_on(state, block, experts, mixed.outputs, counts)
            scores, outputs, classes, mistakes = voted.probabilities, mixed.outputs, voted.classes, voted.mistakes
            predictions = jnp.concatenate([voted.predicted[None], classes[:shown], classes_of(others)])
            predictions = jnp.where(begun, predictions, jnp.where(jnp.isnan(block.previous), 0, block.previous))
        else:
            scores, outputs, classes, mistakes = mixed.outputs[0], None, None, None
            predictions = jnp.concatenate([scores[None], experts[:shown], others])[:, :, 0]
        # Before the first target nothing can be predicted.
        nothing = jnp.isnan(block.previous) & ~begun
        result = BlockResult(
            predictions=jnp.where(nothing, jnp.nan, predictions),
            scores=scores,
            weights=bilevel.weights(state.learners.outer[0]),
            effects=self.blocks.effects(state),
            finite=jnp.asarray(True),
        )
        with_part = self.mixture.without_lost(state, block, experts)
        prediction = BlockPrediction(lanes, state.memory.decayed, with_part, mixed.advice, outputs, classes, begun)
        return PredictedBlock(prediction, Layers(opinions.since, opinions.random, mixed.aggregate, mistakes), result)

    def _counts(self, state: LearnerState, block: Rows, is_evaluated: Bool[Array, ""]) -> Float[Array, " rows"]:
        """Which rows may be learnt from."""
        counts = self.views.is_plausible(state, block.target) & self.views.is_last_plausible(state, block.previous)
        return (counts & is_evaluated).astype(block.target.dtype)

    def _learn_late(
        self, state: LearnerState, block: Rows, prediction: BlockPrediction, outdated: Int[Array, ""]
    ) -> tuple[LearnerState, Bool[Array, ""], Int[Array, ""]]:
        """Learn a block that waited, by what was predicted of it at the time, unless that is `outdated`."""
        counts, is_outdated = self._counts(state, block, prediction.begun), outdated > 0
        since, random = self.panel.judge(state, block, prediction.experts, counts, is_outdated)
        prediction = prediction._replace(begun=prediction.begun & ~is_outdated)
        weights, mistakes = self.mixture.judge(state, block, prediction, jnp.where(is_outdated, 0, counts))

        def look() -> tuple[Aggregate, Bool[Array, ""]]:
            present = self._present(state, block)
            begun = self._present(state._replace(since=self.panel.no_changes()), block, counts)
            again = self.mixture.since_change(begun)
            is_new = self.panel.is_new(block, present, again, counts)
            is_other = is_new | self.panel.has_changed(block, present, counts)
            # The new beginning is judged where it has seen half of the block, or is taken for the shortest memory.
            again = jnp.where(is_new, again, self.mixture.last_block(present))
            judged = jnp.where(is_new & ~self.panel.is_second_half, 0, counts)
            trusted = self.mixture.trust_late(state, block, present, again, judged)
            return optax.tree.where(is_other, trusted, weights), is_other

        is_possible = has_lasted(state.since, self.spec.constant, self.spec.rows)
        is_possible &= self.mixture.is_surprised(state, block, prediction, counts)
        weights, is_other = jax.lax.cond(is_possible, look, lambda: (weights, jnp.asarray(False)))
        since = jax.tree.map(lambda leaf: jnp.where(is_other, 0, leaf), since)
        outdated = jnp.where(is_other, self.spec.delay, jnp.maximum(outdated - 1, 0))
        return *self._learn(state, block, prediction, Layers(since, random, weights, mistakes)), outdated

    def _present(
        self, state: LearnerState, block: Rows, counts: Float[Array, " rows"] | None = None
    ) -> Float[Array, "experts rows outputs"]:
        """What all experts, as they are now, say of a block whose targets they do not know; or if they follow those
        that count, row by row."""
        inputs = self.views.inputs(state, block.features)
        mean, spread = self.views.units_of_target(state)
        learned = self.blocks.lanes(state, inputs)[:1] * spread + mean
        counts = jnp.zeros(self.spec.rows) if counts is None else counts
        return self.panel.predict(state, block, inputs, learned, counts).experts

    def _learn(
        self,
        state: LearnerState,
        block: Rows,
        prediction: BlockPrediction,
        after: Layers,
        weight: Float[Array, " rows"] | None = None,
    ) -> tuple[LearnerState, Bool[Array, ""]]:
        learnt = self.blocks.learn(state, block, prediction.lanes, prediction.past, weight)
        weights = after.aggregate
        if not self.spec.delay:  # else see `_learn_late`
            constant = self.spec.constant
            is_other = has_lasted(state.since, constant, self.spec.rows) & has_begun_again(after.since, constant)
            weights = jax.lax.cond(is_other, self.mixture.trust_since, lambda weights: weights, weights)
        moments = jnp.where(learnt.has_moved, 0, after.since.moments) + learnt.gram
        random, aggregate = jax.lax.cond(learnt.has_moved, self._begin_again, lambda: (after.random, weights))
        state = learnt.state._replace(
            calibration=self.mixture.calibrate(state, prediction, learnt.target, learnt.mask),
            mistakes=after.mistakes,
            since=after.since._replace(moments=moments),
            random=random,
            aggregate=aggregate,
        )
        return state, learnt.finite


def _block(blocks: Rows, index: Array) -> Rows:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), blocks)
