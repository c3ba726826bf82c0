"""Bands around predictions that hold what they promise, whatever the data do: conformal prediction, row by row.

With the residual r = y − ŷ of a row and the levels τ ∈ {2.5, 10, 25, 75, 90, 97.5 %} of the edges of three bands:

    experts   e_jτ = s_j z_jτ            s_j: mean of |r| with a memory of m_j rows; z_jτ: quantiles of r / s_j, tracked
              z_jτ ← z_jτ + η (τ − 1{r < e_jτ})
    mixture   b_τ = Σ_j w_j e_jτ         w_j ∝ exp(−discounted sum of pinball losses, relative to the usual loss)
    edges     q = isotonic(b + s θ)      s = Σ_j w_j s_j; the edges never cross, so the bands are nested
              θ_τ ← θ_τ + κ (τ − 1{r < q_τ})

The mixture adapts to how large the residuals are at present; several memories are aggregated as Gibbs and Candès
(2024, "Conformal inference for online prediction with arbitrary distribution shifts") aggregate several step sizes. The
last line is what makes the coverage right: the sum of its steps telescopes,

    Σ_t 1{r_t < q_tτ} / T = τ + (θ_1τ − θ_(T+1)τ) / (κ T),

for any data, drifting or not, as long as θ stays bounded. This is quantile tracking on top of a forecast of the
quantiles (Angelopoulos, Candès and Tibshirani 2023, "Conformal PID control for time series prediction"), for several
levels at once: θ itself may cross, and the step uses the edges that were given (Ding, Gibbs and Tibshirani 2025,
"Calibrated multi-level quantile forecasting").

With a horizon H the residual of row t − H is the newest one that row t may use. Then s_j is the scale at the time of
the row's prediction, so that experts are evaluated by what they predicted H rows ahead.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from smoothfbo.stream.learner.specification import LEVELS

EDGES = (0.025, 0.1, 0.25, 0.75, 0.9, 0.975)  # τ, from the lowest to the highest edge
MEMORIES = (8.0, 32.0, 128.0, 512.0)  # rows, m_j
# Quantiles of a normal residual, in units of the mean of |r|.
NORMAL = (-2.456450570, -1.606186695, -0.845347539, 0.845347539, 1.606186695, 2.456450570)
STEP = 0.04  # κ
SLOWEST = 0.02  # η = max(1/√(100 + rows), this)
RETENTION = 0.995  # of the sum of losses, per row, and of the usual loss
LARGEST_LOSS = 10.0  # that a row may count, in usual losses
FAR = 32.0  # times s_j: what a row's |r| counts at most in s_j
LIMIT = 20.0  # of θ: a long time without any residual must not move it for ever


class Tracker(NamedTuple):
    """What was learnt from the residuals that are known.

    - `scale`, `shape`, `loss`: s, z and the discounted losses of the experts; `usual`: a recent mean of their losses.
    - `offset`: θ; `known`: how many residuals were used.
    """

    scale: Float[Array, " experts"]
    shape: Float[Array, "experts edges"]
    loss: Float[Array, " experts"]
    usual: Float[Array, ""]
    offset: Float[Array, " edges"]
    known: Int[Array, ""]


class Intervals(NamedTuple):
    """What the bands of the next row need: the tracker, and the last H rows, whose targets are not known yet.

    `residuals`, `scales` (s when the row was predicted) and `edges` of row t stand in slot t mod length; `row` counts
    the rows. There may be more slots than H, so that horizons share a compiled program.
    """

    tracker: Tracker
    horizon: Int[Array, ""]
    row: Int[Array, ""]
    residuals: Float[Array, " length"]
    scales: Float[Array, "length experts"]
    edges: Float[Array, "length edges"]


def empty_intervals(horizon: int) -> Intervals:
    length = 1 if horizon == 1 else 2 ** max(math.ceil(math.log2(horizon)), 6)
    experts, edges, count = len(MEMORIES), len(EDGES), jnp.zeros((), jnp.int32)
    tracker = Tracker(
        scale=jnp.zeros(experts),
        shape=jnp.zeros((experts, edges)) + jnp.asarray(NORMAL),
        loss=jnp.zeros(experts),
        usual=jnp.zeros(()),
        offset=jnp.zeros(edges),
        known=count + 0,
    )
    waiting = jnp.zeros(length) + jnp.nan, jnp.zeros((length, experts)), jnp.zeros((length, edges)) + jnp.nan
    return Intervals(tracker, count + horizon, count + 0, *waiting)


def add_row(
    intervals: Intervals, prediction: Float[Array, ""], target: Float[Array, ""]
) -> tuple[Intervals, Float[Array, " edges"]]:
    """The edges for a row, by what is known before it; then the row waits until its target is known.

    NaN as long as no residual is known. A target that is missing (NaN) changes nothing, now or later.
    """
    length = intervals.residuals.shape[0]
    known, slot = (intervals.row - intervals.horizon) % length, intervals.row % length
    waiting = intervals.residuals[known], intervals.scales[known], intervals.edges[known]
    tracker = _observe(intervals.tracker, *waiting)
    edges = jnp.where(tracker.known > 0, _edges(tracker), jnp.nan)
    intervals = intervals._replace(
        tracker=tracker,
        row=intervals.row + 1,
        residuals=intervals.residuals.at[slot].set(target - prediction),
        scales=intervals.scales.at[slot].set(tracker.scale),
        edges=intervals.edges.at[slot].set(edges),
    )
    return intervals, prediction + edges


def add_rows(
    intervals: Intervals, predictions: Float[Array, " rows"], targets: Float[Array, " rows"], count: Int[Array, ""]
) -> tuple[Intervals, Float[Array, "rows edges"]]:
    """The first `count` rows one after the other; there may be room for more."""

    def one(row: Array, carry: tuple[Intervals, Array]) -> tuple[Intervals, Array]:
        intervals, all = carry
        intervals, edges = add_row(intervals, predictions[row], targets[row])
        return intervals, all.at[row].set(edges)

    return jax.lax.fori_loop(0, count, one, (intervals, jnp.zeros((len(targets), len(EDGES)))))


def nested_bands(edges: np.ndarray) -> np.ndarray:
    """rows × edges to rows × levels × 2: lower and upper edge of every band, from the narrowest to the widest."""
    count = len(LEVELS)
    return np.stack([edges[:, count - 1 :: -1], edges[:, count:]], axis=2)


def _edges(tracker: Tracker) -> Float[Array, " edges"]:
    """q: the mixture of the experts, moved by θ, in order."""
    weights = jax.nn.softmax(-tracker.loss)
    scales = weights * tracker.scale
    return _isotonic(jnp.sum(scales[:, None] * tracker.shape, axis=0) + jnp.sum(scales) * tracker.offset)


def _observe(
    tracker: Tracker, residual: Float[Array, ""], scales: Float[Array, " experts"], given: Float[Array, " edges"]
) -> Tracker:
    """A residual becomes known; `scales` are the s_j, and `given` the edges, of when its row was predicted."""
    levels, memories = jnp.asarray(EDGES), jnp.asarray(MEMORIES)
    is_known, is_evaluated = ~jnp.isnan(residual), ~jnp.isnan(given[0])
    rows = tracker.known.astype(residual.dtype)
    size, edges = jnp.abs(residual), scales[:, None] * tracker.shape
    distance = residual - edges
    losses = jnp.mean(jnp.maximum(levels * distance, (levels - 1) * distance), axis=1)
    mean = jnp.mean(losses)
    usual = jnp.where(tracker.usual == 0, mean, RETENTION * tracker.usual + (1 - RETENTION) * mean)
    relative = jnp.minimum(losses / jnp.where(usual > 0, usual, 1), LARGEST_LOSS)
    pace = jnp.maximum(1 / jnp.sqrt(rows + 100), SLOWEST)
    share = 1 / jnp.minimum(memories, rows + 1)
    counted = jnp.where(tracker.scale > 0, jnp.minimum(size, FAR * tracker.scale), size)
    offset = jnp.clip(tracker.offset + STEP * _slope(residual, given, levels), -LIMIT, LIMIT)
    # The first rows had no edges by which they could be evaluated; they only set the scale.
    evaluated = tracker._replace(
        shape=tracker.shape + pace * _slope(residual, edges, levels),
        loss=RETENTION * tracker.loss + relative,
        usual=usual,
        offset=offset,
    )
    evaluated = optax.tree.where(is_evaluated, evaluated, tracker)
    after = evaluated._replace(scale=(1 - share) * tracker.scale + share * counted, known=tracker.known + 1)
    return optax.tree.where(is_known, after, tracker)


def _slope(residual: Array, edges: Array, levels: Array) -> Array:
    """τ − 1{r < q}; 0 where the edge is met exactly, as by a target that never changes."""
    return jnp.where(residual == edges, 0, levels - (residual < edges).astype(levels.dtype))


def _isotonic(values: Float[Array, " n"]) -> Float[Array, " n"]:
    """The nearest rising sequence: max_{j ≤ i} min_{k ≥ i} mean(v_j … v_k)."""
    places = jnp.arange(len(values), dtype=jnp.int32)
    first, last = places[:, None], places
    # Entry (j, k): v_j + … + v_k over their number.
    inside = (first[..., None] <= places) & (places <= last[:, None])
    means = jnp.sum(jnp.where(inside, values, 0), axis=2) / jnp.maximum(last - first + 1, 1).astype(values.dtype)
    lowest = jnp.min(jnp.where(last >= places[:, None, None], means, jnp.inf), axis=2)  # entry (i, j), k ≥ i
    return jnp.max(jnp.where(places <= places[:, None], lowest, -jnp.inf), axis=1)
