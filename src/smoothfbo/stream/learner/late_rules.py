"""The three rules of `aggregation`, learning from whole blocks whose targets are known late.

x_k is what expert k predicted, p what the rule itself predicted, y the target; a known row counts for c of a row. With
N = c·(known rows), u the weight of a large error (Huber), r_k = 2u(p − y)·(p − x_k) and the prior π:

- *Bernstein*:  R_k ← ρ^N R_k + cΣ(r_k − η_k r_k²),  w_k ∝ π_k η_k exp(η_k R_k),  η_k = min(1/max|r_k|, √(log K / V_k)),
  V_k ← ρ^N V_k + cΣ r_k²
- *Polynomial*: R_k ← ρ^N R_k + cΣ r_k,  w_k ∝ π_k (R_k)₊ / (max r² + V_k)
- *Shared*:     w_k ← ((1 − α)w_k + απ_k) exp(−cΣ|x_k − y|²/2s²),  α = 1 − (1 − SHARE)^N

For c = 1, blocks of one row and π = 1/K they are those of `aggregation`. H copies of a rule by turns, each of which
learns from every Hth row and so without a delay, have √H times its regret (Joulani, György & Szepesvári, ICML 2013).
c = 1/H gives one rule the rates of such a copy.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from smoothfbo.stream.learner.aggregation import (
    FEWEST_ROWS,
    LARGEST_LOSS,
    RETENTION,
    SCALE_ROWS,
    SHARE,
    Regrets,
    Rules,
    Shared,
    rounding,
)


class Block(NamedTuple):
    """The targets of a block, which of its rows are known, and for how much of a row each of these counts."""

    goals: Float[Array, "rows columns"]
    is_known: Bool[Array, " rows"]
    part: float

    @property
    def counts(self) -> Float[Array, " rows"]:
        return self.part * self.is_known.astype(self.goals.dtype)

    @property
    def number(self) -> Float[Array, ""]:
        """N: the rows, each as much as it counts."""
        return jnp.sum(self.counts)


def mix_by_rules(
    rules: Rules,
    experts: Float[Array, "experts rows columns"],
    finite: Bool[Array, "experts rows"],
    prior: Float[Array, " experts"],
) -> Float[Array, "rules rows columns"]:
    """What the three rules say, each by its weights."""
    bernstein, polynomial, shared = rules
    differs, rate = bernstein.largest > 0, _rate(bernstein)
    rate = jnp.where(differs, rate, jnp.max(rate))  # an expert that never differed has the largest rate of all
    exponents = rate * bernstein.sums
    by_bernstein = jnp.where(jnp.any(differs), rate * jnp.exp(exponents - jnp.max(exponents)), 1)
    squares = jnp.max(polynomial.largest) + polynomial.squares
    by_polynomial = jnp.maximum(polynomial.sums, 0) / jnp.where(squares > 0, squares, 1)
    by_polynomial = jnp.where(jnp.any(by_polynomial > 0), by_polynomial, 1)
    weights = jnp.stack([prior * by_bernstein, prior * by_polynomial, _share(shared, prior, SHARE)])
    weights = weights[:, :, None] * finite.astype(weights.dtype)
    return jnp.einsum("wkr,krc->wrc", weights / jnp.sum(weights, axis=1, keepdims=True), experts)


def learn_rules(
    rules: Rules,
    predicted: Float[Array, "rules rows columns"],
    experts: Float[Array, "experts rows columns"],
    finite: Bool[Array, "experts rows"],
    block: Block,
    prior: Float[Array, " experts"],
    large: float,
) -> Rules:
    """The rules after a block of which they `predicted` this; errors above `large` · s weigh less."""
    goals, is_known, shared = block.goals, block.is_known, rules.shared
    rows = jnp.sum(is_known, dtype=jnp.int32)
    errors = jnp.where(is_known, jnp.sum((predicted - goals) ** 2, axis=2), 0)
    weights = jax.vmap(lambda error: huber_weights(error, large, shared))(errors[:2])
    regrets = jnp.einsum("wrc,wkrc->wkr", 2 * (predicted - goals)[:2], predicted[:2, None] - experts) * weights[:, None]
    does_count = finite & is_known & (jnp.abs(regrets) > rounding(predicted[:2], goals)[:, None])
    by_bernstein, by_polynomial = jnp.where(does_count, regrets, 0)
    bernstein = _add(rules.bernstein, by_bernstein, jnp.abs(by_bernstein), block)
    cautious = block.part * jnp.sum(by_bernstein**2, axis=1)
    after = Rules(
        bernstein._replace(sums=bernstein.sums - _rate(bernstein) * cautious),
        _add(rules.polynomial, by_polynomial, by_polynomial**2, block),
        _add_shared(shared, predicted[2], experts, finite, block, prior),
    )
    return optax.tree.where(rows > 0, after, rules)


def _add(state: Regrets, regrets: Float[Array, "experts rows"], size: Array, block: Block) -> Regrets:
    kept = RETENTION**block.number
    return Regrets(
        kept * state.sums + block.part * jnp.sum(regrets, axis=1),
        kept * state.squares + block.part * jnp.sum(regrets**2, axis=1),
        jnp.maximum(kept * state.largest, jnp.max(size, axis=1)),
    )


def _add_shared(state: Shared, predicted: Array, experts: Array, finite: Array, block: Block, prior: Array) -> Shared:
    """s² is a mean of the rule's own losses: of all of them, then of the last `SCALE_ROWS`."""
    number = jnp.sum(block.is_known, dtype=jnp.int32)
    rows = state.rows + number
    own = jnp.sum(jnp.where(block.is_known, jnp.sum((predicted - block.goals) ** 2, axis=1), 0))
    mean = own / jnp.maximum(number, 1).astype(own.dtype)
    share = jnp.maximum(block.number / SCALE_ROWS, number.astype(own.dtype) / jnp.maximum(rows, 1).astype(own.dtype))
    scale = state.scale + jnp.minimum(share, 1) * (mean - state.scale)
    scale = jnp.maximum(scale, jnp.finfo(own.dtype).tiny)
    losses = jnp.sum((jnp.where(finite[:, :, None], experts, predicted) - block.goals) ** 2, axis=2)
    losses = jnp.minimum(losses / scale, LARGEST_LOSS) @ block.counts
    return Shared(jnp.log(_share(state, prior, 1 - (1 - SHARE) ** block.number)) - losses / 2, scale, rows)


def _share(state: Shared, prior: Array, share: Array | float) -> Float[Array, " experts"]:
    """Before the first row the weights are those of the prior."""
    weights = jnp.where(state.rows > 0, jax.nn.softmax(state.log_weights), prior)
    return (1 - share) * weights + share * prior


def _rate(state: Regrets) -> Float[Array, " experts"]:
    """η_k; 0 for an expert that never differed from the mixture."""
    differs = state.largest > 0
    count = jnp.asarray(float(state.sums.shape[0]))
    by_squares = jnp.sqrt(jnp.log(count) / jnp.where(differs, state.squares, 1))
    return jnp.where(differs, jnp.minimum(1 / jnp.where(differs, state.largest, 1), by_squares), 0)


def huber_weights(error: Float[Array, " rows"], large: float, shared: Shared) -> Float[Array, " rows"]:
    """u = min(1, large · s/|p − y|); `error` is the square."""
    allowed = large**2 * jnp.where(shared.rows < FEWEST_ROWS, jnp.inf, shared.scale)
    return jnp.where(error > allowed, jnp.sqrt(allowed / jnp.where(error > 0, error, 1)), 1)
