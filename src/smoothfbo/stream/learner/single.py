"""The linear predictor in NumPy: for a single row a compiled program takes longer to call than to run.

The numbers are those of the compiled program to rounding errors. Formulas: `units.usable`, `moments.standardise` and
`Rounds._predict`.
"""

from typing import NamedTuple

import jax
import numpy as np

from smoothfbo.stream.learner.moments import Moments
from smoothfbo.stream.learner.specification import CLIP, Specification
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.units import FAR


class LinearFit(NamedTuple):
    """outputs = scale · W ((factor·x + shift)/spread, 1) + centre, with values that cannot be meant left out.

    - `shift`: less the mean of the past; `low`, `high`: the standardised values that count, none of a column that is
      odd at present.
    - `weights`: outputs × columns; `constant`: their last column, of the constant 1.
    """

    factor: np.ndarray
    shift: np.ndarray
    spread: np.ndarray
    low: np.ndarray
    high: np.ndarray
    weights: np.ndarray
    constant: np.ndarray
    scale: np.ndarray
    centre: np.ndarray

    def outputs(self, row: np.ndarray) -> np.ndarray:
        """For the features of one row; NaN is missing."""
        standard = self.factor * row
        standard += self.shift
        standard /= self.spread
        counts = (standard >= self.low) & (standard <= self.high)  # False for NaN
        np.maximum(np.minimum(standard, CLIP, out=standard), -CLIP, out=standard)
        return (self.weights @ np.where(counts, standard, 0.0) + self.constant) * self.scale + self.centre

    @property
    def coefficients(self) -> np.ndarray:
        """outputs × columns: by how much an output rises with a feature, in their own units."""
        return self.scale[:, None] * self.weights * (self.factor / self.spread)

    @property
    def intercepts(self) -> np.ndarray:
        """The outputs where all features are 0."""
        return (self.weights @ (self.shift / self.spread) + self.constant) * self.scale + self.centre


def linear_fit(spec: Specification, state: LearnerState) -> LinearFit:
    """The present fit of a learner with a linear predictor."""
    if spec.is_network:
        raise ValueError("A network has no linear fit.")
    parts = (state.units, state.features, state.target, state.learners.estimator.inner.params)
    units, features, target, params = jax.tree.map(np.asarray, parts)
    is_known = units.blocks > 0
    low, high = np.where(is_known, units.low, 0), np.where(is_known, units.high, 0)
    middle, half, spread = (low + high) / 2, (high - low) / 2, _spread(features)
    reach = np.where(half > 0, FAR * half, np.inf)
    weights = params[0].reshape(spec.outputs, spec.features + 1)
    classes = spec.is_classification
    return LinearFit(
        factor=units.factor,
        shift=units.shift - features.mean,
        spread=spread,
        low=np.where(units.odd > 0, np.inf, (middle - reach - features.mean) / spread),
        high=(middle + reach - features.mean) / spread,
        weights=weights[:, :-1],
        constant=weights[:, -1],
        scale=np.ones(spec.outputs) if classes else _spread(target),
        centre=np.zeros(spec.outputs) if classes else target.mean,
    )


def _spread(moments: Moments) -> np.ndarray:
    variance = moments.scatter / np.maximum(moments.rows, 1)
    noise = (16 * np.finfo(np.float64).eps * moments.mean) ** 2
    return np.where(variance > noise, np.sqrt(np.maximum(variance, 0)), 1.0)
