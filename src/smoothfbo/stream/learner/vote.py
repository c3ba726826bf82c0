"""Which class to say: a vote of all classifiers, weighted by their mistakes. What is reported is what is minimised.

    w_k ∝ exp(−η M_k),   M_k = Σ_s ρ^age 1[class_k(s) wrong],   v_c = Σ_k w_k 1[class_k = c]

(weighted majority; Littlestone & Warmuth, Information and Computation 108, 1994: with K classifiers and no forgetting
the vote alone makes at most (η M* + log K) / log(2/(1 + e^−η)) mistakes). The classifiers are the experts, their
mixture, and the calibrated probabilities p. Predicted is the class with the largest v + p: p decides where the votes
are divided. A mixture in squares or in likelihoods may be the best of all in that loss and still make more mistakes
than one of its experts.

The probabilities that are reported hold a part of the vote, and their largest is that of the predicted class: they
are the nearest ones (largest likelihood, i.e. means of classes that are out of order; Ayer et al., Annals of
Mathematical Statistics 26, 1955).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from smoothfbo.stream.learner.discounting import running_sums

RATE = 1.5
RETENTION = 0.998  # of mistakes, per row
SHARE = 0.1  # of the vote in the probabilities
LEAD = 1e-9  # of the predicted class, where classes are pooled


def vote(
    mistakes: Float[Array, " classifiers"],
    classes: Float[Array, "classifiers rows"],
    probabilities: Float[Array, "rows classes"],
    target: Float[Array, " rows"],
    known: Float[Array, " rows"],
) -> tuple[Float[Array, " classifiers"], Float[Array, " rows"], Float[Array, "rows classes"]]:
    """M after a block, the classes predicted in its rows one after the other, and their probabilities.

    A row moves the weights if its target is known.
    """
    wrong = (classes != target).astype(probabilities.dtype)
    all = running_sums(mistakes, wrong, known, RETENTION)
    weights = jax.nn.softmax(-RATE * all[:, :-1], axis=0)
    is_class = classes[:, :, None] == jnp.arange(float(probabilities.shape[1]))
    votes = jnp.einsum("kr,krc->rc", weights, is_class.astype(probabilities.dtype))
    predicted = jnp.argmax(votes + probabilities, axis=1)
    mixed = (1 - SHARE) * probabilities + SHARE * votes
    shares = jax.vmap(largest_at)(mixed / jnp.sum(mixed, axis=1, keepdims=True), predicted)
    return all[:, -1], predicted.astype(classes.dtype), shares


def count_mistakes(
    mistakes: Float[Array, " classifiers"],
    classes: Float[Array, "classifiers rows"],
    target: Float[Array, " rows"],
    counts: Float[Array, " rows"],
) -> Float[Array, " classifiers"]:
    """M after a block of which the classifiers predicted this; `counts` says for how much of a row each row counts."""
    return RETENTION ** jnp.sum(counts) * mistakes + (classes != target).astype(counts.dtype) @ counts


def largest_at(shares: Float[Array, " classes"], chosen: Int[Array, ""]) -> Float[Array, " classes"]:
    """argmax_q Σ_c p_c log q_c with q_chosen ≥ q_c: `chosen` and the classes above it share their mean."""
    own = shares[chosen]
    is_chosen = jnp.arange(shares.shape[0], dtype=chosen.dtype) == chosen
    others = jnp.sort(jnp.where(is_chosen, 0, shares))[::-1]
    # With the j largest others: their mean with `chosen`; a further class joins while it is above the mean.
    sums = own + jnp.cumsum(others) - others
    level = jnp.max(sums / jnp.arange(1.0, shares.shape[0] + 1.0))
    pooled = jnp.where(is_chosen | (shares > level), level, shares)
    return (1 - LEAD) * pooled + LEAD * is_chosen.astype(shares.dtype)
