"""What became of columns with odd values: judged by how well targets are predicted with them, and without."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.stream.learner.fits import Fits
from smoothfbo.stream.learner.moments import standardise
from smoothfbo.stream.learner.rolling import last_blocks
from smoothfbo.stream.learner.specification import CLIP
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.tails import is_learnt_free
from smoothfbo.stream.learner.units import PATIENCE, PATIENCE_FOR_LAGS, REAL, Units, accept, other_units
from smoothfbo.stream.learner.views import Views, with_constant

ROUNDING = 1e-9  # losses that differ by less are equal


def resolve_odd_columns(views: Views, fits: Fits, state: LearnerState) -> Units:
    """What became of odd columns, by the loss on their odd blocks: a real move, another unit, or not known yet.

    A real move if predictions are much better with the values than without; at once. Another unit if, after enough
    blocks, they are not worse with the values mapped to what they were before.

    Rows are judged as they are learnt: with values cut only where these are cut in the fits, or explain the row better.
    """
    spec, units, is_lag = views.spec, state.units, views.is_lag
    recent, targets = last_blocks(state.raw, PATIENCE)
    recent = jnp.moveaxis(recent, 0, 2)
    other = other_units(units, recent)
    known = ~jnp.isnan(targets)
    goal = views.target(jnp.where(known, targets, 0).ravel())
    if not spec.is_classification:
        goal = (goal - state.target.mean) / state.target.spread
    predict = fits.predictor.bind(jax.tree.map(lambda leaf: leaf[0], state.learners.estimator.inner.params))
    without = views.usable(units, recent).reshape(-1, spec.features)
    limit = views.limit(state)

    def loss(column: Array, values: Array) -> Array:
        """On the odd blocks of a column, if it alone has these values."""
        rows = without.at[:, column].set(values)
        free, cut = (jax.vmap(predict)(with_constant(standardise(rows, state.features, at))) for at in (limit, CLIP))
        predicted = jnp.where(is_learnt_free(free, cut, goal)[:, None], free, cut)
        squares = jnp.sum((predicted - goal) ** 2, axis=1).reshape(known.shape)
        is_odd = jnp.arange(PATIENCE, dtype=jnp.int32) >= PATIENCE - units.odd[column]
        return jnp.sum(jnp.where(known & is_odd[:, None], squares, 0))

    def losses(column: Array) -> Float[Array, " 3"]:
        here = recent[:, :, column].ravel()
        choices = [units.factor[column] * here + units.shift[column]]
        choices += [other.factor[column] * here + other.shift[column], jnp.full_like(here, jnp.nan)]
        return jax.vmap(lambda values: loss(column, values))(jnp.stack(choices))

    as_is, mapped, missing = jax.lax.map(losses, jnp.arange(spec.features, dtype=jnp.int32)).T
    is_due = units.odd >= jnp.where(is_lag, PATIENCE_FOR_LAGS, PATIENCE)
    is_real = (units.odd > 0) & (as_is < REAL * missing)
    # A fit that does not use the column yet tells nothing: then the unit, in which it keeps its level and spread.
    is_unit = mapped <= as_is * (1 + ROUNDING)
    return accept(units, other, recent, is_due | is_real, is_due & is_unit & ~is_lag)
