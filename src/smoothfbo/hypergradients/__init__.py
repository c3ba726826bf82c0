"""Estimators of the hypergradient ∇F_t(λ), all with the same `init` and `__call__`."""

from smoothfbo.errors import renamed_attributes
from smoothfbo.hypergradients.adjoints import AbstractAdjoint, FittedAdjoint, PointwiseAdjoint
from smoothfbo.hypergradients.base import AbstractEstimator, AbstractInnerEstimator, Candidates, Estimate, InnerState
from smoothfbo.hypergradients.corrections import AbstractCorrection, FittedCorrection, PointwiseCorrection
from smoothfbo.hypergradients.explicit import Explicit
from smoothfbo.hypergradients.first_order import FirstOrder, FirstOrderState
from smoothfbo.hypergradients.functional import Functional, FunctionalState
from smoothfbo.hypergradients.implicit import (
    ConjugateGradient,
    IdentityInverse,
    Implicit,
    ImplicitState,
    NeumannSeries,
)
from smoothfbo.hypergradients.oracle import Oracle
from smoothfbo.hypergradients.reevaluated import Reevaluated, ReevaluatedState
from smoothfbo.hypergradients.replayed import Replayed, ReplayState
from smoothfbo.hypergradients.single_loop import SingleLoop
from smoothfbo.hypergradients.storm import Storm, StormState
from smoothfbo.hypergradients.unrolled import Unrolled

__all__ = [
    "AbstractAdjoint",
    "AbstractCorrection",
    "AbstractEstimator",
    "AbstractInnerEstimator",
    "Candidates",
    "ConjugateGradient",
    "Estimate",
    "Explicit",
    "FirstOrder",
    "FirstOrderState",
    "FittedAdjoint",
    "FittedCorrection",
    "Functional",
    "FunctionalState",
    "IdentityInverse",
    "Implicit",
    "ImplicitState",
    "InnerState",
    "NeumannSeries",
    "Oracle",
    "PointwiseAdjoint",
    "PointwiseCorrection",
    "Reevaluated",
    "ReevaluatedState",
    "ReplayState",
    "Replayed",
    "SingleLoop",
    "Storm",
    "StormState",
    "Unrolled",
]

__getattr__ = renamed_attributes(
    __name__,
    {
        "AbstractHypergradient": "AbstractEstimator",
        "Fitted": "FittedAdjoint",
        "Identity": "IdentityInverse",
        "Neumann": "NeumannSeries",
        "Pointwise": "PointwiseAdjoint",
    },
)
