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
    """outputs = W ((factor·x + shift − mean)/spread, 1) · scale + centre, with values that cannot be meant left out.

    - `low`, `high`: beyond them a value counts as missing; `odd`: columns that count as missing at present.
    - `weights`: outputs × (columns, 1).
    """

    factor: np.ndarray
    shift: np.ndarray
    low: np.ndarray
    high: np.ndarray
    odd: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    weights: np.ndarray
    scale: np.ndarray
    centre: np.ndarray

    def outputs(self, row: np.ndarray) -> np.ndarray:
        """For the features of one row; NaN is missing."""
        values = self.factor * row + self.shift
        standard = (values - self.mean) / self.spread
        np.clip(standard, -CLIP, CLIP, out=standard)
        counts = (values >= self.low) & (values <= self.high) & ~self.odd  # False for NaN
        standard[~counts] = 0.0
        return (self.weights[:, :-1] @ standard + self.weights[:, -1]) * self.scale + self.centre

    @property
    def coefficients(self) -> np.ndarray:
        """outputs × columns: by how much an output rises with a feature, in their own units."""
        return self.scale[:, None] * self.weights[:, :-1] * (self.factor / self.spread)

    @property
    def intercepts(self) -> np.ndarray:
        """The outputs where all features are 0."""
        moved = self.weights[:, :-1] @ ((self.shift - self.mean) / self.spread) + self.weights[:, -1]
        return moved * self.scale + self.centre


def linear_fit(spec: Specification, state: LearnerState) -> LinearFit:
    """The present fit of a learner with a linear predictor."""
    if spec.is_network:
        raise ValueError("A network has no linear fit.")
    parts = (state.units, state.features, state.target, state.learners.estimator.inner.params)
    units, features, target, params = jax.tree.map(np.asarray, parts)
    is_known = units.blocks > 0
    low, high = np.where(is_known, units.low, 0), np.where(is_known, units.high, 0)
    middle, half = (low + high) / 2, (high - low) / 2
    reach = np.where(half > 0, FAR * half, np.inf)
    classes = spec.is_classification
    return LinearFit(
        factor=units.factor,
        shift=units.shift,
        low=middle - reach,
        high=middle + reach,
        odd=units.odd > 0,
        mean=features.mean,
        spread=_spread(features),
        weights=params[0].reshape(spec.outputs, spec.features + 1),
        scale=np.ones(spec.outputs) if classes else _spread(target),
        centre=np.zeros(spec.outputs) if classes else target.mean,
    )


def _spread(moments: Moments) -> np.ndarray:
    variance = moments.scatter / np.maximum(moments.rows, 1)
    noise = (16 * np.finfo(np.float64).eps * moments.mean) ** 2
    return np.where(variance > noise, np.sqrt(np.maximum(variance, 0)), 1.0)
