"""The rounds of the learner as one compiled program: predict a block, then learn from it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from smoothfbo.stream.learner import problem as bilevel
from smoothfbo.stream.learner.aggregation import Aggregate
from smoothfbo.stream.learner.blocks import Blocks
from smoothfbo.stream.learner.mixture import Mixture
from smoothfbo.stream.learner.panel import Panel
from smoothfbo.stream.learner.random_features import RandomFeatures
from smoothfbo.stream.learner.since import Since
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import BlockResult, LearnerState
from smoothfbo.stream.learner.views import Views, classes_of
from smoothfbo.stream.rows import Rows


class Played(NamedTuple):
    """What was predicted for a block, and what its targets make of the layers that learn row by row."""

    lanes: Float[Array, "lanes rows outputs"]
    recommended: Float[Array, "predictors rows outputs"]
    since: Since
    random: RandomFeatures
    aggregate: Aggregate
    mistakes: Float[Array, " classifiers"] | None
    result: BlockResult


class Rounds:
    """Two functions of a specification, each one compiled program: `init` and `advance`.

    Fits learn block by block (`Blocks`). On top of them experts say what they think of each row (`Panel`), and their
    opinions are mixed (`Mixture`); these two also learn row by row.
    """

    def __init__(self, spec: Specification):
        self.spec, self.views = spec, Views(spec)
        self.blocks = Blocks(spec, self.views)
        self.panel, self.mixture = Panel(spec, self.views), Mixture(spec, self.views)
        self.init: Callable[[], LearnerState] = jax.jit(self._init)
        self.advance: Callable[..., tuple[LearnerState, BlockResult]] = jax.jit(self._advance, donate_argnums=0)

    def _init(self) -> LearnerState:
        random, weights = self._begin_again()
        return LearnerState(
            **self.blocks.init(),
            calibration=self.mixture.no_calibration(),
            mistakes=self.mixture.no_mistakes(),
            since=self.panel.no_changes(),
            random=random,
            aggregate=weights,
        )

    def _begin_again(self) -> tuple[RandomFeatures, Aggregate]:
        return self.panel.no_random_features(), self.mixture.no_weights()

    def _advance(
        self,
        state: LearnerState,
        blocks: Rows,
        late: Rows | None,
        count: Int[Array, ""],
        learn: Int[Array, ""],
        weights: Float[Array, "blocks rows"] | None = None,
    ) -> tuple[LearnerState, BlockResult]:
        """Predict the first `count` blocks one after the other; after each, learn from one, `learn` times.

        `late` are the blocks that are learnt; None if they are those that are predicted, whose rows may then have
        `weights`. There is room for more; how many are used is traced, so one program serves long files and single
        rows, and gives the same bits for both.
        """

        def one(index: Array, carry: tuple[LearnerState, BlockResult]) -> tuple[LearnerState, BlockResult]:
            state, results = carry
            block = _block(blocks, index)
            weight = None if weights is None else jax.lax.dynamic_index_in_dim(weights, index, keepdims=False)
            played = self._predict(state, block, late is None, weight)

            def learn_one() -> tuple[LearnerState, Bool[Array, ""]]:
                if late is None:
                    return self._learn(state, block, played, weight)
                # Weights are judged one block ahead, as without a delay: what the newest known block would have asked
                # of the fit before it.
                known = _block(late, index)
                return self._learn(state, known, self._predict(state, known, is_known=True))

            state, finite = jax.lax.cond(index < learn, learn_one, lambda: (state, jnp.asarray(True)))
            result = played.result._replace(finite=finite)
            results = jax.tree.map(
                lambda all, new: jax.lax.dynamic_update_index_in_dim(all, new, index, 0), results, result
            )
            return state, results

        first = jax.tree.map(lambda leaf: leaf[0], blocks)
        shapes = jax.eval_shape(lambda: self._predict(state, first, is_known=late is None).result)
        room = blocks.target.shape[0]
        empty = jax.tree.map(lambda leaf: jnp.zeros((room, *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, count, one, (state, empty))

    def _predict(
        self, state: LearnerState, block: Rows, is_known: bool, weight: Float[Array, " rows"] | None = None
    ) -> Played:
        """Predict the rows of a block one after the other.

        `is_known`: the targets of a block may be used for its later rows. The experts do so only without a delay; with
        one, a known block moves the weights of the mixture and nothing else.
        """
        spec, views = self.spec, self.views
        begun = state.memory.blocks > 0
        counts = views.is_plausible(state, block.target) & views.is_last_plausible(state, block.previous)
        counts = (counts & begun & is_known).astype(block.target.dtype)
        inputs = views.inputs(state, block.features)
        lanes = self.blocks.lanes(state, inputs)
        # Before anything was learnt, every method says what it saw last.
        mean, spread = views.units_of_target(state)
        previous = views.previous(state, block.previous)
        lanes = jnp.where(begun, lanes * spread + mean, previous)
        opinions = self.panel.predict(state, block, inputs, lanes[:1], counts, weight)
        experts = jnp.where(begun, opinions.experts, previous)
        recommended = self.mixture.mix(state, block, experts, counts)
        others = experts[:0]
        if spec.with_references:
            references = self.blocks.references(state, block.features, inputs, mean, spread)
            others = jnp.where(begun, jnp.concatenate([lanes[1:], references]), previous)
        shown = len(experts) if spec.with_references else 0
        if spec.is_classification:
            elected = self.mixture.elect(state, block, experts, recommended.outputs, counts)
            mistakes, scores = elected.mistakes, elected.probabilities
            predictions = jnp.concatenate([elected.said[None], elected.by_experts[:shown], classes_of(others)])
            predictions = jnp.where(begun, predictions, jnp.where(jnp.isnan(block.previous), 0, block.previous))
        else:
            mistakes, scores = None, recommended.outputs[0]
            predictions = jnp.concatenate([scores[None], experts[:shown], others])[:, :, 0]
        # Before the first target nothing can be said.
        nothing = jnp.isnan(block.previous) & ~begun
        result = BlockResult(
            predictions=jnp.where(nothing, jnp.nan, predictions),
            scores=scores,
            weights=bilevel.weights(state.learners.outer[0]),
            effects=self.blocks.effects(state),
            finite=jnp.asarray(True),
        )
        return Played(
            lanes, recommended.outputs, opinions.since, opinions.random, recommended.aggregate, mistakes, result
        )

    def _learn(
        self, state: LearnerState, block: Rows, played: Played, weight: Float[Array, " rows"] | None = None
    ) -> tuple[LearnerState, Bool[Array, ""]]:
        learnt = self.blocks.learn(state, block, played.lanes, weight)
        since = jnp.where(learnt.has_moved, 0, played.since.moments) + learnt.gram
        random, aggregate = jax.lax.cond(learnt.has_moved, self._begin_again, lambda: (played.random, played.aggregate))
        state = learnt.state._replace(
            calibration=self.mixture.calibrate(state, played.recommended, learnt.target, learnt.mask),
            mistakes=played.mistakes,
            since=played.since._replace(moments=since),
            random=random,
            aggregate=aggregate,
        )
        return state, learnt.finite


def _block(blocks: Rows, index: Array) -> Rows:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), blocks)
