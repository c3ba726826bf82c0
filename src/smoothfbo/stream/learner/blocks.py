"""What learns block by block: units, moments, memory and the fits made of them. SmoothFBO's round is a step of it."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from smoothfbo.algebra import where_needed
from smoothfbo.online import State
from smoothfbo.samples import Data
from smoothfbo.stream.learner import problem as bilevel
from smoothfbo.stream.learner.fits import Fits
from smoothfbo.stream.learner.memory import empty_memory, remember, representative_rows, second_moments
from smoothfbo.stream.learner.moments import empty_moments, extend, standardise
from smoothfbo.stream.learner.odd_columns import resolve_odd_columns
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
from smoothfbo.stream.learner.rows import RowMemory, add_rows, empty_rows
from smoothfbo.stream.learner.specification import CLIP, Specification
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.tails import empty_tails
from smoothfbo.stream.learner.units import PATIENCE, empty_target_range, empty_units, observe, observe_target
from smoothfbo.stream.learner.views import Views, join_units, pairs, with_constant
from smoothfbo.stream.rows import Rows


class LearnedBlock(NamedTuple):
    """The state after a block, as far as it is learnt here, and what the layers on top need to know of the block.

    - `target`: as outputs; `mask`: how much its rows count, 0 where the target is missing or cannot be meant.
    - `gram`: its second moments, as in `Memory`.
    - `has_moved`: the target is elsewhere for good; what was before says nothing.
    """

    state: LearnerState
    target: Float[Array, "rows outputs"]
    mask: Float[Array, " rows"]
    gram: Float[Array, "kept kept"]
    has_moved: Bool[Array, ""]
    finite: Bool[Array, ""]


class Blocks:
    """Pure functions of a specification: what a state begins with, what its fits say, how it learns a block."""

    def __init__(self, spec: Specification, views: Views):
        self.spec, self.views, self.fits = spec, views, Fits(spec)
        self.smoothing = (spec.smoothing, 1) if spec.with_references else (spec.smoothing,)
        self._windows = spec.windows if spec.with_references else ()
        self._rolling_blocks = rolling_blocks(spec.rows)

    def init(self) -> dict[str, Any]:
        """The fields of the state that are learnt here."""
        spec = self.spec
        # The shapes of a round, with some curvature, for the checks of the algorithm.
        example = jnp.ones((spec.rates, spec.size, spec.size)) + jnp.eye(spec.size)
        shown = self._no_rows()
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
        is_needed = spec.with_references or spec.is_classification  # by the rolling ridge and by the nearest rows
        raw_blocks = max(PATIENCE, self._rolling_blocks if is_needed else 0)
        return {
            "units": empty_units(spec.features),
            "features": empty_moments(spec.features),
            "targets": empty_target_range(),
            "tails": empty_tails(),
            "target": empty_moments(spec.outputs),
            "memory": empty_memory(spec.kept, spec.rates, self._windows),
            "rows": self._no_rows(),
            "raw": empty_raw_rows(raw_blocks, spec.rows, spec.features),
            "learners": learners,
            "references": jnp.zeros((len(self._windows), spec.outputs, spec.features + 1)),
            "rolling": empty_rolling_ridge(spec.features, spec.outputs) if spec.with_references else None,
        }

    def _no_rows(self) -> RowMemory | None:
        spec = self.spec
        if not spec.is_network:
            return None
        return empty_rows(spec.network_blocks, spec.rows, spec.features + 1, spec.outputs)

    def lanes(self, state: LearnerState, inputs: Float[Array, "rows p"]) -> Float[Array, "lanes rows outputs"]:
        """What the fit under the learned memory says, and that of the unsmoothed one; in standard units."""
        return jax.vmap(lambda params: jax.vmap(self.fits.predictor.bind(params))(inputs))(
            state.learners.estimator.inner.params
        )

    def references(
        self, state: LearnerState, features: Array, inputs: Array, mean: Array, spread: Array
    ) -> Float[Array, "references rows outputs"]:
        """What the windows and the rolling ridge regression say."""
        assert state.rolling is not None
        windows = jnp.einsum("rop,np->rno", state.references, inputs) * spread + mean
        return jnp.concatenate([windows, predict_rolling_ridge(state.rolling, features)[None]])

    def effects(self, state: LearnerState) -> Float[Array, " columns"]:
        if self.spec.is_network:
            return jnp.zeros(0)
        params = state.learners.estimator.inner.params[0].reshape(self.spec.outputs, -1)[:, : self.spec.constant]
        if self.spec.is_classification:
            return params[0] if self.spec.outputs == 1 else jnp.sqrt(jnp.sum(params**2, axis=0))
        return params[0] * state.target.spread[0]

    def learn(
        self,
        state: LearnerState,
        block: Rows,
        lanes: Float[Array, "lanes rows outputs"],
        past: Float[Array, "rates kept kept"],
        weight: Float[Array, " rows"] | None = None,
    ) -> LearnedBlock:
        """A block more; `lanes` is what was predicted for it, from the second moments `past`."""
        spec = self.spec
        targets, known, has_moved = state.targets, ~jnp.isnan(block.target), jnp.asarray(False)
        if not spec.is_classification:
            targets, found = observe_target(state.targets, block.target)
            # A target that moved far and stays there: what was before says nothing, and everything begins again.
            has_moved = jnp.any(found.moved)
            known = found.counts & (~has_moved | (jnp.cumsum(found.moved) > 0))
            known &= self.views.is_last_plausible(state, block.previous)
        target = self.views.target(jnp.where(known, block.target, 0))
        tails = self.views.judge_tails(state, block, known)
        limit = jnp.where(self.views.is_learnt_free(state, block), self.views.limit(state), CLIP)
        units, counting = observe(state.units, block.features, self.views.is_lag)
        features = extend(state.features, counting, ~jnp.isnan(counting))
        moments = state.target
        if not spec.is_classification:
            moments = extend(state.target, target, known[:, None])
        mask = known.astype(target.dtype)
        if weight is not None:
            mask = mask * weight

        centre, spread = join_units(features, moments)
        is_first = state.memory.blocks == 0
        memory = state.memory._replace(
            origin=jnp.where(is_first, centre, state.memory.origin),
            unit=jnp.where(is_first, spread, state.memory.unit),
            decayed=jnp.where(has_moved, 0, state.memory.decayed),
        )
        inputs = with_constant(standardise(counting, features, limit[:, None]))
        goal = (target - moments.mean) / moments.spread
        last = jnp.where(jnp.isnan(block.previous)[:, None], target, self.views.previous(state, block.previous))
        z = jnp.concatenate([inputs, pairs(goal, (last - moments.mean) / moments.spread)], axis=1)
        root = mask if weight is None else jnp.sqrt(mask)  # of a mask it is the mask
        gram = second_moments((z * spread + centre - memory.origin) / memory.unit, root)
        state = state._replace(units=units, features=features, targets=targets, tails=tails)
        state = state._replace(target=moments, memory=memory)
        scale = self._scale(lanes, target, moments.spread, mask)
        past = memory.decayed if spec.delay == 0 else jnp.where(has_moved, 0, past)
        state, finite = self._round(state, past, gram, inputs, goal, mask, scale)
        raw = add_raw_rows(state.raw, block.features, block.target)
        state = state._replace(raw=raw, rolling=self._roll(raw) if spec.with_references else None)
        resolve = partial(resolve_odd_columns, self.views, self.fits)
        units = where_needed(jnp.any(units.odd > 0), resolve, units, state)
        return LearnedBlock(state._replace(units=units), target, mask, gram, has_moved, finite)

    def _scale(self, lanes: Array, target: Array, spread: Array, mask: Array) -> Float[Array, " lanes"]:
        """The loss of the predictions that were made is the scale of the outer loss: F becomes log F."""
        if self.spec.is_classification:
            loss = jax.vmap(jax.vmap(bilevel.score_loss), in_axes=(0, None))(lanes, target)
        else:
            loss = jnp.sum(((lanes - target) / spread) ** 2, axis=2)
        smallest = bilevel.SMALLEST_SCALE["classification" if self.spec.is_classification else "regression"]
        total = jnp.sum(mask)
        return jnp.maximum((loss @ mask) / jnp.where(total > 0, total, 1), smallest)

    def _round(
        self, state: LearnerState, past: Array, gram: Array, inputs: Array, goal: Array, mask: Array, scale: Array
    ) -> tuple[LearnerState, Bool[Array, ""]]:
        """The weights judged by the new block, the block remembered, and all fitted again."""
        current = self.views.current(state)
        # Of every rate and, last, of the newest block.
        roots = jax.vmap(representative_rows)(self.fits.without_last(current(jnp.concatenate([past, gram[None]]))))
        inner = self.fits.inner_samples(roots[:-1], state.rows)

        def step(learner: State, window: Array, scale: Array) -> tuple[State, Array]:
            outer = self.fits.outer_samples(roots[-1], inputs, goal, mask, scale)
            learner, info = self.fits.algorithm(window).step(learner, Data(inner, outer))
            return learner, info.finite

        windows = jnp.asarray(self.smoothing, jnp.int32)
        learners, finite = jax.vmap(step)(state.learners, windows, scale)
        memory = remember(state.memory, gram, jnp.asarray(self.fits.retention), self._windows)
        rows = None if state.rows is None else add_rows(state.rows, inputs, goal, mask)
        learners, references = self.fits.refit(learners, memory, current, rows)
        state = state._replace(memory=memory, rows=rows, learners=learners, references=references)
        return state, jnp.all(finite)

    def _roll(self, raw: RawRows) -> RollingRidge:
        features, targets = raw.features, raw.target
        if self._rolling_blocks < PATIENCE:
            features, targets = last_blocks(raw, self._rolling_blocks)
        targets = targets.ravel()
        known = ~jnp.isnan(targets)
        goal = self.views.target(jnp.where(known, targets, 0))
        rows = features.reshape(self.spec.features, -1)
        return fit_rolling_ridge(
            rows, goal.T, known.astype(goal.dtype), self.spec.ridge, not self.spec.is_classification
        )
