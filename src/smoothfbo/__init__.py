"""SmoothFBO: non-stationary functional bilevel optimisation in JAX.

The public names are imported when they are first used: `smoothfbo --help` needs no jax.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from smoothfbo.errors import NotAvailable, renamed_attributes

if TYPE_CHECKING:
    from smoothfbo import regret as regret
    from smoothfbo import testbeds as testbeds
    from smoothfbo.adaptive import adaptive_steps
    from smoothfbo.batching import batched
    from smoothfbo.functions import AbstractFunction, Linear, Network, last_hidden
    from smoothfbo.hypergradients import (
        AbstractEstimator,
        Candidates,
        ConjugateGradient,
        Estimate,
        Explicit,
        FirstOrder,
        FittedAdjoint,
        FittedCorrection,
        Functional,
        IdentityInverse,
        Implicit,
        NeumannSeries,
        Oracle,
        PointwiseAdjoint,
        PointwiseCorrection,
        Reevaluated,
        Replayed,
        SingleLoop,
        Storm,
        Unrolled,
    )
    from smoothfbo.online import Online
    from smoothfbo.problem import Problem
    from smoothfbo.recommended import smooth_fbo
    from smoothfbo.runs import run, start
    from smoothfbo.samples import Data, Samples, pad
    from smoothfbo.saving import load, save
    from smoothfbo.smoothing import discounted_average, mixed_average, smoothed_gradient, window_average
    from smoothfbo.source import AbstractSource, FunctionSource, RecordedSource, RepeatedSource, Round, as_source
    from smoothfbo.states import Info, RunState, State
    from smoothfbo.steps import Potential, bregman_descent
    from smoothfbo.stream.estimators import StreamClassifier, StreamRegressor
    from smoothfbo.stream.groups.estimators import SeriesClassifier, SeriesRegressor
    from smoothfbo.views.plots import plot

__version__ = "1.0.0"

__all__ = [
    "AbstractEstimator",
    "AbstractFunction",
    "AbstractSource",
    "Candidates",
    "ConjugateGradient",
    "Data",
    "Estimate",
    "Explicit",
    "FirstOrder",
    "FittedAdjoint",
    "FittedCorrection",
    "FunctionSource",
    "Functional",
    "IdentityInverse",
    "Implicit",
    "Info",
    "Linear",
    "Network",
    "NeumannSeries",
    "NotAvailable",
    "Online",
    "Oracle",
    "PointwiseAdjoint",
    "PointwiseCorrection",
    "Potential",
    "Problem",
    "RecordedSource",
    "Reevaluated",
    "RepeatedSource",
    "Replayed",
    "Round",
    "RunState",
    "Samples",
    "SeriesClassifier",
    "SeriesRegressor",
    "SingleLoop",
    "State",
    "Storm",
    "StreamClassifier",
    "StreamRegressor",
    "Unrolled",
    "adaptive_steps",
    "as_source",
    "batched",
    "bregman_descent",
    "discounted_average",
    "last_hidden",
    "load",
    "mixed_average",
    "pad",
    "plot",
    "run",
    "save",
    "smooth_fbo",
    "smoothed_gradient",
    "start",
    "window_average",
]

_HOME = {
    name: module
    for module, names in {
        "adaptive": ("adaptive_steps",),
        "batching": ("batched",),
        "stream.estimators": ("StreamClassifier", "StreamRegressor"),
        "stream.groups.estimators": ("SeriesClassifier", "SeriesRegressor"),
        "functions": ("AbstractFunction", "Linear", "Network", "last_hidden"),
        "hypergradients": (
            "AbstractEstimator",
            "Candidates",
            "ConjugateGradient",
            "Estimate",
            "Explicit",
            "FirstOrder",
            "FittedAdjoint",
            "FittedCorrection",
            "Functional",
            "IdentityInverse",
            "Implicit",
            "NeumannSeries",
            "Oracle",
            "PointwiseAdjoint",
            "PointwiseCorrection",
            "Reevaluated",
            "Replayed",
            "SingleLoop",
            "Storm",
            "Unrolled",
        ),
        "online": ("Online",),
        "runs": ("run", "start"),
        "states": ("Info", "RunState", "State"),
        "problem": ("Problem",),
        "recommended": ("smooth_fbo",),
        "samples": ("Data", "Samples", "pad"),
        "saving": ("load", "save"),
        "smoothing": ("discounted_average", "mixed_average", "smoothed_gradient", "window_average"),
        "steps": ("Potential", "bregman_descent"),
        "source": ("AbstractSource", "FunctionSource", "RecordedSource", "RepeatedSource", "Round", "as_source"),
        "views.plots": ("plot",),
    }.items()
    for name in names
}

_PACKAGES = ("regret", "testbeds")  # with public names of their own

_renamed = renamed_attributes(
    "smoothfbo",
    {
        "AbstractHypergradient": "AbstractEstimator",
        "AbstractStream": "AbstractSource",
        "Fitted": "FittedAdjoint",
        "FunctionStream": "FunctionSource",
        "Identity": "IdentityInverse",
        "Neumann": "NeumannSeries",
        "Pointwise": "PointwiseAdjoint",
        "RecordedStream": "RecordedSource",
        "as_stream": "as_source",
        "streams": "smoothfbo.testbeds",
    },
)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"smoothfbo.{name}")
    if name not in _HOME:
        return _renamed(name)
    value = globals()[name] = getattr(import_module(f"smoothfbo.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
