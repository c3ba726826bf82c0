"""Problems whose exact answer is known."""

from smoothfbo.testbeds.base import AbstractTestbed
from smoothfbo.testbeds.corruption import RotatingCorruption
from smoothfbo.testbeds.cosine import DriftingCosine
from smoothfbo.testbeds.drift import Bursts, Jumps, RandomWalk, Sinusoidal, Steady, Swinging, as_drift
from smoothfbo.testbeds.finite import FiniteBilevel
from smoothfbo.testbeds.instruments import InstrumentalVariables
from smoothfbo.testbeds.regression import DriftingRegression
from smoothfbo.testbeds.sinusoids import SinusoidFamilies
from smoothfbo.testbeds.sources import MovingSources
from smoothfbo.testbeds.support import ChangingSupport

__all__ = [
    "AbstractTestbed",
    "Bursts",
    "ChangingSupport",
    "DriftingCosine",
    "DriftingRegression",
    "FiniteBilevel",
    "InstrumentalVariables",
    "Jumps",
    "MovingSources",
    "RandomWalk",
    "RotatingCorruption",
    "SinusoidFamilies",
    "Sinusoidal",
    "Steady",
    "Swinging",
    "as_drift",
]
