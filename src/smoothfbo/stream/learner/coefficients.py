"""The linear fit of the learned memory, read out in the units of the features."""

from typing import NamedTuple

import jax
import numpy as np

from smoothfbo.stream.learner.moments import Moments
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import LearnerState


class LinearFit(NamedTuple):
    """outputs = scale · W ((factor·x + shift)/spread, 1) + centre, for values that are not left out or cut.

    - `shift`: less the mean of the past.
    - `weights`: outputs × columns; `constant`: their last column, of the constant 1.
    """

    factor: np.ndarray
    shift: np.ndarray
    spread: np.ndarray
    weights: np.ndarray
    constant: np.ndarray
    scale: np.ndarray
    centre: np.ndarray

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
    weights = params[0].reshape(spec.outputs, spec.features + 1)
    classes = spec.is_classification
    return LinearFit(
        factor=units.factor,
        shift=units.shift - features.mean,
        spread=_spread(features),
        weights=weights[:, :-1],
        constant=weights[:, -1],
        scale=np.ones(spec.outputs) if classes else _spread(target),
        centre=np.zeros(spec.outputs) if classes else target.mean,
    )


def _spread(moments: Moments) -> np.ndarray:
    variance = moments.scatter / np.maximum(moments.rows, 1)
    noise = (16 * np.finfo(np.float64).eps * moments.mean) ** 2
    return np.where(variance > noise, np.sqrt(np.maximum(variance, 0)), 1.0)
