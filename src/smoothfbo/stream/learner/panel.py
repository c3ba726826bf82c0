"""The panel of experts: what each says for every row of a block, and what some of them learn from its targets."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from smoothfbo.stream.learner.experts import ladder_predictions
from smoothfbo.stream.learner.ladder import FAMILIES, LINEAR_RATE, ladder
from smoothfbo.stream.learner.neighbours import COUNTS, class_shares, column_weights
from smoothfbo.stream.learner.products import choose, multiply
from smoothfbo.stream.learner.random_features import Expanded, draw, empty_fit, empty_random_features, expand, recur
from smoothfbo.stream.learner.since import SHORT, Since, empty_since, is_worse, judge
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.views import Views, pairs
from smoothfbo.stream.rows import Rows

NEW = 4.0  # times as large are all other errors where a new law is seen within its first block


class ExpertPredictions(NamedTuple):
    """What the experts say, in the order of `Specification.expert_names`; the states after the block is known."""

    experts: Float[Array, "experts rows outputs"]
    since: Since
    random: Expanded


class Panel:
    """Learned memory, ladder of forgetting rates, what came since the last change, random features, for numbers
    products of columns, for classes the nearest rows, last values."""

    def __init__(self, spec: Specification, views: Views):
        self.spec, self.views = spec, views
        self.projection = draw(spec.features, spec.lags, spec.seed)
        self.products = choose(spec.own, spec.seed) if spec.has_products else None
        self.linear = max(i for i, k in enumerate(ladder(spec.rates)) if k <= LINEAR_RATE)

    def no_changes(self) -> Since:
        return empty_since(self.spec.kept)

    def no_random_features(self) -> Expanded:
        columns, goals = self.spec.features, 2 * self.spec.outputs
        products = None if self.products is None else empty_fit(columns + 1 + len(self.products.one), goals)
        return Expanded(empty_random_features(columns, goals), products)

    def predict(
        self,
        state: LearnerState,
        block: Rows,
        inputs: Float[Array, "rows p"],
        learned: Float[Array, "1 rows outputs"],
        counts: Float[Array, " rows"],
        weight: Float[Array, " rows"] | None = None,
    ) -> ExpertPredictions:
        """Rows one after the other; `learned` is what the learned memory says, `counts` says which targets are known.

        The fits follow the known targets of the same block, with the `weight` of their rows.
        """
        spec = self.spec
        previous = self.views.previous(state, block.previous)
        target = self.views.target(jnp.where(jnp.isnan(block.target), 0, block.target))
        learnt = jnp.where(self.views.is_learnt_free(state, block), counts, 0)
        at_once = learnt if weight is None else learnt * weight
        mean, spread = self.views.units_of_target(state)
        sums = jnp.concatenate([state.memory.decayed, state.since.moments[None]])
        moments = self.views.current(state)(sums)
        fits = ladder_predictions(
            moments,
            sums[:, spec.constant, spec.constant],
            inputs,
            (target - mean) / spread,
            (previous - mean) / spread,
            at_once,
        )
        since = judge(state.since, _compared(fits), (target - mean) / spread, counts)
        fits = fits * spread + mean
        random, guesses = self._recur(state, inputs, fits, previous, target, learnt)
        near = self._neighbours(state, block, inputs, previous, moments[ladder(spec.rates)[self.linear]], at_once)
        seasons = self.views.seasons(block, previous)
        experts = jnp.concatenate([learned, fits, guesses, near, seasons, previous[None]])
        return ExpertPredictions(self.views.bounded(state, experts, previous), since, random)

    def _neighbours(
        self, state: LearnerState, block: Rows, inputs: Array, previous: Array, moments: Array, known: Array
    ) -> Float[Array, "experts rows outputs"]:
        """What the classes of the nearest rows say: of those that are kept, and of earlier ones of the same block that
        are `known`. The value before where there is none."""
        spec, rows = self.spec, inputs[:, :-1]
        if not spec.is_classification:
            return previous[None][:0]
        targets = jnp.concatenate([state.raw.target.ravel(), block.target])
        kept = self.views.inputs(state, state.raw.features.reshape(spec.features, -1).T)[:, :-1]
        others, classes = jnp.concatenate([kept, rows]), self.views.target(targets)
        is_kept = jnp.broadcast_to(~jnp.isnan(targets[: len(kept)]), (len(rows), len(kept)))
        counts = jnp.concatenate([is_kept, jnp.tri(len(rows), k=-1, dtype=bool) & (known > 0)], axis=1)
        metrics = (~self.views.is_lag).astype(rows.dtype), column_weights(moments, spec.constant + 1)
        shares = [
            class_shares(rows * metric, others * metric, classes, counts, count)
            for metric, count in zip(metrics, COUNTS, strict=True)
        ]
        return jnp.where(jnp.any(counts, axis=1)[:, None], jnp.stack(shares), previous)

    def judge(
        self,
        state: LearnerState,
        block: Rows,
        predicted: Float[Array, "experts rows outputs"],
        counts: Float[Array, " rows"],
        is_outdated: Bool[Array, ""],
    ) -> tuple[Since, Expanded]:
        """What a block that is known late says of what the experts had predicted of it; nothing of changes, if that is
        outdated."""
        fits = self._fits(predicted)
        mean, spread = self.views.units_of_target(state)
        target = self.views.target(jnp.where(jnp.isnan(block.target), 0, block.target))
        judged = jnp.where(is_outdated, 0, counts)
        since = judge(state.since, _compared((fits - mean) / spread), (target - mean) / spread, judged)
        inputs, previous = self.views.inputs(state, block.features), self.views.previous(state, block.previous)
        learnt = jnp.where(self.views.is_learnt_free(state, block), counts, 0)
        return since, self._recur(state, inputs, fits, previous, target, learnt)[0]

    def has_changed(
        self, block: Rows, present: Float[Array, "experts rows outputs"], counts: Float[Array, " rows"]
    ) -> Bool[Array, ""]:
        """Whether the fits of now, whose predictions are `present`, show a change."""
        target = self.views.target(jnp.where(jnp.isnan(block.target), 0, block.target))
        return is_worse(_compared(self._fits(present)), target, counts)

    @property
    def is_second_half(self) -> Bool[Array, " rows"]:
        return jnp.arange(self.spec.rows, dtype=jnp.int32) >= self.spec.rows // 2

    def is_new(
        self,
        block: Rows,
        present: Float[Array, "experts rows outputs"],
        again: Float[Array, "rows outputs"],
        counts: Float[Array, " rows"],
    ) -> Bool[Array, ""]:
        """Whether a fit to nothing but the rows of the block before each is far better `again` than all fits of now.

        The second half of the block says so. Fits of now may be off by a constant: errors H rows ahead change slowly,
        and the rows next to each other have the same one.
        """
        target = self.views.target(jnp.where(jnp.isnan(block.target), 0, block.target))
        judged = jnp.where(self.is_second_half, counts, 0)
        errors = present - target
        middle = jnp.einsum("kro,r->ko", errors, judged) / jnp.maximum(jnp.sum(judged), 1)
        losses = jnp.sum((errors - middle[:, None]) ** 2, axis=2) @ judged
        return NEW * (jnp.sum((again - target) ** 2, axis=1) @ judged) < jnp.min(losses)

    def _fits(self, experts: Float[Array, "experts rows outputs"]) -> Float[Array, "fits rows outputs"]:
        """The ladder, and the fit to what came since the last change."""
        return experts[1 : 1 + len(FAMILIES) * len(ladder(self.spec.rates)) + 1]

    def _recur(
        self, state: LearnerState, inputs: Array, fits: Array, previous: Array, target: Array, counts: Array
    ) -> tuple[Expanded, Float[Array, "experts rows outputs"]]:
        """Random features and products learn what two simple experts leave over, and what each adds to them; see
        `recur`. With a delay it is the past alone that says so."""
        _, unit = self.views.first_units_of_target(state)
        bases = jnp.stack([fits[self.linear], previous])
        rest = pairs(*((target - bases) / unit))
        waves, *found = recur(state.random.waves, expand(inputs, *self.projection), rest, counts)
        all_found, products = [found], None
        if self.products is not None and state.random.products is not None:
            products, *found = recur(state.random.products, multiply(inputs, self.products), rest, counts)
            all_found.append(found)
        added = [ahead if self.spec.delay == 0 else by_past for ahead, by_past in all_found]
        guesses = [bases + jnp.stack([one[:, ::2], one[:, 1::2]]) * unit for one in added]
        return Expanded(waves, products), jnp.concatenate(guesses)


def _compared(fits: Float[Array, "fits rows outputs"]) -> Float[Array, "compared rows outputs"]:
    """The fit to what came since the last change stands last; the shortest memories stand first."""
    return jnp.roll(fits, 1, axis=0)[: SHORT + 1]
