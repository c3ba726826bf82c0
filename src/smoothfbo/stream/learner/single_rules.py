"""The weights of the mixtures, for rows one at a time (see `single`): the rules of `aggregation` in NumPy."""

import math

import jax
import numpy as np
from jaxtyping import Float

from smoothfbo.stream.learner.aggregation import (
    FEWEST_ROWS,
    LARGEST_LOSS,
    RETENTION,
    ROUNDING,
    SCALE_ROWS,
    SHARE,
    VERY_LARGE_ERROR,
    Weighing,
)

TINY = float(np.finfo(np.float64).tiny)


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
