"""Single rows of a regression, in NumPy: a call of a compiled program takes longer than all the arithmetic of a row.

The experts' predictions are x = A v, with v = (φ, last value): the standardised features, the constant, the random
features, the products, and the last known target in its first units. With the weights W of the mixtures, the
coefficients c of the stacks and the weights w of the rules that mix all these (see `aggregation`, `stacking`), the
prediction is

    w · (m, m_0 + cut(c (x − m_0))),   m = W x.

A row whose target becomes known changes A and c by recursive least squares, and moves the weights. All this is within
a block, which is prepared by a compiled program; when it is full, it is learnt by `Rounds` from where it began, so that
nothing that rounding does here lasts. The numbers are those of `Rounds`, up to rounding.

It does not apply to classes, networks, lags and targets that are known late, nor in a block with a target that cannot
be meant. There the compiled program predicts a block.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.linalg.blas import dger  # pyright: ignore[reportAttributeAccessIssue]

from smoothfbo.stream.learner.aggregation import (
    FEWEST_ROWS,
    LARGE_ERROR,
    LARGEST_LOSS,
    RETENTION,
    ROUNDING,
    SCALE_ROWS,
    SHARE,
    VERY_LARGE_ERROR,
    Weighing,
    weighing,
)
from smoothfbo.stream.learner.experts import ladder_systems
from smoothfbo.stream.learner.ladder import FAMILIES
from smoothfbo.stream.learner.packing import packed
from smoothfbo.stream.learner.products import CLIP as CLIP_OF_PRODUCTS
from smoothfbo.stream.learner.random_features import CLIP as CLIP_OF_RANDOM
from smoothfbo.stream.learner.random_features import MEMORY, Expanded
from smoothfbo.stream.learner.recent import LARGEST, RETENTIONS, Recent
from smoothfbo.stream.learner.recent import ROUNDING as ROUNDING_OF_SQUARES
from smoothfbo.stream.learner.recursive import Fit, fit_to_past
from smoothfbo.stream.learner.rounds import Rounds
from smoothfbo.stream.learner.specification import CLIP, Specification
from smoothfbo.stream.learner.stacking import REACH, Stack, held_stack
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.units import far_from, target_far_from
from smoothfbo.stream.rows import Rows

TINY = float(np.finfo(np.float64).tiny)


class BlockStart(NamedTuple):
    """A block that begins. The experts are in the first units of the target.

    - `factor`, `shift`, `middle`, `limit`, `mean`, `spread`: of the features; beyond the limit a value is left out.
    - `target`: origin and unit, and the middle and the limit of what can be meant; NaN where there is no prediction.
    - `experts`: A; `ladder`, `random`, `products`: the inverses of the three kinds of fits; the last may be none.
    - `stack`: inverses and c; `first`, `second`, `recent`: what the weights are made of.
    """

    factor: Any
    shift: Any
    middle: Any
    limit: Any
    mean: Any
    spread: Any
    target: Any
    experts: Any
    ladder: Any
    random: Any
    products: Any
    stack: Fit
    first: Weighing
    second: Weighing
    recent: Recent


def applies_to(spec: Specification) -> bool:
    has_lags = spec.lags[1] > spec.lags[0]
    return not (spec.is_classification or spec.is_network or spec.delay or has_lags)


class Beginning:
    """A compiled function of a specification: what a block begins with, as one array, which is read fastest."""

    def __init__(self, rounds: Rounds):
        self.rounds, self.linear = rounds, rounds.panel.linear
        self.matrix, self.phases = rounds.panel.projection
        self.factors = None
        if (products := rounds.panel.products) is not None:
            self.factors = products.one, products.other, products.limits
        self._shapes = jax.eval_shape(lambda: self._begin(rounds.init()))
        self._call = jax.jit(lambda state: packed(self._begin(state)))

    def __call__(self, state: LearnerState) -> BlockStart:
        numbers, (leaves, structure) = np.array(self._call(state)), jax.tree.flatten(self._shapes)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = [numbers[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
        return jax.tree.unflatten(structure, parts)

    def _begin(self, state: LearnerState) -> BlockStart:
        spec, views = self.rounds.spec, self.rounds.views
        p = spec.constant + 1
        mean, spread = views.units_of_target(state)
        origin, unit = views.first_units_of_target(state)
        sums = jnp.concatenate([state.memory.decayed, state.since.moments[None]])
        systems = ladder_systems(views.current(state)(sums), sums[:, spec.constant, spec.constant], p)
        ladder = jax.vmap(lambda matrix, products: fit_to_past(matrix, products[0]))(*systems)
        learned = self.rounds.blocks.lanes(state, jnp.eye(p))[0, :, 0]
        middle, limit = far_from(state.units)
        target = jnp.stack([origin[0], unit[0], *target_far_from(state.targets)])
        mixed = state.aggregate
        assert isinstance(mixed.stack, Stack)
        return BlockStart(
            *(state.units.factor, state.units.shift, middle, jnp.where(state.units.odd > 0, -1, limit)),
            *(state.features.mean, state.features.spread),
            # A far target may stay: the next ones are judged by that.
            jnp.where((state.memory.blocks > 0) & (state.targets.far == 0), target, jnp.nan),
            self._experts(learned, ladder.coefficients, state.random, spread / unit, (mean - origin) / unit),
            ladder.inverse,
            state.random.waves.inverse / (1 - 1 / MEMORY),
            None if state.random.products is None else state.random.products.inverse / (1 - 1 / MEMORY),
            held_stack(mixed.stack, mixed.first.shared.scale),
            weighing(mixed.first),
            weighing(mixed.second),
            mixed.recent,
        )

    def _experts(
        self, learned: Array, ladder: Array, random: Expanded, scale: Array, centre: Array
    ) -> Float[Array, "experts v"]:
        """A, in the order of `Specification.expert_names`."""
        each = len(ladder) // len(FAMILIES)
        on_last = jnp.asarray([0.0] + [float(family.of_difference) for family in FAMILIES for _ in range(each)] + [0.0])
        simple = jnp.concatenate([learned[None], ladder]) * scale
        simple = simple.at[:, -1].add((1 - on_last) * centre)
        p, start = learned.shape[0], random.waves.coefficients.shape[1]
        stop = start if random.products is None else start + random.products.coefficients.shape[1] - p
        fits = jnp.concatenate([simple, jnp.zeros((len(simple), stop - p)), on_last[:, None]], axis=1)
        last = jnp.zeros_like(fits[0]).at[-1].set(1)
        bases = jnp.stack([fits[1 + self.linear], last])
        guesses = [bases.at[:, :start].add(random.waves.coefficients)]
        if random.products is not None:
            own = jnp.r_[:p, start:stop]
            guesses.append(bases.at[:, own].add(random.products.coefficients))
        return jnp.concatenate([fits, *guesses, last[None]])


class SingleRows:
    """The rows of a block that has begun, one at a time."""

    def __init__(self, begin: Beginning, state: LearnerState):
        self.begin, self.begun = begin, begin(state)
        self.origin, self.unit, self.middle, self.limit = self.begun.target.tolist()
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
        row, experts, predicted = asked[2:] if asked is not None and is_same else self._opinions(features, previous)
        self.asked = None
        self._fit(row, goal - experts, weight)
        error = goal - float(predicted[0])
        self._stack(experts - predicted[0], error, self.rules.part(error, LARGE_ERROR))
        self.rules.learn(np.concatenate([experts, predicted]), goal)
        errors = np.minimum((experts - goal) ** 2, LARGEST)
        self.losses, self.rows = RETAINED[:, None] * self.losses + errors, RETAINED * self.rows + 1
        self._follow()

    def _row(self, features: np.ndarray, previous: float) -> np.ndarray:
        """v; see `Views.inputs`, `random_features.expand` and `products.multiply`."""
        factor, shift, middle, limit, mean, spread, *_ = self.begun
        values = factor * features + shift
        standard = np.minimum(np.maximum((values - mean) / spread, -CLIP), CLIP)
        standard = np.where(np.abs(values - middle) <= limit, standard, 0.0)  # what is NaN is not
        angles = self.begin.matrix @ np.minimum(np.maximum(standard, -CLIP_OF_RANDOM), CLIP_OF_RANDOM)
        waves = math.sqrt(2.0) * np.cos(angles + self.begin.phases)
        last = ((previous - self.origin) / self.unit,)
        if self.begin.factors is None:
            return np.concatenate([standard, (1.0,), waves, last])
        one, other, limits = self.begin.factors
        cut = np.minimum(np.maximum(standard, -CLIP_OF_PRODUCTS), CLIP_OF_PRODUCTS)
        products = np.minimum(np.maximum(standard[one], -limits), limits) * cut[other]
        return np.concatenate([standard, (1.0,), waves, products, last])

    def _opinions(self, features: np.ndarray, previous: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """v; what the experts say; and what the mixtures of them say, and the stacks."""
        row = self._row(features, previous)
        experts = self.begun.experts @ row
        predicted = self.mixtures @ experts
        differences = experts - predicted[0]
        lowest, highest = REACH * differences.min(), REACH * differences.max()
        beyond = np.minimum(np.maximum(self._corrections[1] @ differences, lowest), highest)
        return row, experts, np.concatenate([predicted, predicted[0] + beyond])

    def _fit(self, row: np.ndarray, errors: np.ndarray, weight: float) -> None:
        """The ladder, and the random features and products, which add to two of its predictions."""
        _, _, _, _, _, _, _, experts, ladder, random, products, *_ = self.begun
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


class RowRules:
    """The three rules of `aggregation`, for one output and experts all of which say something.

    The rules over the experts and those over the mixtures of them stand side by side, in columns: what counts is the
    number of operations.
    """

    def __init__(self, *states: Weighing):
        regrets, self.rates, self.shares = (
            jax.tree.map(lambda *parts: np.concatenate(parts, axis=-1), *parts)
            for parts in zip(*(state[:3] for state in states), strict=True)
        )
        self.sums, self.squares, self.largest = regrets
        self.scales, self.rows = [float(state.scale) for state in states], int(states[0].rows)
        counts = np.array([len(state.rates) for state in states])
        self.starts, self.set = np.cumsum(counts) - counts, np.repeat(np.arange(len(counts)), counts)
        self.share, self.logarithms = SHARE / counts[self.set], np.log(counts)[self.set]
        self._weigh()

    def part(self, error: float, large: float) -> float:
        """What a row counts for whose error is larger than so many times the usual one."""
        is_large = self.rows >= FEWEST_ROWS and error**2 > large**2 * self.scales[0]
        return large * math.sqrt(self.scales[0]) / abs(error) if is_large else 1.0

    def learn(self, given: np.ndarray, goal: float) -> None:
        """One row more; `given` are the experts and the mixtures of them."""
        predicted = np.add.reduceat(self.weights * given, self.starts, axis=1).ravel().tolist()
        bases, slopes, allowed = self._slopes(predicted[:4], goal).take(self.set, axis=2)
        regrets = (bases - given) * slopes
        regrets *= np.abs(regrets) > allowed
        squares = regrets * regrets
        self.squares *= RETENTION
        self.squares += squares
        self.largest *= RETENTION
        np.maximum(self.largest[0], np.abs(regrets[0]), out=self.largest[0])
        np.maximum(self.largest[1], squares[1], out=self.largest[1])
        self.sums *= RETENTION
        self.sums += regrets
        largest, by_squares = np.maximum(self.largest[0], TINY), np.maximum(self.squares[0], TINY)
        self.rates = np.minimum(1 / largest, np.sqrt(self.logarithms / by_squares)) * (self.largest[0] > 0)
        self.sums[0] -= self.rates * squares[0]
        part = max(1 / SCALE_ROWS, 1 / (self.rows + 1))
        self.scales = [
            max(s + part * ((p - goal) ** 2 - s), TINY) for s, p in zip(self.scales, predicted[4:], strict=True)
        ]
        halves = np.array([-0.5 / scale for scale in self.scales]).take(self.set)
        self.shares = self.weights[2] * np.exp(np.maximum((given - goal) ** 2 * halves, -0.5 * LARGEST_LOSS))
        self.rows += 1
        self._weigh()

    def _slopes(self, predicted: list[float], goal: float) -> Float[np.ndarray, "3 rules sets"]:
        """Of the first two rules: what they say, the slopes of their losses, and the regrets that are rounding."""
        numbers = []
        for place, p in enumerate(predicted):
            error, is_first = p - goal, place % 2 == 0
            slope = 2 * error * (self.part(error, VERY_LARGE_ERROR) if is_first else 1.0)
            numbers.append((p, slope, ROUNDING * abs(error) * (abs(p) + abs(goal))))
        return np.array(numbers).T.reshape(3, 2, 2)

    def _weigh(self) -> None:
        exponents = self.rates * self.sums[0]
        highest = np.maximum.reduceat([self.rates, exponents, self.sums[1], self.largest[1]], self.starts, axis=1)
        # Equal before the first regret, and where no regret is positive.
        highest[0] += highest[0] == 0
        rate, exponent, positive, largest = highest.take(self.set, axis=1)
        by_rates = np.where(self.rates > 0, self.rates, rate) * np.exp(exponents - exponent)
        by_sums = np.maximum(self.sums[1], 0) / np.maximum(self.squares[1] + largest, TINY) + (positive <= 0)
        weights = np.array([by_rates, by_sums, self.shares])
        weights /= np.add.reduceat(weights, self.starts, axis=1).take(self.set, axis=1)
        weights[2] = (1 - SHARE) * weights[2] + self.share
        self.weights, count = weights, self.starts[1]
        self.first, self.last = weights[:, :count], np.add.reduce(weights[:, count:]) / 3


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
