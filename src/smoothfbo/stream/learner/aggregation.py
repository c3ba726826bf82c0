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
import optax
from jaxtyping import Array, Float, Int

from smoothfbo.stream.learner.recent import RETENTIONS, Recent, empty_recent, follow
from smoothfbo.stream.learner.stacking import Stack, empty_stack, stacked

RETENTION = 0.998  # of sums of regrets, per row
SHARE = 0.01
SCALE_ROWS = 256  # over which s² is a mean
LARGEST_LOSS = 50.0  # of an expert, in units of s²
ROUNDING = 1e-12  # of the size of predictions: experts that differ by no more agree
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
    first, predicted, weights = _mix(state.first, experts, finite, goals, known, VERY_LARGE_ERROR)
    recent, by_recent = follow(state.recent, experts, finite, goals, known)
    base, candidates, stack = predicted[0], jnp.concatenate([predicted, by_recent]), state.stack
    if stack is not None:
        # An expert without a prediction says what the Bernstein rule says: it changes nothing.
        differences = jnp.where(finite, experts[:, :, 0] - base[None, :, 0], 0)
        stack, beyond = stacked(stack, differences.T, goals - base, known * weights, state.first.shared.scale)
        candidates = jnp.concatenate([candidates, base[None] + beyond[:, :, None]])
    second, predicted, _ = _mix(state.second, candidates, jnp.ones(candidates.shape[:2], bool), goals, known, jnp.inf)
    return Aggregate(first, recent, stack, second), jnp.mean(predicted, axis=0)


def trust(state: Aggregate, expert: int) -> Aggregate:
    """An expert that begins again is another one: it starts level with the best, and the mixtures of all start equal.

        L_k ← min_j L_j,   R_k ← max_j R_j,   w_k ← max_j w_j;   over the mixtures R ← 0, w ← 1

    What it lost before would keep it from what it says now, and after a jump the first blocks make an expert with the
    shortest memory the best by more than the mixtures could forget in hundreds of rows. s² stays.
    """
    first, recent, second = state.first, state.recent, state.second

    def level(regrets: Regrets) -> Regrets:
        return regrets._replace(sums=regrets.sums.at[expert].set(jnp.max(regrets.sums)))

    logs = first.shared.log_weights
    shared = first.shared._replace(log_weights=logs.at[expert].set(jnp.max(logs)))
    losses = recent.losses.at[:, expert].set(jnp.min(recent.losses, axis=1))
    fresh = _no_rules(len(second.shared.log_weights))
    return state._replace(
        first=Rules(level(first.bernstein), level(first.polynomial), shared),
        recent=recent._replace(losses=losses),
        second=fresh._replace(shared=second.shared._replace(log_weights=fresh.shared.log_weights)),
    )


class Weighing(NamedTuple):
    """What the weights of a row are made of, for the first two rules side by side, and the third.

    `regrets` are those of the Bernstein and of the polynomial rule, `rates` the η_k of the first, `shares` the w_k of
    the third before a part of them is shared, up to a factor. `scale` and `rows` are those of `Shared`.
    """

    regrets: Regrets
    rates: Float[Array, " experts"]
    shares: Float[Array, " experts"]
    scale: Float[Array, ""]
    rows: Int[Array, ""]


def _mix(
    state: Rules, experts: Array, finite: Array, goals: Array, known: Array, large: float
) -> tuple[Rules, Float[Array, "rules rows columns"], Float[Array, " rows"]]:
    """What the three rules say, and the weight min(1, 3s/|p − y|) of every row in the stacks.

    A row is so little arithmetic that the number of compiled steps counts: the rules go side by side, with one
    reduction for all maxima and one for all sums.
    """
    columns = experts.shape[2]
    # For each row and expert: what it says, whether it says something, and 1.
    is_expert = finite.T.astype(experts.dtype)[:, None]
    inputs = jnp.concatenate([jnp.transpose(experts, (1, 2, 0)), is_expert, jnp.ones_like(is_expert)], axis=1)

    def row(before: Weighing, here: tuple[Array, ...]) -> tuple[Weighing, tuple[Array, Array]]:
        x, y, is_known = here
        is_finite = x[columns] > 0
        # Over the experts that say something: weights times predictions, and weights; and the weights of all.
        sums = jnp.sum(_weights(before)[:, None] * x, axis=2)
        x, kept, share = x[:columns], (1 - SHARE) / sums[2, -1], SHARE / x.shape[1]
        mixed = jnp.stack([sums[0], sums[1], kept * sums[2] + share * sums[3]])
        p = mixed[:, :columns] / mixed[:, columns : columns + 1]
        errors = jnp.sum((p - y) ** 2, axis=1)
        scale = jnp.where(before.rows < FEWEST_ROWS, jnp.inf, before.scale)
        slopes = 2 * _part(errors[:2], large**2 * scale)[:, None] * (p[:2] - y)
        regrets = jnp.sum((p[:2, :, None] - x) * slopes[:, :, None], axis=1)
        regrets = jnp.where(is_finite & (jnp.abs(regrets) > rounding(p[:2], y)[:, None]), regrets, 0)
        losses = jnp.sum((jnp.where(is_finite, x, p[2][:, None]) - y[:, None]) ** 2, axis=0)
        part = jnp.maximum(1 / SCALE_ROWS, 1 / (before.rows + 1).astype(x.dtype))
        own = jnp.maximum(before.scale + part * (errors[2] - before.scale), jnp.finfo(x.dtype).tiny)
        shares = (kept * before.shares + share) * jnp.exp(-jnp.minimum(losses / own, LARGEST_LOSS) / 2)
        after = Weighing(*_add(before.regrets, regrets), shares, own, before.rows + 1)
        after = optax.tree.where(is_known > 0, after, before)
        return after, (p, _part(errors[0], LARGE_ERROR**2 * scale))

    after, (predicted, weights) = jax.lax.scan(row, weighing(state), (inputs, goals, known))
    bernstein, polynomial = (jax.tree.map(lambda both, rule=rule: both[rule], after.regrets) for rule in range(2))
    return (
        Rules(bernstein, polynomial, Shared(jnp.log(after.shares), after.scale, after.rows)),
        jnp.swapaxes(predicted, 0, 1),
        weights,
    )


def weighing(state: Rules) -> Weighing:
    """What the weights of the next row are made of."""
    regrets = jax.tree.map(lambda *pair: jnp.stack(pair), state.bernstein, state.polynomial)
    logs = state.shared.log_weights
    return Weighing(regrets, _rates(regrets), jnp.exp(logs - jnp.max(logs)), *state.shared[1:])


def rounding(predicted: Float[Array, "*rows columns"], goals: Float[Array, "*rows columns"]) -> Float[Array, "*rows"]:
    """The largest r_k that rounding makes of experts that agree: ε Σ |p − y|(|p| + |y|), over the columns.

    The rules, free of all scales, would take it for a regret. The size of p matters: far from zero, where errors are
    small beside it, all that p − x_k has is rounding.
    """
    return ROUNDING * jnp.sum(jnp.abs(predicted - goals) * (jnp.abs(predicted) + jnp.abs(goals)), axis=-1)


def _weights(state: Weighing) -> Float[Array, "4 experts"]:
    """Weights of the three rules, up to a factor each, and 1.

    - *Bernstein*: η_k exp(η_k R_k); equal before the first regret.
    - *Polynomial*: (R_k)₊ / (max r² + Σ r_k²); equal where no regret is positive.
    - *Shared*: w_k before a part of it is shared.
    """
    (_, positive), (_, squares), (_, largest) = state.regrets
    exponents = state.rates * state.regrets.sums[0]
    rate, exponent, highest, most = jnp.max(jnp.stack([state.rates, exponents, positive, largest]), axis=1)
    # An expert that never differed from the mixture has the largest rate of all.
    by_bernstein = jnp.where(state.rates > 0, state.rates, rate) * jnp.exp(exponents - exponent)
    squares = squares + most
    by_polynomial = jnp.maximum(positive, 0) / jnp.where(squares > 0, squares, 1)
    by_bernstein, by_polynomial = jnp.where(rate > 0, by_bernstein, 1), jnp.where(highest > 0, by_polynomial, 1)
    return jnp.stack([by_bernstein, by_polynomial, state.shares, jnp.ones_like(exponents)])


def _rates(state: Regrets) -> Float[Array, " experts"]:
    """η_k of the Bernstein rule; 0 for an expert that never differed from the mixture."""
    differs, squares = state.largest[0] > 0, state.squares[0]
    by_squares = jnp.sqrt(jnp.log(jnp.asarray(float(len(squares)))) / jnp.where(differs, squares, 1))
    return jnp.where(differs, jnp.minimum(1 / jnp.where(differs, state.largest[0], 1), by_squares), 0)


def _add(state: Regrets, regrets: Float[Array, "2 experts"]) -> tuple[Regrets, Float[Array, " experts"]]:
    """The sums of both rules with a row more, and η."""
    is_bernstein = jnp.arange(2)[:, None] == 0
    size = jnp.where(is_bernstein, jnp.abs(regrets), regrets**2)
    after = Regrets(state.sums, RETENTION * state.squares + regrets**2, jnp.maximum(RETENTION * state.largest, size))
    rates = _rates(after)
    sums = RETENTION * state.sums + regrets - jnp.where(is_bernstein, rates * regrets**2, 0)
    return after._replace(sums=sums), rates


def _part(loss: Array, allowed: Array) -> Array:
    return jnp.where(loss > allowed, jnp.sqrt(allowed / jnp.where(loss > 0, loss, 1)), 1)


def _no_rules(count: int) -> Rules:
    shared = Shared(jnp.zeros(count), jnp.zeros(()), jnp.zeros((), jnp.int32))
    return Rules(_no_regrets(count), _no_regrets(count), shared)


def _no_regrets(count: int) -> Regrets:
    return Regrets(jnp.zeros(count), jnp.zeros(count), jnp.zeros(count))
