"""Estimators of the hypergradient ∇F_t(λ), all with the same `init` and `__call__`."""

from smoothfbo.hypergradients.adjoints import AbstractAdjoint, Fitted, Pointwise
from smoothfbo.hypergradients.base import AbstractHypergradient, Estimate
from smoothfbo.hypergradients.explicit import Explicit
from smoothfbo.hypergradients.functional import Functional, FunctionalState
from smoothfbo.hypergradients.implicit import ConjugateGradient, Identity, Implicit, ImplicitState, Neumann
from smoothfbo.hypergradients.oracle import Oracle
from smoothfbo.hypergradients.unrolled import Unrolled

__all__ = [
    "AbstractAdjoint",
    "AbstractHypergradient",
    "ConjugateGradient",
    "Estimate",
    "Explicit",
    "Fitted",
    "Functional",
    "FunctionalState",
    "Identity",
    "Implicit",
    "ImplicitState",
    "Neumann",
    "Oracle",
    "Pointwise",
    "Unrolled",
]
