"""Values that cannot be meant, and columns whose unit changes: what a column was so far says what it may be next.

Nothing is cut or scaled as long as a column behaves; a table without such values gives the same bits as without this.

- A value is *far* if it is ten times as far from the middle of all values so far as any of them: −9999 among
  temperatures. It is treated as missing.
- A block is *odd* if its median lies far outside of all values so far (by half of their range), or if its spread is
  five times as large, or as small, as that of any block so far. Its values are treated as missing, too.
- Lags of the target are judged together: if two lags of a row are far, the target has moved.
- A far value that comes again and again, such as −9999, stands for a missing one. So far targets in a row have moved if
  two of them differ, or if there are 32; far lags if two of them differ.
- If odd values halve the loss of their block, the move is real, and they count at once. After eight odd blocks in a row
  the column has another unit, if predictions are better with its values mapped to what they were before; from then on
  they are mapped.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

FAR = 10.0  # half ranges
FAR_AT_FIRST = 100.0  # interquartile ranges, within the first block
OUTSIDE = 2.0  # half ranges
OTHER_SPREAD = 5.0
HISTORY = 32  # blocks before a block can be odd
PATIENCE = 8  # odd blocks until they count
STAYS = 32  # far targets in a row that are all the same: from then on they count
PATIENCE_FOR_LAGS = 3  # lags of the target are never in another unit than the target
REAL = 0.5  # of the loss without the values: a move that leaves no more than this is real
FEW = 32  # rows of a block whose quartiles are found by comparing all pairs
RETENTION = 0.95  # of level and spread, per block


class Units(NamedTuple):
    """Of every column, in its first unit: factor·x + shift.

    - `low`, `high`: the range of all values that counted.
    - `least`, `most`: the range of the spreads (interquartile ranges) of blocks.
    - `level`, `spread`: recent medians and spreads of blocks.
    - `blocks`: that were not odd; `odd`: odd ones in a row.
    """

    factor: Float[Array, " columns"]
    shift: Float[Array, " columns"]
    low: Float[Array, " columns"]
    high: Float[Array, " columns"]
    least: Float[Array, " columns"]
    most: Float[Array, " columns"]
    level: Float[Array, " columns"]
    spread: Float[Array, " columns"]
    blocks: Int[Array, " columns"]
    odd: Int[Array, " columns"]


def empty_units(columns: int) -> Units:
    start = {"factor": 1.0, "low": jnp.inf, "high": -jnp.inf, "least": jnp.inf, "most": -jnp.inf}
    numbers = {name: jnp.zeros(columns) + start.get(name, 0.0) for name in Units._fields}
    # Arrays of their own: the compiled program writes into them.
    return Units(**numbers | {name: jnp.zeros(columns, jnp.int32) for name in ("blocks", "odd")})


def in_first_unit(units: Units, values: Float[Array, "*rows columns"]) -> Float[Array, "*rows columns"]:
    return units.factor * values + units.shift


def usable(
    units: Units, values: Float[Array, "*rows columns"], is_lag: Bool[Array, " columns"]
) -> Float[Array, "*rows columns"]:
    """The values of rows that are predicted, in the first unit; NaN where they are far or the column is odd."""
    converted = in_first_unit(units, values)
    far = _alone(_is_far(units, converted), converted, is_lag)
    return jnp.where(far | (units.odd > 0), jnp.nan, converted)


def _alone(
    far: Bool[Array, "*rows columns"], values: Float[Array, "*rows columns"], is_lag: Bool[Array, " columns"]
) -> Bool[Array, "*rows columns"]:
    """What is far and is not one of two far lags that differ."""
    lags = far & is_lag
    highest = jnp.max(jnp.where(lags, values, -jnp.inf), axis=-1, keepdims=True)
    lowest = jnp.min(jnp.where(lags, values, jnp.inf), axis=-1, keepdims=True)
    return far & ~(is_lag & (highest > lowest))


def observe(
    units: Units, values: Float[Array, "rows columns"], is_lag: Bool[Array, " columns"]
) -> tuple[Units, Float[Array, "rows columns"]]:
    """One block more; its values in the first unit, NaN where they do not count."""
    converted = in_first_unit(units, values)
    known = ~jnp.isnan(converted)
    far, is_first = _is_far(units, converted), units.blocks == 0
    count, of = jnp.sum(far, axis=0), jnp.sum(known, axis=0)
    # A few far values do not make a block odd.
    lower, median, upper = _quartiles(jnp.where(far & (4 * count <= of), jnp.nan, converted))
    spread = upper - lower
    far_at_first = (spread > 0) & (jnp.abs(converted - median) > FAR_AT_FIRST * spread)
    far = jnp.where(is_first, far_at_first, far)
    # At the beginning little is known: what most values of a block do cannot be wrong.
    far &= ~((units.blocks < HISTORY) & ~is_first & (2 * count > of))
    far = _alone(far, converted, is_lag)
    middle, half = _range(units)
    outside = (half > 0) & (jnp.abs(median - middle) > jnp.where(is_lag, FAR, OUTSIDE) * half)
    outside &= ~(is_lag & (jnp.sum(is_lag) >= 2))
    other_spread = (spread > 0) & ((spread * OTHER_SPREAD < units.least) | (spread > OTHER_SPREAD * units.most))
    other_spread &= jnp.isfinite(units.least) & ~is_lag
    most_known = 2 * jnp.sum(known, axis=0) >= known.shape[0]
    is_odd = (units.blocks >= HISTORY) & most_known & (outside | other_spread)
    counting = jnp.where(far | is_odd, jnp.nan, converted)
    units = units._replace(odd=jnp.where(is_odd, units.odd + 1, jnp.where(most_known, 0, units.odd)))
    return _extended(units, counting, median, spread, most_known & ~is_odd), counting


def other_units(units: Units, recent: Float[Array, "blocks rows columns"]) -> Units:
    """Units in which the recent blocks have the level and the spread that the column had before."""
    level, spread = _typical(recent)
    factor = jnp.where((spread > 0) & (units.spread > 0), units.spread / spread, units.factor)
    return units._replace(factor=factor, shift=units.level - factor * level)


def accept(
    units: Units, other: Units, recent: Float[Array, "blocks rows columns"], decided: Array, is_unit: Array
) -> Units:
    """Where it is decided: from now on other units, or else the recent values are as good as all before."""
    # Of the recent blocks, some may be from before the move: they are within the ranges anyway.
    values = in_first_unit(units, recent)
    wider = _extended(units, values.reshape(-1, values.shape[-1]), *_typical(values), decided & ~is_unit)
    return wider._replace(
        factor=jnp.where(decided & is_unit, other.factor, units.factor),
        shift=jnp.where(decided & is_unit, other.shift, units.shift),
        odd=jnp.where(decided, 0, units.odd),
    )


def _extended(
    units: Units, values: Float[Array, "rows columns"], median: Array, spread: Array, counts: Bool[Array, " columns"]
) -> Units:
    """Ranges, level and spread with more values; only of the columns that count."""
    counts &= ~jnp.isnan(median)
    has_spread, retention = counts & (spread > 0), jnp.where(units.blocks > 0, RETENTION, 0.0)

    def recent(before: Array, now: Array) -> Array:
        return jnp.where(counts, retention * before + (1 - retention) * now, before)

    return units._replace(
        low=jnp.where(counts, jnp.fmin(units.low, jnp.nanmin(values, axis=0)), units.low),
        high=jnp.where(counts, jnp.fmax(units.high, jnp.nanmax(values, axis=0)), units.high),
        least=jnp.where(has_spread, jnp.minimum(units.least, spread), units.least),
        most=jnp.where(has_spread, jnp.maximum(units.most, spread), units.most),
        level=recent(units.level, median),
        spread=recent(units.spread, spread),
        blocks=units.blocks + counts.astype(jnp.int32),
    )


def _typical(recent: Float[Array, "blocks rows columns"]) -> tuple[Array, Array]:
    """Median and spread of a typical block: medians again, because the first one may be half in the old unit."""
    lower, median, upper = _quartiles(jnp.swapaxes(recent, 0, 1))
    _, typical, _ = _quartiles(jnp.stack([median, upper - lower], axis=1))
    return typical[0], typical[1]


def _range(units: Units) -> tuple[Array, Array]:
    """Middle and half width of all values that counted; 0 wide if there are none."""
    is_known = units.blocks > 0
    low, high = jnp.where(is_known, units.low, 0), jnp.where(is_known, units.high, 0)
    return (low + high) / 2, (high - low) / 2


def _is_far(units: Units, values: Float[Array, "*rows columns"]) -> Bool[Array, "*rows columns"]:
    middle, limit = far_from(units)
    return jnp.abs(values - middle) > limit


def far_from(units: Units) -> tuple[Float[Array, " columns"], Float[Array, " columns"]]:
    """The middle of all values so far, and the distance from it beyond which a value is far."""
    middle, half = _range(units)
    return middle, jnp.where(half > 0, FAR * half, jnp.inf)


def _quartiles(values: Float[Array, "rows *columns"]) -> tuple[Array, Array, Array]:
    """Of the known values; NaN where there are none. The nearest values below: no interpolation."""
    known = ~jnp.isnan(values)
    count = jnp.sum(known, axis=0, dtype=jnp.int32)
    indices = [jnp.maximum(numerator * count - 1, 0) // 4 for numerator in (1, 2, 3)]
    if len(values) > FEW:
        ordered = jnp.sort(values, axis=0)  # NaN last
        lower, median, upper = (jnp.take_along_axis(ordered, index[None], axis=0)[0] for index in indices)
        return lower, median, upper
    ranks = _ranks(values)

    def of_rank(index: Array) -> Array:
        return jnp.where(count > 0, jnp.sum(jnp.where(known & (ranks == index), values, 0), axis=0), jnp.nan)

    return of_rank(indices[0]), of_rank(indices[1]), of_rank(indices[2])


def _ranks(values: Float[Array, "rows *columns"]) -> Int[Array, "rows *columns"]:
    """How many known values of its column come before each: all pairs, which for few rows is faster than sorting."""
    rows = jnp.arange(len(values), dtype=jnp.int32)
    is_earlier = (rows < rows[:, None]).reshape(len(values), len(values), *[1] * (values.ndim - 1))
    this, other = values[:, None], values[None]
    return jnp.sum((other < this) | ((other == this) & is_earlier), axis=1, dtype=jnp.int32)


class TargetRange(NamedTuple):
    """The range of all targets that counted.

    - `far`: how many in a row were far from it, up to now; `others`: how many of these were not what the last one was.
    - `last`: the last one that was far.
    """

    low: Float[Array, ""]
    high: Float[Array, ""]
    far: Int[Array, ""]
    others: Int[Array, ""]
    last: Float[Array, ""]
    blocks: Int[Array, ""]


def empty_target_range() -> TargetRange:
    none, count = jnp.zeros(()), jnp.zeros((), jnp.int32)
    return TargetRange(none + jnp.inf, none - jnp.inf, count + 0, count + 0, none + 0, count + 0)


class Plausible(NamedTuple):
    """Which targets count: not those far from all before, unless they stay. Which have moved: far ones that count."""

    counts: Bool[Array, " rows"]
    moved: Bool[Array, " rows"]
    after: TargetRange  # what is far in it; the range itself is as before


def plausible(
    range: TargetRange, target: Float[Array, " rows"], far_at_first: Bool[Array, " rows"] | None = None
) -> Plausible:
    """`far_at_first` are the far ones of the first block, which has none before it; none if not given."""
    known = ~jnp.isnan(target)
    middle, limit = target_far_from(range)
    far = jnp.abs(target - middle) > limit
    far = known & jnp.where(range.blocks > 0, far, False if far_at_first is None else far_at_first)
    rows = jnp.arange(len(target), dtype=jnp.int32)
    # The far one before each row; of a run the first is no other than the one before, whatever that was.
    before = jnp.concatenate([jnp.full(1, -1, jnp.int32), jax.lax.cummax(jnp.where(far, rows, -1))])
    value = jnp.where(before >= 0, target[before], range.last)
    run = _in_a_row(range.far, far, known & ~far)
    other = far & (run > 1) & (target != value[:-1])
    others = _in_a_row(range.others, other, known & ~far)
    moved = far & ((others > 0) | (run >= STAYS))
    after = range._replace(far=run[-1], others=others[-1], last=value[-1])
    return Plausible(known & (~far | moved), moved, after)


def _in_a_row(before: Int[Array, ""], is_one: Bool[Array, " rows"], ends: Bool[Array, " rows"]) -> Int[Array, " rows"]:
    """How many there were up to each row: all so far, less those up to the last end."""
    so_far = before + jnp.cumsum(is_one, dtype=jnp.int32)
    return so_far - jax.lax.cummax(jnp.where(ends, so_far, 0))


def target_far_from(range: TargetRange) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """As `far_from`, of the target."""
    is_known = range.blocks > 0
    low, high = jnp.where(is_known, range.low, 0), jnp.where(is_known, range.high, 0)
    half = (high - low) / 2
    # The range of a few blocks says little of what may come.
    farther = FAR * jnp.maximum(1.0, HISTORY / jnp.maximum(range.blocks, 1).astype(low.dtype))
    return (low + high) / 2, jnp.where(half > 0, farther * half, jnp.inf)


def observe_target(range: TargetRange, target: Float[Array, " rows"]) -> tuple[TargetRange, Plausible]:
    """One block more, and which of its targets count."""
    lower, median, upper = _quartiles(target)
    far_at_first = (upper > lower) & (jnp.abs(target - median) > FAR_AT_FIRST * (upper - lower))
    found = plausible(range, target, far_at_first)
    counts = found.counts
    low = jnp.minimum(range.low, jnp.min(jnp.where(counts, target, jnp.inf)))
    high = jnp.maximum(range.high, jnp.max(jnp.where(counts, target, -jnp.inf)))
    blocks = range.blocks + jnp.any(counts).astype(jnp.int32)
    far, others = (jnp.where(counts[-1], 0, count) for count in (found.after.far, found.after.others))
    return TargetRange(low, high, far, others, found.after.last, blocks), found
