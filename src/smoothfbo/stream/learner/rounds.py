"""The rounds of the learner as one compiled program: predict a block, then learn from it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from smoothfbo.algebra import where_needed
from smoothfbo.online import State
from smoothfbo.samples import Data
from smoothfbo.stream.learner import problem as bilevel
from smoothfbo.stream.learner.aggregation import Aggregate, aggregate, empty_aggregate
from smoothfbo.stream.learner.calibration import (
    Calibrations,
    all_uncalibrated,
    calibrate_all,
    mixed_probabilities,
    with_first,
    with_unseen,
)
from smoothfbo.stream.learner.experts import ladder_predictions
from smoothfbo.stream.learner.fits import Fits
from smoothfbo.stream.learner.ladder import LINEAR_RATE, ladder
from smoothfbo.stream.learner.memory import (
    change_units,
    empty_memory,
    remember,
    representative_rows,
    second_moments,
)
from smoothfbo.stream.learner.moments import empty_moments, extend, standardise
from smoothfbo.stream.learner.random_features import RandomFeatures, draw, empty_random_features, expand, recur
from smoothfbo.stream.learner.rolling import (
    RawRows,
    RollingRidge,
    add_raw_rows,
    empty_raw_rows,
    empty_rolling_ridge,
    fit_rolling_ridge,
    last_blocks,
    predict_rolling_ridge,
    rolling_blocks,
)
from smoothfbo.stream.learner.rows import add_rows, empty_rows
from smoothfbo.stream.learner.since import SHORT, Since, empty_since, judge
from smoothfbo.stream.learner.specification import CLIP, Specification
from smoothfbo.stream.learner.state import BlockResult, LearnerState
from smoothfbo.stream.learner.units import (
    PATIENCE,
    PATIENCE_FOR_LAGS,
    REAL,
    Units,
    accept,
    empty_target_range,
    empty_units,
    observe,
    observe_target,
    other_units,
    plausible,
    usable,
)
from smoothfbo.stream.learner.vote import vote
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
    """Two functions of a specification, each one compiled program: `init` and `advance`."""

    def __init__(self, spec: Specification):
        self.spec = spec
        self.smoothing = (spec.smoothing, 1) if spec.with_references else (spec.smoothing,)
        self.fits = Fits(spec)
        self._rolling_blocks = rolling_blocks(spec.rows)
        self._is_lag = [spec.lags[0] <= column < spec.lags[1] for column in range(spec.features)]
        self._projection = draw(spec.features, spec.lags, spec.seed)
        self._linear = max(i for i, k in enumerate(ladder(spec.rates)) if k <= LINEAR_RATE)
        self._columns = 1 if spec.outputs == 1 else spec.outputs + 1  # that are mixed: with one class less, two are one
        self.init: Callable[[], LearnerState] = jax.jit(self._init)
        self.advance: Callable[..., tuple[LearnerState, BlockResult]] = jax.jit(self._advance, donate_argnums=0)

    def _init(self) -> LearnerState:
        spec = self.spec
        memory = empty_memory(spec.kept, spec.rates, spec.windows if spec.with_references else ())
        rows = empty_rows(spec.network_blocks, spec.rows, spec.features + 1, spec.outputs) if spec.is_network else None
        # The shapes of a round, with some curvature, for the checks of the algorithm.
        example = jnp.ones((spec.rates, spec.size, spec.size)) + jnp.eye(spec.size)
        shown = empty_rows(spec.network_blocks, spec.rows, spec.features + 1, spec.outputs) if spec.is_network else None
        if shown is not None:
            shown = shown._replace(inputs=jnp.ones_like(shown.inputs), known=jnp.ones_like(shown.known))
        block_rows = jnp.ones((spec.rows, spec.features + 1)), jnp.ones((spec.rows, spec.outputs))
        roots = jax.vmap(representative_rows)(example)
        data = Data(
            self.fits.inner_samples(roots, shown),
            self.fits.outer_samples(roots[0], *block_rows, jnp.ones(spec.rows), jnp.ones(())),
        )
        key = jax.random.split(jax.random.key(spec.seed))[0]  # all lanes start alike: only the window differs
        windows = jnp.asarray(self.smoothing, jnp.int32)
        learners = jax.vmap(lambda window: self.fits.algorithm(window).init(jnp.zeros(spec.rates), data, key))(windows)
        count = len(spec.windows) if spec.with_references else 0
        random, mixture = self._begin_again()
        return LearnerState(
            units=empty_units(spec.features),
            features=empty_moments(spec.features),
            targets=empty_target_range(),
            target=empty_moments(spec.outputs),
            memory=memory,
            rows=rows,
            raw=empty_raw_rows(
                max(PATIENCE, self._rolling_blocks if spec.with_references else 0), spec.rows, spec.features
            ),
            learners=learners,
            references=jnp.zeros((count, spec.outputs, spec.features + 1)),
            rolling=empty_rolling_ridge(spec.features, spec.outputs) if spec.with_references else None,
            calibration=all_uncalibrated(min(spec.outputs, 2), spec.outputs + 1) if spec.is_classification else None,
            mistakes=jnp.zeros(len(spec.expert_names) + 2) if spec.is_classification else None,
            since=empty_since(spec.kept),
            random=random,
            aggregate=mixture,
        )

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
        spec = self.spec
        inputs = _with_constant(standardise(self._usable(state.units, block.features), state.features, CLIP))
        lanes = jax.vmap(lambda params: jax.vmap(self.fits.predictor.bind(params))(inputs))(
            state.learners.estimator.inner.params
        )
        previous = self._previous(state, block.previous)
        target = self._target(jnp.where(jnp.isnan(block.target), 0, block.target))
        begun = state.memory.blocks > 0
        is_last_plausible = self._is_last_plausible(state, block.previous)
        counts = self._is_plausible(state, block.target) & is_last_plausible & begun & is_known
        counts = counts.astype(target.dtype)
        at_once = counts if spec.delay == 0 else jnp.zeros_like(counts)
        at_once = at_once if weight is None else at_once * weight

        mean, spread = state.target.mean, state.target.spread
        if spec.is_classification:
            mean, spread = jnp.zeros(spec.outputs), jnp.ones(spec.outputs)
        memory = state.memory
        sums = jnp.concatenate([memory.decayed, state.since.moments[None]])
        fits = ladder_predictions(
            self._current(state)(sums),
            sums[:, spec.constant, spec.constant],
            inputs,
            (target - mean) / spread,
            (previous - mean) / spread,
            at_once,
        )
        since = judge(state.since, jnp.roll(fits, 1, axis=0)[: SHORT + 1], (target - mean) / spread, counts)
        fits = fits * spread + mean
        # In the units of the first block, which do not change.
        origin, unit = (part[spec.constant + 1 :: 2] for part in (memory.origin, memory.unit))
        bases = jnp.stack([fits[self._linear], previous])
        rest = _pairs(*((target - bases) / unit))
        random, ahead, by_past = recur(state.random, expand(inputs, *self._projection), rest, counts)
        guess = ahead if spec.delay == 0 else by_past
        guess = bases + jnp.stack([guess[:, ::2], guess[:, 1::2]]) * unit

        stop = spec.lags[1]
        seasons = block.features[:, stop - len(spec.seasons) : stop].T[:, :, None]
        seasons = jnp.where(jnp.isnan(seasons), previous, seasons)
        # Before anything was learnt, every method says what it saw last.
        lanes = jnp.where(begun, lanes * spread + mean, previous)
        experts = jnp.concatenate([lanes[:1], fits, guess, seasons, previous[None]])
        experts = jnp.where(begun, experts, previous)
        # An expert that builds on a last value that cannot be meant has no part in the mixture of its row.
        builds_on_last = jnp.asarray([self._builds_on_last(name) for name in spec.expert_names])
        is_lost = builds_on_last[:, None] & ~is_last_plausible & begun
        mixed_of = jnp.where(is_lost[:, :, None], jnp.nan, (experts - origin) / unit)
        goal = (target - origin) / unit
        if spec.outputs > 1:  # the first class has no output of its own; with two classes it would say nothing new
            goal, mixed_of = with_first(goal), with_first(mixed_of)
        mixture, mixed = aggregate(state.aggregate, mixed_of, goal, counts)
        recommended = (mixed[:, 1:] if spec.outputs > 1 else mixed) * unit + origin
        # Probabilities are made of the mixture and, where classes may hide one another, of the learned memory, too,
        # which is linear.
        recommended = jnp.stack([recommended, experts[0]]) if spec.outputs > 1 else recommended[None]
        scores, mistakes, outputs = recommended[0], None, experts
        if spec.with_references:
            references = jnp.einsum("rop,np->rno", state.references, inputs) * spread + mean
            assert state.rolling is not None
            rolling = predict_rolling_ridge(state.rolling, block.features)[None]
            outputs = jnp.concatenate(
                [experts, jnp.where(begun, jnp.concatenate([lanes[1:], references, rolling]), previous)]
            )
        else:
            outputs = experts[:0]
        if spec.is_classification:
            # A class may have been seen before there is an output for it.
            by_last = jnp.where(jnp.isnan(block.previous), 0, block.previous)
            classes = _classes(experts).at[-1].set(by_last)
            scores = self._probabilities(state, recommended)
            both = jnp.stack([_classes(recommended[0]), jnp.argmax(scores, axis=1).astype(scores.dtype)])
            classifiers = jnp.concatenate([classes, both])
            assert state.mistakes is not None
            mistakes, said, scores = vote(state.mistakes, classifiers, scores, block.target, counts)
            others = classes if spec.with_references else classes[:0]
            predictions = jnp.concatenate([said[None], others, _classes(outputs[len(others) :])])
            predictions = jnp.where(begun, predictions, by_last)
        else:
            predictions = jnp.concatenate([scores[None, :, 0], outputs[:, :, 0]])
        # Before the first target nothing can be said.
        nothing = jnp.isnan(block.previous) & ~begun
        result = BlockResult(
            predictions=jnp.where(nothing, jnp.nan, predictions),
            scores=scores,
            weights=bilevel.weights(state.learners.outer[0]),
            effects=self._effects(state),
            finite=jnp.asarray(True),
        )
        return Played(lanes, recommended, since, random, mixture, mistakes, result)

    def _usable(self, units: Units, features: Array) -> Array:
        return usable(units, features, jnp.asarray(self._is_lag, bool))

    def _is_plausible(self, state: LearnerState, target: Float[Array, " rows"]) -> Bool[Array, " rows"]:
        """Which targets may be learnt from at once."""
        known = ~jnp.isnan(target)
        return known if self.spec.is_classification else plausible(state.targets, target).counts

    def _is_last_plausible(self, state: LearnerState, previous: Float[Array, " rows"]) -> Bool[Array, " rows"]:
        """The same of the last values before rows; the first one has been counted among the targets already."""
        before = state.targets._replace(far=jnp.maximum(state.targets.far - 1, 0))
        return self._is_plausible(state._replace(targets=before), previous) | jnp.isnan(previous)

    def _builds_on_last(self, name: str) -> bool:
        return name == "last_value" or "difference" in name

    def _current(self, state: LearnerState) -> Callable[[Array], Array]:
        """Second moments in the units of now: those of all of the past, in place of the first block's."""
        target = state.target.mean, state.target.spread
        # The constant 1 is the same number in all units: centre 0, spread 1.
        centre, spread = _join(state.features.mean, target[0], 0.0), _join(state.features.spread, target[1], 1.0)
        factor, shift = state.memory.unit / spread, (state.memory.origin - centre) / spread
        return jax.vmap(lambda gram: change_units(gram, factor, shift, self.spec.constant))

    def _effects(self, state: LearnerState) -> Float[Array, " columns"]:
        if self.spec.is_network:
            return jnp.zeros(0)
        params = state.learners.estimator.inner.params[0].reshape(self.spec.outputs, -1)[:, : self.spec.constant]
        if self.spec.is_classification:
            return params[0] if self.spec.outputs == 1 else jnp.sqrt(jnp.sum(params**2, axis=0))
        return params[0] * state.target.spread[0]

    def _previous(self, state: LearnerState, previous: Float[Array, " rows"]) -> Float[Array, "rows outputs"]:
        if self.spec.is_classification:
            return self._target(jnp.where(jnp.isnan(previous), 0, previous))
        return jnp.where(jnp.isnan(previous)[:, None], state.target.mean, previous[:, None])

    def _target(self, target: Float[Array, " rows"]) -> Float[Array, "rows outputs"]:
        """The number itself; in classification the indicators of all classes but the first."""
        if not self.spec.is_classification:
            return target[:, None]
        return (target[:, None] == jnp.arange(1.0, self.spec.outputs + 1.0)).astype(target.dtype)

    def _learn(
        self, state: LearnerState, block: Rows, played: Played, weight: Float[Array, " rows"] | None = None
    ) -> tuple[LearnerState, Bool[Array, ""]]:
        spec = self.spec
        targets, known, has_moved = state.targets, ~jnp.isnan(block.target), jnp.asarray(False)
        if not spec.is_classification:
            targets, found = observe_target(state.targets, block.target)
            # A target that moved far and stays there: what was before says nothing, and everything begins again.
            has_moved = jnp.any(found.moved)
            known = found.counts & (~has_moved | (jnp.cumsum(found.moved) > 0))
            known &= self._is_last_plausible(state, block.previous)
        target = self._target(jnp.where(known, block.target, 0))
        units, counting = observe(state.units, block.features, jnp.asarray(self._is_lag, bool))
        features = extend(state.features, counting, ~jnp.isnan(counting))
        moments = state.target
        if not spec.is_classification:
            moments = extend(state.target, target, known[:, None])
        mask = known.astype(target.dtype)
        if weight is not None:
            mask = mask * weight

        # The constant 1 is the same number in all units: centre 0, spread 1.
        centre = _join(features.mean, moments.mean, 0.0)
        spread = _join(features.spread, moments.spread, 1.0)
        is_first = state.memory.blocks == 0
        memory = state.memory._replace(
            origin=jnp.where(is_first, centre, state.memory.origin),
            unit=jnp.where(is_first, spread, state.memory.unit),
            decayed=jnp.where(has_moved, 0, state.memory.decayed),
        )
        inputs = _with_constant(standardise(counting, features, CLIP))
        goal = (target - moments.mean) / moments.spread
        last = jnp.where(jnp.isnan(block.previous)[:, None], target, self._previous(state, block.previous))
        z = jnp.concatenate([inputs, _pairs(goal, (last - moments.mean) / moments.spread)], axis=1)
        root = mask if weight is None else jnp.sqrt(mask)  # of a mask it is the mask
        gram = second_moments((z * spread + centre - memory.origin) / memory.unit, root)

        current = self._current(state._replace(features=features, target=moments, memory=memory))

        # The loss of the predictions that were made is the scale of the outer loss: F becomes log F.
        if spec.is_classification:
            loss = jax.vmap(jax.vmap(bilevel.score_loss), in_axes=(0, None))(played.lanes, target)
        else:
            loss = jnp.sum(((played.lanes - target) / moments.spread) ** 2, axis=2)
        smallest = bilevel.SMALLEST_SCALE["classification" if spec.is_classification else "regression"]
        total = jnp.sum(mask)
        scale = jnp.maximum((loss @ mask) / jnp.where(total > 0, total, 1), smallest)

        # Of every rate and, last, of the newest block.
        roots = jax.vmap(representative_rows)(
            self.fits.without_last(current(jnp.concatenate([memory.decayed, gram[None]])))
        )
        inner = self.fits.inner_samples(roots[:-1], state.rows)

        def step(learner: State, window: Array, scale: Array) -> tuple[State, Array]:
            outer = self.fits.outer_samples(roots[-1], inputs, goal, mask, scale)
            learner, info = self.fits.algorithm(window).step(learner, Data(inner, outer))
            return learner, info.finite

        windows = jnp.asarray(self.smoothing, jnp.int32)
        learners, finite = jax.vmap(step)(state.learners, windows, scale)

        memory = remember(
            memory,
            gram,
            jnp.asarray(self.fits.retention),
            spec.windows if spec.with_references else (),
        )
        rows = None if state.rows is None else add_rows(state.rows, inputs, goal, mask)
        learners, references = self.fits.refit(learners, memory, current, rows)
        raw = add_raw_rows(state.raw, block.features, block.target)
        new = LearnerState(
            units=units,
            features=features,
            targets=targets,
            target=moments,
            memory=memory,
            rows=rows,
            raw=raw,
            learners=learners,
            references=references,
            rolling=self._roll(raw) if spec.with_references else None,
            calibration=self._calibrate(state, played.recommended, target, mask),
            mistakes=played.mistakes,
            since=played.since._replace(moments=jnp.where(has_moved, 0, played.since.moments) + gram),
            random=played.random,
            aggregate=played.aggregate,
        )
        units = where_needed(jnp.any(units.odd > 0), self._decide, units, new)
        random, mixture = jax.lax.cond(has_moved, self._begin_again, lambda: (new.random, new.aggregate))
        return new._replace(units=units, random=random, aggregate=mixture), jnp.all(finite)

    def _begin_again(self) -> tuple[RandomFeatures, Aggregate]:
        spec = self.spec
        experts = len(spec.expert_names)
        return empty_random_features(spec.features, 2 * spec.outputs), empty_aggregate(experts, self._columns)

    def _decide(self, state: LearnerState) -> Units:
        """What became of odd columns, by the loss on their odd blocks: a real move, another unit, or not known yet.

        A real move if predictions are much better with the values than without; at once. Another unit if, after enough
        blocks, they are better with the values mapped to what they were before.
        """
        units, is_lag = state.units, jnp.asarray(self._is_lag, bool)
        recent, targets = last_blocks(state.raw, PATIENCE)
        recent = jnp.moveaxis(recent, 0, 2)
        other = other_units(units, recent)
        known = ~jnp.isnan(targets)
        goal = self._target(jnp.where(known, targets, 0).ravel())
        if not self.spec.is_classification:
            goal = (goal - state.target.mean) / state.target.spread
        predict = self.fits.predictor.bind(jax.tree.map(lambda leaf: leaf[0], state.learners.estimator.inner.params))
        without = self._usable(units, recent).reshape(-1, self.spec.features)

        def loss(column: Array, values: Array) -> Array:
            """On the odd blocks of a column, if it alone has these values."""
            inputs = _with_constant(standardise(without.at[:, column].set(values), state.features, CLIP))
            squares = jnp.sum((jax.vmap(predict)(inputs) - goal) ** 2, axis=1).reshape(known.shape)
            is_odd = jnp.arange(PATIENCE, dtype=jnp.int32) >= PATIENCE - units.odd[column]
            return jnp.sum(jnp.where(known & is_odd[:, None], squares, 0))

        def losses(column: Array) -> Float[Array, " 3"]:
            here = recent[:, :, column].ravel()
            choices = [units.factor[column] * here + units.shift[column]]
            choices += [other.factor[column] * here + other.shift[column], jnp.full_like(here, jnp.nan)]
            return jax.vmap(lambda values: loss(column, values))(jnp.stack(choices))

        as_is, mapped, missing = jax.lax.map(losses, jnp.arange(self.spec.features, dtype=jnp.int32)).T
        is_due = units.odd >= jnp.where(is_lag, PATIENCE_FOR_LAGS, PATIENCE)
        is_real = (units.odd > 0) & (as_is < REAL * missing)
        return accept(units, other, recent, is_due | is_real, is_due & (mapped < as_is) & ~is_lag)

    def _roll(self, raw: RawRows) -> RollingRidge:
        features, targets = raw.features, raw.target
        if self._rolling_blocks < PATIENCE:
            features, targets = last_blocks(raw, self._rolling_blocks)
        targets = targets.ravel()
        known = ~jnp.isnan(targets)
        goal = self._target(jnp.where(known, targets, 0))
        rows = features.reshape(self.spec.features, -1)
        return fit_rolling_ridge(
            rows, goal.T, known.astype(goal.dtype), self.spec.ridge, not self.spec.is_classification
        )

    def _calibrate(self, state: LearnerState, outputs: Array, target: Array, mask: Array) -> Calibrations | None:
        """The probabilities, after a block that was predicted."""
        if state.calibration is None:
            return None
        # Before the first block was learnt nothing was predicted.
        mask = jnp.where(state.memory.blocks > 0, mask, 0)
        return calibrate_all(state.calibration, outputs, with_first(target), mask, self._seen(state))

    def _probabilities(
        self, state: LearnerState, outputs: Float[Array, "predictors rows outputs"]
    ) -> Float[Array, "rows classes"]:
        """Of every class; before the first block is learnt, by what was seen last."""
        if state.calibration is None:
            raise ValueError("Only classes have probabilities.")
        seen, rows = self._seen(state), state.memory.decayed[-1, self.spec.constant, self.spec.constant]
        learnt = with_unseen(mixed_probabilities(state.calibration, outputs, seen), seen, rows)
        return jnp.where(state.memory.blocks > 0, learnt, jax.nn.softmax(with_first(outputs[0])))

    def _seen(self, state: LearnerState) -> Bool[Array, " classes"]:
        """Which classes were learnt. The first one has no indicator of its own."""
        constant = self.spec.constant
        rows = state.memory.decayed[-1, constant, constant + 1 :: 2]  # of every class, in all of the past
        return jnp.concatenate([jnp.ones(1, bool), rows > 0])


def _block(blocks: Rows, index: Array) -> Rows:
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), blocks)


def _with_constant(features: Float[Array, "rows columns"]) -> Float[Array, "rows coefficients"]:
    return jnp.concatenate([features, jnp.ones((features.shape[0], 1), features.dtype)], axis=1)


def _classes(outputs: Float[Array, "*methods rows outputs"]) -> Float[Array, "*methods rows"]:
    return jnp.argmax(with_first(outputs), axis=-1).astype(outputs.dtype)


def _join(features: Array, target: Array, constant: float) -> Array:
    """Of (features, 1, and every target with its last known value)."""
    return jnp.concatenate([features, jnp.full(1, constant), jnp.repeat(target, 2)])


def _pairs(one: Float[Array, "rows outputs"], other: Float[Array, "rows outputs"]) -> Float[Array, "rows both"]:
    """The two by turns, so that a further output stands at the end."""
    return jnp.stack([one, other], axis=2).reshape(one.shape[0], -1)
