"""Single rows of a regression, in NumPy: a call of a compiled program takes longer than all the arithmetic of a row.

The experts' predictions are x = A v, with v = (φ, last value): the standardised features, the constant, the random
features, the products, and the last known target in its first units. With the weights W of the mixtures, the
coefficients c of the stacks and the weights w of the rules that mix all these (see `aggregation`, `stacking`), the
prediction is

    w · (m, m_0 + cut(c (x − m_0))),   m = W x.

A row whose target becomes known changes A and c by recursive least squares, and moves the weights. All this is within a
block, which is prepared by a compiled program (`single_start`); when it is full, it is learnt by `Rounds` from where it
began, so that nothing that rounding does here lasts. The numbers are those of `Rounds`, up to rounding.

It does not apply to classes, networks, lags and targets that are known late, nor in a block with a target that cannot
be meant. There the compiled program predicts a block.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.linalg.blas import dger  # pyright: ignore[reportAttributeAccessIssue]

from smoothfbo.stream.learner.aggregation import LARGE_ERROR
from smoothfbo.stream.learner.products import CLIP as CLIP_OF_PRODUCTS
from smoothfbo.stream.learner.random_features import CLIP as CLIP_OF_RANDOM
from smoothfbo.stream.learner.recent import LARGEST, RETENTIONS
from smoothfbo.stream.learner.recent import ROUNDING as ROUNDING_OF_SQUARES
from smoothfbo.stream.learner.single_rules import RowRules
from smoothfbo.stream.learner.single_start import Beginning
from smoothfbo.stream.learner.specification import CLIP, Specification
from smoothfbo.stream.learner.stacking import REACH
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.rows import Rows


def applies_to(spec: Specification) -> bool:
    has_lags = spec.lags[1] > spec.lags[0]
    return not (spec.is_classification or spec.is_network or spec.delay or has_lags)


class SingleRows:
    """The rows of a block that has begun, one at a time."""

    def __init__(self, begin: Beginning, state: LearnerState):
        self.begin, self.begun = begin, begin(state)
        self.origin, self.unit, self.middle, self.limit = self.begun.target.tolist()
        self.cut, (self.lowest, self.highest, self.spread) = float(self.begun.cut), self.begun.reach.tolist()
        self.applies = self.limit == self.limit
        self.learnt = 0  # rows of the block
        self.asked: Any = None  # the row that was predicted last, and its prediction: it is mostly learnt next
        self.rules = RowRules(self.begun.first, self.begun.second)
        self._corrections: tuple[Any, Any] = self.begun.stack
        self.losses, self.rows = self.begun.recent
        self._follow()

    @property
    def is_asked(self) -> bool:
        """Whether the row that is learnt next was predicted; else it can wait."""
        return self.asked is not None

    def predict(
        self, waiting: Rows, weight: np.ndarray | None, features: Float[np.ndarray, " columns"], previous: float
    ) -> float | None:
        """The prediction for a row after those of the block that wait; None if it does not apply."""
        self.learn(waiting, weight)
        if not self.applies or not abs(previous - self.middle) <= self.limit:
            return None
        self.asked = features, previous, *self._opinions(features, previous)
        found = float(self.rules.last @ self.asked[-1]) * self.unit + self.origin
        return found if abs(found) < math.inf else None

    def learn(self, waiting: Rows, weight: np.ndarray | None) -> None:
        """Those of the rows of the block that are new."""
        for at in range(self.learnt, len(waiting.target)):
            if self.applies:
                previous, target = float(waiting.previous[at]), float(waiting.target[at])
                self._learn(waiting.features[at], previous, target, 1.0 if weight is None else float(weight[at]))
        self.learnt, self.asked = len(waiting.target), None

    def _learn(self, features: np.ndarray, previous: float, target: float, weight: float) -> None:
        is_known = target == target
        is_plausible = abs(target - self.middle) <= self.limit if is_known else True
        self.applies = is_plausible and abs(previous - self.middle) <= self.limit
        if not self.applies or not is_known:
            return
        goal, asked = (target - self.origin) / self.unit, self.asked
        is_same = asked is not None and asked[1] == previous and (asked[0] == features).all()
        row, fits, experts, predicted = (
            asked[2:] if asked is not None and is_same else self._opinions(features, previous)
        )
        self.asked = None
        if self._is_learnt_free(features, row, goal):
            self._fit(row, goal - fits, weight)
        error = goal - float(predicted[0])
        self._stack(experts - predicted[0], error, self.rules.part(error, LARGE_ERROR))
        self.rules.learn(np.concatenate([experts, predicted]), goal)
        errors = np.minimum((experts - goal) ** 2, LARGEST)
        self.losses, self.rows = RETAINED[:, None] * self.losses + errors, RETAINED * self.rows + 1
        self._follow()

    def _row(self, features: np.ndarray, previous: float) -> np.ndarray:
        """v; see `random_features.expand` and `products.multiply`."""
        standard = self._standard(features, self.cut)
        angles = self.begin.matrix @ np.minimum(np.maximum(standard, -CLIP_OF_RANDOM), CLIP_OF_RANDOM)
        waves = math.sqrt(2.0) * np.cos(angles + self.begin.phases)
        last = ((previous - self.origin) / self.unit,)
        if self.begin.factors is None:
            return np.concatenate([standard, (1.0,), waves, last])
        one, other, limits = self.begin.factors
        cut = np.minimum(np.maximum(standard, -CLIP_OF_PRODUCTS), CLIP_OF_PRODUCTS)
        products = np.minimum(np.maximum(standard[one], -limits), limits) * cut[other]
        return np.concatenate([standard, (1.0,), waves, products, last])

    def _standard(self, features: np.ndarray, cut: float) -> np.ndarray:
        """See `Views.inputs`."""
        factor, shift, middle, limit, mean, spread, *_ = self.begun
        values = factor * features + shift
        standard = np.minimum(np.maximum((values - mean) / spread, -cut), cut)
        return np.where(np.abs(values - middle) <= limit, standard, 0.0)  # what is NaN is not

    def _is_learnt_free(self, features: np.ndarray, row: np.ndarray, goal: float) -> bool:
        """See `tails.is_learnt_free`; `row` is as it was predicted."""
        count = len(features)
        free = row[:count]
        if self.cut == CLIP or not (np.abs(free) > CLIP).any():
            return True
        coefficients = self.begun.experts[0]
        by_cut = float(coefficients[: count + 1] @ np.append(self._standard(features, CLIP), 1.0))
        by_free = float(coefficients[: count + 1] @ row[: count + 1])
        return abs(by_free - goal) <= abs(by_cut - goal) + self.spread / self.unit

    def _opinions(self, features: np.ndarray, previous: float) -> tuple[np.ndarray, ...]:
        """v; what the fits say; this bounded: the experts; and what the mixtures of them say, and the stacks."""
        row = self._row(features, previous)
        fits = self.begun.experts @ row
        low, high = min(self.lowest, previous), max(self.highest, previous)
        experts = np.minimum(np.maximum(fits, (low - self.origin) / self.unit), (high - self.origin) / self.unit)
        predicted = self.mixtures @ experts
        differences = experts - predicted[0]
        lowest, highest = REACH * differences.min(), REACH * differences.max()
        beyond = np.minimum(np.maximum(self._corrections[1] @ differences, lowest), highest)
        return row, fits, experts, np.concatenate([predicted, predicted[0] + beyond])

    def _fit(self, row: np.ndarray, errors: np.ndarray, weight: float) -> None:
        """The ladder, and the random features and products, which add to two of its predictions."""
        begun = self.begun
        experts, ladder, random, products = begun.experts, begun.ladder, begun.random, begun.products
        fits, p, size = len(ladder), ladder.shape[1], len(random)
        steps = _add_row(ladder, row[:p], weight) * errors[1 : 1 + fits, None]
        experts[1 : 1 + fits, :p] += steps
        experts[1 + fits, :p] += steps[self.begin.linear]
        experts[1 + fits : 3 + fits, :size] += errors[1 + fits : 3 + fits, None] * _add_row(random, row[:size], 1.0)
        if products is not None:
            steps_of_products = _add_row(products, np.concatenate([row[:p], row[size:-1]]), 1.0)
            experts[3 + fits, :p] += steps[self.begin.linear]
            for expert in (3 + fits, 4 + fits):
                step = errors[expert] * steps_of_products
                experts[expert, :p] += step[:p]
                experts[expert, size:-1] += step[p:]

    def _stack(self, differences: np.ndarray, error: float, weight: float) -> None:
        inverse, coefficients = self._corrections
        errors = error - coefficients @ differences
        coefficients += _add_row(inverse, differences, weight) * errors[:, None]

    def _follow(self) -> None:
        """The weights of the mixtures; see `recent`."""
        leader = self.losses.min(axis=1)
        scale = np.maximum(leader / np.maximum(self.rows, 1), ROUNDING_OF_SQUARES)
        weights = np.exp((leader[:, None] - self.losses) / scale[:, None])
        self.mixtures = np.concatenate([self.rules.first, weights / weights.sum(axis=1, keepdims=True)])


RETAINED = np.array(RETENTIONS)


def _add_row(inverse: np.ndarray, row: np.ndarray, weight: float) -> np.ndarray:
    """M⁻¹ ← M⁻¹ − uuᵀ/d with u = M⁻¹x and d = 1/weight + xᵀu; returns u/d, by which θ moves for an error of 1."""
    direction = inverse @ row
    scaled = direction * (weight / (1 + weight * (direction @ row)))[..., None]
    if inverse.ndim == 2:  # in place, without a second matrix
        dger(-1.0, direction, scaled, a=inverse.T, overwrite_a=1)
    else:
        inverse -= scaled[..., :, None] * direction[..., None, :]
    return scaled
