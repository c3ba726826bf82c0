"""Problems whose exact answer is known."""

from smoothfbo.testbeds.base import AbstractTestbed
from smoothfbo.testbeds.cosine import DriftingCosine
from smoothfbo.testbeds.drift import Jumps, Sinusoidal
from smoothfbo.testbeds.finite import FiniteBilevel
from smoothfbo.testbeds.regression import DriftingRegression

__all__ = ["AbstractTestbed", "DriftingCosine", "DriftingRegression", "FiniteBilevel", "Jumps", "Sinusoidal"]
