"""The recommended prediction: a mixture of all experts whose weights move after every row.

Three rules mix the experts by their squared losses. x_k is what expert k says, p what a rule says, y the target, and
r_k = 2(p − y)·(p − x_k) the linearised regret; sums are discounted by `RETENTION` per row, so that a change of the
data, or of the target's scale, is forgotten. A row's regrets count with its weight min(1, 5s/|p − y|) (Huber, Annals of
Mathematical Statistics 35, 1964), so that a few very large errors do not decide which expert is best.

- *Bernstein*: w_k ∝ η_k exp(η_k R_k), R_k = Σ r_k − η_k r_k², η_k = min(1/max|r_k|, √(log K / Σ r_k²)). BOA
  (Wintenberger, Machine Learning 106, 2017).
- *Polynomial*: w_k ∝ (R_k)₊ / (max r² + Σ r_k²), R_k = Σ r_k. ML-Poly (Gaillard, Stoltz & van Erven, COLT 2014).
- *Shared*: w_k ∝ w_k exp(−|x_k − y|²/2s²), then w_k ← (1 − α)w_k + α/K: fixed share (Herbster & Warmuth, Machine
  Learning 32, 1998), with s² the running mean of the rule's own loss. It follows sudden changes.

Two mixtures follow the experts that were best lately (see `recent`). With one output, two ridge regressions on the
experts' predictions are added (see `stacking`): they may go beyond a mean of experts. The three rules mix these five or
seven again, with all regrets in full, and the result is their mean.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from smoothfbo.stream.learner.recent import RETENTIONS, Recent, empty_recent, follow
from smoothfbo.stream.learner.stacking import Stack, empty_stack, stacked

RETENTION = 0.998  # of sums of regrets, per row
SHARE = 0.01
SCALE_ROWS = 256  # over which s² is a mean
LARGEST_LOSS = 50.0  # of an expert, in units of s²
ROUNDING = 1e-12  # of the loss: regrets up to here are none
LARGE_ERROR = 3.0  # in units of s: the stacks weigh rows with larger ones less
VERY_LARGE_ERROR = 5.0  # and the first two rules those with larger ones than this
FEWEST_ROWS = 8  # from which s can be told


class Regrets(NamedTuple):
    """Discounted sums of a rule: of regrets and their squares, and their largest size."""

    sums: Float[Array, " experts"]
    squares: Float[Array, " experts"]
    largest: Float[Array, " experts"]


class Shared(NamedTuple):
    """Logarithms of the weights, the scale s² and the rows it has seen."""

    log_weights: Float[Array, " experts"]
    scale: Float[Array, ""]
    rows: Int[Array, ""]


class Rules(NamedTuple):
    """The three rules over one set of experts."""

    bernstein: Regrets
    polynomial: Regrets
    shared: Shared


class Aggregate(NamedTuple):
    """All that the next row needs: the rules over the experts, the other mixtures, and the rules over all of these."""

    first: Rules
    recent: Recent
    stack: Stack | None
    second: Rules


def empty_aggregate(experts: int, columns: int) -> Aggregate:
    stack = empty_stack(experts) if columns == 1 else None
    candidates = len(Rules._fields) + len(RETENTIONS) + (0 if stack is None else stack.moments.shape[0])
    return Aggregate(_no_rules(experts), empty_recent(experts), stack, _no_rules(candidates))


def aggregate(
    state: Aggregate,
    experts: Float[Array, "experts rows columns"],
    targets: Float[Array, "rows columns"],
    known: Float[Array, " rows"],
) -> tuple[Aggregate, Float[Array, "rows columns"]]:
    """Mix the rows of a block one after the other; a row moves the weights if its target is known.

    A prediction that is not finite has no weight in its row.
    """
    goals = jnp.where(known[:, None] > 0, targets, 0)
    finite = jnp.all(jnp.isfinite(experts), axis=2)
    experts = jnp.where(finite[:, :, None], experts, 0)
    first, said, weights = _mix(state.first, experts, finite, goals, known, VERY_LARGE_ERROR)
    recent, by_recent = follow(state.recent, experts, finite, goals, known)
    base, candidates, stack = said[0], jnp.concatenate([said, by_recent]), state.stack
    if stack is not None:
        # An expert without a prediction says what the Bernstein rule says: it changes nothing.
        differences = jnp.where(finite, experts[:, :, 0] - base[None, :, 0], 0)
        stack, beyond = stacked(stack, differences.T, goals - base, known * weights, state.first.shared.scale)
        candidates = jnp.concatenate([candidates, base[None] + beyond[:, :, None]])
    second, said, _ = _mix(state.second, candidates, jnp.ones(candidates.shape[:2], bool), goals, known, jnp.inf)
    return Aggregate(first, recent, stack, second), jnp.mean(said, axis=0)


def _mix(
    state: Rules, experts: Array, finite: Array, goals: Array, known: Array, large: float
) -> tuple[Rules, Float[Array, "rules rows columns"], Float[Array, " rows"]]:
    """What the three rules say, and the weight min(1, 3s/|p − y|) of every row in the stacks."""

    def row(rules: Rules, here: tuple[Array, ...]) -> tuple[Rules, tuple[Array, Array]]:
        bernstein, polynomial, shared = rules
        x, is_finite, y, is_known = here
        weights = [bernstein_weights(bernstein), polynomial_weights(polynomial), shared_weights(shared)]
        weights = [_normal(jnp.where(is_finite, w, 0)) for w in weights]
        p = jnp.stack(weights) @ x
        scale = jnp.where(shared.rows < FEWEST_ROWS, jnp.inf, shared.scale)
        errors = jnp.sum((p - y) ** 2, axis=1)
        parts = [_part(errors[i], large**2 * scale) for i in range(2)]
        regrets = [jnp.where(is_finite, parts[i] * ((p[i] - x) @ (2 * (p[i] - y))), 0) for i in range(2)]
        # Experts that agree differ by rounding, which the rules, free of all scales, would take for regrets.
        regrets = [jnp.where(jnp.abs(regrets[i]) > ROUNDING * errors[i], regrets[i], 0) for i in range(2)]
        losses = jnp.sum((jnp.where(is_finite[:, None], x, p[2]) - y) ** 2, axis=1)
        after = Rules(
            add_bernstein(bernstein, regrets[0]),
            add_polynomial(polynomial, regrets[1]),
            add_shared(shared, losses, errors[2]),
        )
        after = jax.tree.map(lambda new, old: jnp.where(is_known > 0, new, old), after, rules)
        return after, (p, _part(errors[0], LARGE_ERROR**2 * scale))

    swapped = jnp.swapaxes(experts, 0, 1), finite.T, goals, known
    after, (said, weights) = jax.lax.scan(row, state, swapped)
    return after, jnp.swapaxes(said, 0, 1), weights


def bernstein_weights(state: Regrets) -> Float[Array, " experts"]:
    """η_k exp(η_k R_k), normalised; equal before the first regret."""
    rate = _bernstein_rate(state)
    exponents = rate * state.sums
    weights = rate * jnp.exp(exponents - jnp.max(exponents))
    return _normal(jnp.where(jnp.any(state.largest > 0), weights, 1))


def add_bernstein(state: Regrets, regrets: Float[Array, " experts"]) -> Regrets:
    after = _with_squares(state, regrets, jnp.abs(regrets))
    return after._replace(sums=RETENTION * state.sums + regrets - _bernstein_rate(after) * regrets**2)


def _bernstein_rate(state: Regrets) -> Float[Array, " experts"]:
    """η_k; an expert that never differed from the mixture has the largest rate of all."""
    differs = state.largest > 0
    count = jnp.asarray(float(state.sums.shape[0]))
    by_squares = jnp.sqrt(jnp.log(count) / jnp.where(differs, state.squares, 1))
    rate = jnp.where(differs, jnp.minimum(1 / jnp.where(differs, state.largest, 1), by_squares), 0)
    return jnp.where(differs, rate, jnp.max(rate))


def polynomial_weights(state: Regrets) -> Float[Array, " experts"]:
    """(R_k)₊ / (max r² + Σ r_k²), normalised; equal where no regret is positive."""
    scale = jnp.max(state.largest) + state.squares
    weights = jnp.maximum(state.sums, 0) / jnp.where(scale > 0, scale, 1)
    return _normal(jnp.where(jnp.any(weights > 0), weights, 1))


def add_polynomial(state: Regrets, regrets: Float[Array, " experts"]) -> Regrets:
    return _with_squares(state, regrets, regrets**2)._replace(sums=RETENTION * state.sums + regrets)


def shared_weights(state: Shared) -> Float[Array, " experts"]:
    weights = _normal(jnp.exp(state.log_weights - jnp.max(state.log_weights)))
    return (1 - SHARE) * weights + SHARE / weights.shape[0]


def add_shared(state: Shared, losses: Float[Array, " experts"], own: Float[Array, ""]) -> Shared:
    rows = state.rows + 1
    part = jnp.maximum(1 / SCALE_ROWS, 1 / rows.astype(own.dtype))
    scale = jnp.maximum(state.scale + part * (own - state.scale), jnp.finfo(own.dtype).tiny)
    exponents = jnp.minimum(losses / scale, LARGEST_LOSS) / 2
    return Shared(jnp.log(shared_weights(state)) - exponents, scale, rows)


def _part(loss: Array, allowed: Array) -> Array:
    return jnp.where(loss > allowed, jnp.sqrt(allowed / jnp.where(loss > 0, loss, 1)), 1)


def _with_squares(state: Regrets, regrets: Array, size: Array) -> Regrets:
    squares = RETENTION * state.squares + regrets**2
    return state._replace(squares=squares, largest=jnp.maximum(RETENTION * state.largest, size))


def _no_rules(count: int) -> Rules:
    shared = Shared(jnp.zeros(count), jnp.zeros(()), jnp.zeros((), jnp.int32))
    return Rules(_no_regrets(count), _no_regrets(count), shared)


def _no_regrets(count: int) -> Regrets:
    return Regrets(jnp.zeros(count), jnp.zeros(count), jnp.zeros(count))


def _normal(weights: Float[Array, " experts"]) -> Float[Array, " experts"]:
    return weights / jnp.sum(weights)
