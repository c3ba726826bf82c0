"""The mixture where targets are known H rows late: what is judged is what was predicted at the time.

Rows of a block are mixed by the weights of that moment. What the experts predicted, and what the rules of `aggregation`
made of it, is kept (see `waiting`). When the targets are known, the rules learn from the losses that were really made
(see `late_rules`). To mix the kept experts again by the weights of now would not do: errors H rows ahead change slowly,
and a rule that knows the error of the row before seems far better than it was H rows ahead.

H errors in a row overlap and say little more than one. So a row counts for c = 1/H of a row, in all sums and in their
age: a sum with retention ρ becomes ρ^(cn) Σ + c Σ_rows … after a block with n known rows. What learns so slowly needs a
good start: the prior π gives one half to the last values (of now and of the seasons), and one half to all others.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from smoothfbo.stream.learner.aggregation import LARGE_ERROR, VERY_LARGE_ERROR, Aggregate, Rules, trust
from smoothfbo.stream.learner.late_rules import Block, huber_weights, learn_rules, mix_by_rules
from smoothfbo.stream.learner.recent import LARGEST, RETENTIONS, ROUNDING, Recent
from smoothfbo.stream.learner.stacking import MEMORIES, Stack, stacked


class LateMixture(NamedTuple):
    """What was predicted of the rows of a block: by mixtures of the experts, and by the rules that mix these again."""

    candidates: Float[Array, "*slots candidates rows columns"]
    rules: Float[Array, "*slots rules rows columns"]

    @property
    def mixed(self) -> Float[Array, "rows columns"]:
        return jnp.mean(self.rules, axis=0)


def mix_late(
    state: Aggregate, experts: Float[Array, "experts rows columns"], prior: Float[Array, " experts"]
) -> LateMixture:
    """Mix the rows of a block by the weights of now; a prediction that is not finite has no weight in its row."""
    experts, finite = _finite(experts)
    predicted = mix_by_rules(state.first, experts, finite, prior)
    candidates = jnp.concatenate([predicted, _follow(state.recent, experts, finite, prior)])
    if state.stack is not None:
        nothing = jnp.zeros(experts.shape[1])
        differences = _differences(experts, finite, predicted[0])
        _, beyond = stacked(state.stack, differences, nothing[:, None], nothing, state.first.shared.scale)
        candidates = jnp.concatenate([candidates, predicted[:1] + beyond[:, :, None]])
    everywhere, equal = jnp.ones(candidates.shape[:2], bool), jnp.ones(len(candidates)) / len(candidates)
    return LateMixture(candidates, mix_by_rules(state.second, candidates, everywhere, equal))


def learn_from_late_block(
    state: Aggregate,
    experts: Float[Array, "experts rows columns"],
    advice: LateMixture,
    targets: Float[Array, "rows columns"],
    known: Float[Array, " rows"],
    part: float,
    prior: Float[Array, " experts"],
) -> Aggregate:
    """The state after a block of which all this was predicted; its known rows count for `part` of a row, c."""
    experts, finite = _finite(experts)
    candidates = advice.candidates
    predicted = candidates[: len(Rules._fields)]
    block = Block(jnp.where(known[:, None] > 0, targets, 0), known > 0, part)
    first = learn_rules(state.first, predicted, experts, finite, block, prior, VERY_LARGE_ERROR)
    recent, stack = _remember(state.recent, experts, finite, block), state.stack
    if stack is not None:
        errors = block.goals - predicted[0]
        weights = block.counts * huber_weights(jnp.sum(errors**2, axis=1), LARGE_ERROR, state.first.shared)
        stack = _restack(stack, _differences(experts, finite, predicted[0]), errors[:, 0], weights, block.number)
    second = learn_rules(state.second, advice.rules, candidates, *_equal(candidates, block), jnp.inf)
    return Aggregate(first, recent, stack, second)


def trust_late(
    state: Aggregate,
    expert: int,
    experts: Float[Array, "experts rows columns"],
    targets: Float[Array, "rows columns"],
    known: Float[Array, " rows"],
    prior: Float[Array, " experts"],
) -> Aggregate:
    """`trust` where targets are known late: what was predicted H rows ago says nothing of the experts as they are now.

    So the newest block whose targets are known judges what they say of it now, and counts in full: first the experts;
    then, with the weights that follow, the mixtures of them, which begin again. Both s² stay, as errors H rows ahead
    are larger.
    """
    after = learn_from_late_block(state, experts, mix_late(state, experts, prior), targets, known, 1.0, prior)
    after = trust(_with_scales(after, state), expert)
    advice = mix_late(after, experts, prior)
    block = Block(jnp.where(known[:, None] > 0, targets, 0), known > 0, 1.0)
    second = learn_rules(after.second, advice.rules, advice.candidates, *_equal(advice.candidates, block), jnp.inf)
    return _with_scales(after._replace(second=second), state)


def _with_scales(state: Aggregate, other: Aggregate) -> Aggregate:
    def keep(rules: Rules, other: Rules) -> Rules:
        return rules._replace(shared=rules.shared._replace(scale=other.shared.scale))

    return state._replace(first=keep(state.first, other.first), second=keep(state.second, other.second))


def _equal(candidates: Array, block: Block) -> tuple[Array, Block, Array]:
    """That all mixtures say something, the block, and a prior that prefers none of them."""
    return jnp.ones(candidates.shape[:2], bool), block, jnp.ones(len(candidates)) / len(candidates)


def _finite(experts: Array) -> tuple[Array, Array]:
    finite = jnp.all(jnp.isfinite(experts), axis=2)
    return jnp.where(finite[:, :, None], experts, 0), finite


def _differences(experts: Array, finite: Array, base: Array) -> Float[Array, "rows experts"]:
    """From the Bernstein rule; an expert without a prediction says what it says."""
    return jnp.where(finite, experts[:, :, 0] - base[None, :, 0], 0).T


def _follow(state: Recent, experts: Array, finite: Array, prior: Array) -> Float[Array, "memories rows columns"]:
    """By the experts that were best lately: w_k ∝ π_k exp(−(L_k − min L)/s²), as in `recent`."""

    def follow(losses: Array, rows: Array) -> Array:
        here = jnp.where(finite, losses[:, None], jnp.inf)
        leader = jnp.min(here, axis=0)
        scale = jnp.maximum(leader / jnp.maximum(rows, 1), ROUNDING)
        weights = jax.nn.softmax(jnp.log(prior)[:, None] - (here - leader) / scale, axis=0)
        return jnp.einsum("kr,krc->rc", weights, experts)

    return jax.vmap(follow)(state.losses, state.rows)


def _remember(state: Recent, experts: Array, finite: Array, block: Block) -> Recent:
    """Losses with a block more; an expert without a prediction has the largest of its row."""
    errors = jnp.where(finite, jnp.minimum(jnp.sum((experts - block.goals) ** 2, axis=2), LARGEST), 0)
    errors = jnp.where(finite, errors, jnp.max(errors, axis=0))
    kept = jnp.asarray(RETENTIONS) ** block.number
    return Recent(kept[:, None] * state.losses + errors @ block.counts, kept * state.rows + block.number)


def _restack(state: Stack, differences: Array, errors: Array, weights: Array, number: Array) -> Stack:
    weighted = differences * weights[:, None]
    kept = jnp.asarray([1 - 1 / memory for memory in MEMORIES]) ** number
    return Stack(
        kept[:, None, None] * state.moments + weighted.T @ differences,
        kept[:, None] * state.products + errors @ weighted,
    )
