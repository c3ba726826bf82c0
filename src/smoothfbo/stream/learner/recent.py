"""Mixtures that follow the experts that were best lately: after a jump of the data a long sum would come too late.

    w_k ∝ exp(−(L_k − min_j L_j)/s²),   L_k = Σ_s ρ^age |x_k − y|²,   s² = min_j L_j / Σ_s ρ^age

for a short and a longer memory 1/(1 − ρ): dynamic model averaging (Raftery, Kárný & Ettler, Technometrics 52, 2010),
with the mean loss of the leader for the variance.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from smoothfbo.stream.learner.discounting import running_sums

RETENTIONS = (0.9, 0.99)
ROUNDING = 1e-20  # mean squares up to here are rounding
LARGEST = 1e100  # squared error: of finite ones, the sums stay finite


class Recent(NamedTuple):
    """L and Σ ρ^age, for every memory."""

    losses: Float[Array, "memories experts"]
    rows: Float[Array, " memories"]


def empty_recent(experts: int) -> Recent:
    return Recent(jnp.zeros((len(RETENTIONS), experts)), jnp.zeros(len(RETENTIONS)))


def follow(
    state: Recent,
    experts: Float[Array, "experts rows columns"],
    finite: Bool[Array, "experts rows"],
    targets: Float[Array, "rows columns"],
    known: Float[Array, " rows"],
) -> tuple[Recent, Float[Array, "memories rows columns"]]:
    """What the mixtures say for the rows of a block, one after the other; a row counts if its target is known.

    An expert without a prediction has the largest loss of its row.
    """
    errors = jnp.where(finite, jnp.minimum(jnp.sum((experts - targets) ** 2, axis=2), LARGEST), 0)
    errors = jnp.where(finite, errors, jnp.max(errors, axis=0))
    predicted, losses, rows = [], [], []
    for index, retention in enumerate(RETENTIONS):
        sums = running_sums(state.losses[index], errors, known, retention)
        counts = running_sums(state.rows[index : index + 1], jnp.ones_like(errors[:1]), known, retention)[0]
        here = jnp.where(finite, sums[:, :-1], jnp.inf)
        leader = jnp.min(here, axis=0)
        scale = jnp.maximum(leader / jnp.maximum(counts[:-1], 1), ROUNDING)
        weights = jax.nn.softmax(-(here - leader) / scale, axis=0)
        predicted.append(jnp.einsum("kr,krc->rc", weights, experts))
        losses.append(sums[:, -1])
        rows.append(counts[-1])
    return Recent(jnp.stack(losses), jnp.stack(rows)), jnp.stack(predicted)
