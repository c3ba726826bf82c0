"""What is recommended: a mixture of the experts, row by row; for classes its probabilities, and a vote."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from smoothfbo.stream.learner.aggregation import Aggregate, aggregate, empty_aggregate, trust
from smoothfbo.stream.learner.calibration import (
    Calibrations,
    all_uncalibrated,
    calibrate_all,
    mixed_probabilities,
    with_first,
    with_unseen,
)
from smoothfbo.stream.learner.ladder import NEIGHBOURS
from smoothfbo.stream.learner.late import LateMixture, learn_from_late_block, mix_late, trust_late
from smoothfbo.stream.learner.since import WORSE
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.views import Views, classes_of
from smoothfbo.stream.learner.vote import count_mistakes, vote
from smoothfbo.stream.learner.waiting import BlockPrediction
from smoothfbo.stream.rows import Rows


class Recommended(NamedTuple):
    """What the mixture says of every row of a block.

    - `outputs`: of which probabilities are made. For classes they are those of the mixture; of both experts that look
      at the nearest rows, which have no part in the mixture; the mean of these three; and, where classes may hide one
      another, those of the learned memory, which is linear.
    - `aggregate`: the state of its weights after the block is known. With a delay it is too early for that:
    - `advice`: what the parts of the mixture say is then kept.
    """

    outputs: Float[Array, "predictors rows outputs"]
    aggregate: Aggregate
    advice: LateMixture | None


class Vote(NamedTuple):
    """The predicted classes, those of every classifier, the probabilities, and the mistakes after the block."""

    predicted: Float[Array, " rows"]
    classes: Float[Array, "classifiers rows"]
    probabilities: Float[Array, "rows classes"]
    mistakes: Float[Array, " classifiers"]


class Mixture:
    """Pure functions of a specification."""

    def __init__(self, spec: Specification, views: Views):
        self.spec, self.views = spec, views
        self._columns = 1 if spec.outputs == 1 else spec.outputs + 1  # that are mixed: with one class less, two are one
        self._part = 1 / spec.horizon  # for which a row counts whose target is known late
        # The nearest rows would rule the mixture, whose outputs are more when they are regressions: see `Recommended`.
        self._mixed = [i for i, name in enumerate(spec.expert_names) if name not in NEIGHBOURS]
        self._near = [i for i, name in enumerate(spec.expert_names) if name in NEIGHBOURS]
        names = [spec.expert_names[i] for i in self._mixed]
        self._since, self._shortest = names.index("since_change"), names.index("last_block")
        last = [name == "last_value" or name.startswith("season_") for name in names]
        self._prior = [0.5 / (sum(last) if is_last else len(last) - sum(last)) for is_last in last]
        self._builds_on_last = [name == "last_value" or "difference" in name for name in names]

    def no_weights(self) -> Aggregate:
        return empty_aggregate(len(self._mixed), self._columns)

    def trust_since(self, weights: Aggregate) -> Aggregate:
        return trust(weights, self._since)

    def is_surprised(
        self, state: LearnerState, block: Rows, prediction: BlockPrediction, counts: Float[Array, " rows"]
    ) -> Bool[Array, ""]:
        """Whether the mixture has done worse with a block that is known late than it does otherwise."""
        assert prediction.advice is not None
        losses = jnp.sum((prediction.advice.mixed - self._goal(state, block)) ** 2, axis=1)
        return losses @ counts > WORSE * state.aggregate.first.shared.scale * jnp.sum(counts)

    def last_block(self, experts: Float[Array, "experts rows outputs"]) -> Float[Array, "rows outputs"]:
        return experts[self._shortest]

    def since_change(self, experts: Float[Array, "experts rows outputs"]) -> Float[Array, "rows outputs"]:
        return experts[self._since]

    def trust_late(
        self,
        state: LearnerState,
        block: Rows,
        experts: Float[Array, "experts rows outputs"],
        again: Float[Array, "rows outputs"],
        counts: Array,
    ) -> Aggregate:
        """`trust_since` where targets are known late; `experts` is what all of them say now of the block, and `again`
        what stands for `since_change`, which begins again."""
        experts = experts.at[self._since].set(again)
        present = self._in_first_units(state, self.without_lost(state, block, experts))
        prior = jnp.asarray(self._prior)
        return trust_late(state.aggregate, self._since, present, self._goal(state, block), counts, prior)

    def no_mistakes(self) -> Float[Array, " classifiers"] | None:
        return jnp.zeros(len(self.spec.expert_names) + 2) if self.spec.is_classification else None

    def no_calibration(self) -> Calibrations | None:
        outputs = self.spec.outputs
        return (
            all_uncalibrated(min(outputs, 2) + len(self._near) + 1, outputs + 1)
            if self.spec.is_classification
            else None
        )

    def mix(
        self, state: LearnerState, block: Rows, experts: Float[Array, "experts rows outputs"], counts: Array
    ) -> Recommended:
        """Rows one after the other; a row moves the weights if it counts."""
        is_single = self.spec.outputs == 1
        mixed_of = self._in_first_units(state, self.without_lost(state, block, experts))
        if self.spec.delay:
            after, advice = state.aggregate, mix_late(state.aggregate, mixed_of, jnp.asarray(self._prior))
            mixed = advice.mixed
        else:
            after, mixed = aggregate(state.aggregate, mixed_of, self._goal(state, block), counts)
            advice = None
        origin, unit = self.views.first_units_of_target(state)
        outputs = (mixed if is_single else mixed[:, 1:]) * unit + origin
        parts = [outputs]
        if self.spec.is_classification:
            near = [experts[i] for i in self._near]
            parts += [*near, sum(near, outputs) / (1 + len(near))]
        # Last: with the third class it joins the others, whose calibrations then stay in their places.
        parts += [] if is_single else [experts[0]]
        return Recommended(jnp.stack(parts), after, advice)

    def judge(
        self, state: LearnerState, block: Rows, prediction: BlockPrediction, counts: Float[Array, " rows"]
    ) -> tuple[Aggregate, Float[Array, " classifiers"] | None]:
        """Weights and mistakes after a block that is known late, and of which this was predicted."""
        assert prediction.advice is not None
        experts, mistakes = self._in_first_units(state, prediction.experts), None
        after = learn_from_late_block(
            state.aggregate,
            experts,
            prediction.advice,
            self._goal(state, block),
            counts,
            self._part,
            jnp.asarray(self._prior),
        )
        if state.mistakes is not None and prediction.classes is not None:
            mistakes = count_mistakes(state.mistakes, prediction.classes, block.target, self._part * counts)
        return after, mistakes

    def without_lost(self, state: LearnerState, block: Rows, experts: Array) -> Float[Array, "experts rows outputs"]:
        """Those that are mixed. One that builds on a last value that cannot be meant has no part in its row: NaN."""
        is_lost = jnp.asarray(self._builds_on_last)[:, None] & ~self.views.is_last_plausible(state, block.previous)
        is_lost &= state.memory.blocks > 0
        return jnp.where(is_lost[:, :, None], jnp.nan, experts[jnp.asarray(self._mixed)])

    def _in_first_units(self, state: LearnerState, outputs: Array) -> Float[Array, "*experts rows columns"]:
        """The first class has no output of its own; with two classes it would say nothing new."""
        origin, unit = self.views.first_units_of_target(state)
        outputs = (outputs - origin) / unit
        return outputs if self.spec.outputs == 1 else with_first(outputs)

    def _goal(self, state: LearnerState, block: Rows) -> Float[Array, "rows columns"]:
        return self._in_first_units(state, self.views.target(jnp.where(jnp.isnan(block.target), 0, block.target)))

    def vote_on(
        self,
        state: LearnerState,
        block: Rows,
        experts: Float[Array, "experts rows outputs"],
        outputs: Float[Array, "predictors rows outputs"],
        counts: Float[Array, " rows"],
    ) -> Vote:
        """The classes of rows, one after the other."""
        assert state.mistakes is not None
        # A class may have been seen before there is an output for it.
        by_last = jnp.where(jnp.isnan(block.previous), 0, block.previous)
        classes = classes_of(experts).at[-1].set(by_last)
        scores = self._probabilities(state, outputs)
        both = jnp.stack([classes_of(outputs[0]), jnp.argmax(scores, axis=1).astype(scores.dtype)])
        classifiers = jnp.concatenate([classes, both])
        mistakes, predicted, scores = vote(state.mistakes, classifiers, scores, block.target, counts)
        return Vote(predicted, classifiers, scores, mistakes)

    def calibrate(
        self, state: LearnerState, prediction: BlockPrediction, target: Array, mask: Array
    ) -> Calibrations | None:
        """The probabilities, after a block that was predicted."""
        if state.calibration is None or prediction.outputs is None:
            return None
        # Before the first block was learnt nothing was predicted.
        mask = jnp.where(prediction.begun, mask, 0)
        return calibrate_all(state.calibration, prediction.outputs, with_first(target), mask, self._seen(state))

    def _probabilities(
        self, state: LearnerState, outputs: Float[Array, "predictors rows outputs"]
    ) -> Float[Array, "rows classes"]:
        """Of every class; before the first block is learnt, by what was seen last."""
        if state.calibration is None:
            raise ValueError("Only classes have probabilities.")
        seen, rows = self._seen(state), state.memory.decayed[-1, self.spec.constant, self.spec.constant]
        learnt = with_unseen(mixed_probabilities(state.calibration, outputs, seen), seen, rows)
        return jnp.where(state.memory.blocks > 0, learnt, jax.nn.softmax(with_first(outputs[0])))

    def _seen(self, state: LearnerState) -> Bool[Array, " classes"]:
        """Which classes were learnt. The first one has no indicator of its own."""
        constant = self.spec.constant
        rows = state.memory.decayed[-1, constant, constant + 1 :: 2]  # of every class, in all of the past
        return jnp.concatenate([jnp.ones(1, bool), rows > 0])
