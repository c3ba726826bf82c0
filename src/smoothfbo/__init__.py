"""SmoothFBO: non-stationary functional bilevel optimisation in JAX.

The public names are imported when they are first used: `smoothfbo --help` needs no jax.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothfbo.functions import AbstractFunction, Linear, Network, last_hidden
    from smoothfbo.hypergradients import (
        AbstractHypergradient,
        ConjugateGradient,
        Estimate,
        Explicit,
        Functional,
        Identity,
        Implicit,
        Neumann,
        Oracle,
        Pointwise,
        Unrolled,
    )
    from smoothfbo.online import Info, Online, RunState, State, run, start
    from smoothfbo.problem import Data, Problem, Samples
    from smoothfbo.smoothing import discounted_average, mixed_average, smoothed_gradient, window_average
    from smoothfbo.source import AbstractStream
    from smoothfbo.stream.estimators import StreamClassifier, StreamRegressor

__version__ = "0.1.0"

__all__ = [
    "AbstractFunction",
    "AbstractHypergradient",
    "AbstractStream",
    "ConjugateGradient",
    "Data",
    "Estimate",
    "Explicit",
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
    "StreamClassifier",
    "StreamRegressor",
    "Unrolled",
    "discounted_average",
    "last_hidden",
    "mixed_average",
    "run",
    "smoothed_gradient",
    "start",
    "window_average",
]

_HOME = {
    name: module
    for module, names in {
        "stream.estimators": ("StreamClassifier", "StreamRegressor"),
        "functions": ("AbstractFunction", "Linear", "Network", "last_hidden"),
        "hypergradients": (
            "AbstractHypergradient",
            "ConjugateGradient",
            "Estimate",
            "Explicit",
            "Functional",
            "Identity",
            "Implicit",
            "Neumann",
            "Oracle",
            "Pointwise",
            "Unrolled",
        ),
        "source": ("AbstractStream",),
        "online": ("Info", "Online", "RunState", "State", "run", "start"),
        "problem": ("Data", "Problem", "Samples"),
        "smoothing": ("discounted_average", "mixed_average", "smoothed_gradient", "window_average"),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'smoothfbo' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"smoothfbo.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if "gymnasium" in sys.modules:  # whoever has imported it finds our environments there
    import_module("smoothfbo.environments")
