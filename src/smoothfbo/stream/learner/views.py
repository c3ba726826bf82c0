"""A block as the learner sees it: features in standard units, targets as outputs, and which targets can be meant."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from smoothfbo.stream.learner import tails
from smoothfbo.stream.learner.calibration import with_first
from smoothfbo.stream.learner.memory import change_units
from smoothfbo.stream.learner.moments import Moments, standardise
from smoothfbo.stream.learner.specification import CLIP, Specification
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.tails import Tails
from smoothfbo.stream.learner.units import FAR, Units, plausible, usable
from smoothfbo.stream.rows import Rows


class Views:
    """What the numbers of a row mean under a specification. Nothing is learnt here."""

    def __init__(self, spec: Specification):
        self.spec = spec
        self._is_lag = [spec.lags[0] <= column < spec.lags[1] for column in range(spec.features)]

    @property
    def is_lag(self) -> Bool[Array, " columns"]:
        return jnp.asarray(self._is_lag, bool)

    def inputs(self, state: LearnerState, features: Float[Array, "rows columns"]) -> Float[Array, "rows p"]:
        """In standard units, with the constant 1."""
        return self._cut(state, features, self.limit(state))

    def _cut(
        self, state: LearnerState, features: Float[Array, "rows columns"], limit: Array | float
    ) -> Float[Array, "rows p"]:
        return with_constant(standardise(self.usable(state.units, features), state.features, limit))

    def limit(self, state: LearnerState) -> Float[Array, ""]:
        """Where standardised features are cut."""
        return tails.limit(state.tails, state.memory.blocks) if self.has_tails else jnp.asarray(CLIP)

    @property
    def has_tails(self) -> bool:
        """Whether values may count as they are, however large: see `tails`."""
        return not (self.spec.is_classification or self.spec.is_network)

    def bounded(
        self,
        state: LearnerState,
        predictions: Float[Array, "*methods rows outputs"],
        last: Float[Array, "rows outputs"],
    ) -> Float[Array, "*methods rows outputs"]:
        if not self.has_tails:
            return predictions
        return tails.bounded(predictions, last, tails.edges(state.tails, state.targets))

    def is_learnt_free(self, state: LearnerState, block: Rows) -> Bool[Array, " rows"]:
        """Which rows are learnt with the values they were predicted with."""
        if not self.has_tails:
            return jnp.ones(block.target.shape, bool)
        mean, spread = self.units_of_target(state)
        target = (self.target(block.target) - mean) / spread
        free, cut = (self._learned(state, block, limit) for limit in (tails.LARGEST, CLIP))
        return (self.limit(state) == CLIP) | tails.is_learnt_free(free, cut, target)

    def judge_tails(self, state: LearnerState, block: Rows, known: Bool[Array, " rows"]) -> Tails:
        """What a block says of values and of predictions that lie far out, before it is learnt."""
        if not self.has_tails:
            return state.tails
        mean, spread = self.units_of_target(state)
        last, target = self.previous(state, block.previous), jnp.where(known, block.target, jnp.nan)[:, None]
        reaches = tails.REACH, FAR
        near, far = (tails.edges_within(state.targets, reach) for reach in reaches)

        def errors(limit: Array | float, edges: tails.Edges) -> Float[Array, "rows outputs"]:
            predictions = self._learned(state, block, limit) * spread + mean
            return (tails.bounded(predictions, last, edges) - target) / spread

        usual, limit = tails.edges(state.tails, state.targets), self.limit(state)
        of_values = errors(tails.LARGEST, usual), errors(CLIP, usual)
        judged = tails.add_losses(state.tails, of_values, (errors(limit, far), errors(limit, near)))
        return optax.tree.where(state.memory.blocks > 0, judged, state.tails)

    def _learned(self, state: LearnerState, block: Rows, limit: Array | float) -> Float[Array, "rows outputs"]:
        """What the fit under the learned memory says, in standard units."""
        params = state.learners.estimator.inner.params[0].reshape(self.spec.outputs, -1)
        return self._cut(state, block.features, limit) @ params.T

    def usable(self, units: Units, features: Array) -> Array:
        return usable(units, features, self.is_lag)

    def target(self, target: Float[Array, " rows"]) -> Float[Array, "rows outputs"]:
        """The number itself; in classification the indicators of all classes but the first."""
        if not self.spec.is_classification:
            return target[:, None]
        return (target[:, None] == jnp.arange(1.0, self.spec.outputs + 1.0)).astype(target.dtype)

    def previous(self, state: LearnerState, previous: Float[Array, " rows"]) -> Float[Array, "rows outputs"]:
        if self.spec.is_classification:
            return self.target(jnp.where(jnp.isnan(previous), 0, previous))
        return jnp.where(jnp.isnan(previous)[:, None], state.target.mean, previous[:, None])

    def seasons(self, block: Rows, previous: Float[Array, "rows outputs"]) -> Float[Array, "seasons rows outputs"]:
        """The targets one season ago; where there is none yet, the last value."""
        stop = self.spec.lags[1]
        seasons = block.features[:, stop - len(self.spec.seasons) : stop].T[:, :, None]
        return jnp.where(jnp.isnan(seasons), previous, seasons)

    def units_of_target(self, state: LearnerState) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """Mean and spread, by which fits are made; those of classes are indicators already."""
        if self.spec.is_classification:
            return jnp.zeros(self.spec.outputs), jnp.ones(self.spec.outputs)
        return state.target.mean, state.target.spread

    def first_units_of_target(self, state: LearnerState) -> tuple[Float[Array, " outputs"], Float[Array, " outputs"]]:
        """Those of the first block, which do not change."""
        after = slice(self.spec.constant + 1, None, 2)
        return state.memory.origin[after], state.memory.unit[after]

    def is_plausible(self, state: LearnerState, target: Float[Array, " rows"]) -> Bool[Array, " rows"]:
        """Which targets may be learnt from at once."""
        known = ~jnp.isnan(target)
        return known if self.spec.is_classification else plausible(state.targets, target).counts

    def is_last_plausible(self, state: LearnerState, previous: Float[Array, " rows"]) -> Bool[Array, " rows"]:
        """The same of the last values before rows; the first one has been counted among the targets already."""
        before = state.targets._replace(far=jnp.maximum(state.targets.far - 1, 0))
        return self.is_plausible(state._replace(targets=before), previous) | jnp.isnan(previous)

    def current(self, state: LearnerState) -> Callable[[Array], Array]:
        """Second moments in the units of now: those of all of the past, in place of the first block's."""
        centre, spread = join_units(state.features, state.target)
        factor, shift = state.memory.unit / spread, (state.memory.origin - centre) / spread
        return jax.vmap(lambda gram: change_units(gram, factor, shift, self.spec.constant))


def join_units(features: Moments, target: Moments) -> tuple[Float[Array, " kept"], Float[Array, " kept"]]:
    """Mean and spread of (features, 1, and every target with its last known value)."""
    # The constant 1 is the same number in all units: centre 0, spread 1.
    return _join(features.mean, target.mean, 0.0), _join(features.spread, target.spread, 1.0)


def _join(features: Array, target: Array, constant: float) -> Array:
    return jnp.concatenate([features, jnp.full(1, constant), jnp.repeat(target, 2)])


def with_constant(features: Float[Array, "rows columns"]) -> Float[Array, "rows coefficients"]:
    return jnp.concatenate([features, jnp.ones((features.shape[0], 1), features.dtype)], axis=1)


def pairs(one: Float[Array, "rows outputs"], other: Float[Array, "rows outputs"]) -> Float[Array, "rows both"]:
    """The two by turns, so that a further output stands at the end."""
    return jnp.stack([one, other], axis=2).reshape(one.shape[0], -1)


def classes_of(outputs: Float[Array, "*methods rows outputs"]) -> Float[Array, "*methods rows"]:
    """The class with the largest score."""
    return jnp.argmax(with_first(outputs), axis=-1).astype(outputs.dtype)
