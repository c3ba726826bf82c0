"""Problems whose exact answer is known."""

from smoothfbo.testbeds.base import AbstractTestbed
from smoothfbo.testbeds.cosine import DriftingCosine
from smoothfbo.testbeds.drift import Bursts, Jumps, RandomWalk, Sinusoidal, Steady, as_drift
from smoothfbo.testbeds.finite import FiniteBilevel
from smoothfbo.testbeds.regression import DriftingRegression
from smoothfbo.testbeds.sources import MovingSources

__all__ = [
    "AbstractTestbed",
    "Bursts",
    "DriftingCosine",
    "DriftingRegression",
    "FiniteBilevel",
    "Jumps",
    "MovingSources",
    "RandomWalk",
    "Sinusoidal",
    "Steady",
    "as_drift",
]
