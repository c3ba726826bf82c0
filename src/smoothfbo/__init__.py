"""SmoothFBO: non-stationary functional bilevel optimisation in JAX."""

from smoothfbo.functions import AbstractFunction, Linear, Network, last_hidden
from smoothfbo.hypergradients import (
    AbstractHypergradient,
    ConjugateGradient,
    Estimate,
    Functional,
    Identity,
    Implicit,
    Neumann,
    Oracle,
    Pointwise,
    Unrolled,
)
from smoothfbo.online import AbstractStream, Info, Online, RunState, State, run, start
from smoothfbo.problem import Data, Problem, Samples
from smoothfbo.smoothing import discounted_average, mixed_average, smoothed_gradient, window_average

__version__ = "0.1.0"

__all__ = [
    "AbstractFunction",
    "AbstractHypergradient",
    "AbstractStream",
    "ConjugateGradient",
    "Data",
    "Estimate",
    "Functional",
    "Identity",
    "Implicit",
    "Info",
    "Linear",
    "Network",
    "Neumann",
    "Online",
    "Oracle",
    "Pointwise",
    "Problem",
    "RunState",
    "Samples",
    "State",
    "Unrolled",
    "discounted_average",
    "last_hidden",
    "mixed_average",
    "run",
    "smoothed_gradient",
    "start",
    "window_average",
]
