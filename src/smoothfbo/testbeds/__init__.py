"""Streams with a known truth."""

from smoothfbo.testbeds.cosine import DriftingCosine
from smoothfbo.testbeds.drift import Jumps, Sinusoidal
from smoothfbo.testbeds.finite import FiniteBilevel
from smoothfbo.testbeds.regression import DriftingRegression

__all__ = ["DriftingCosine", "DriftingRegression", "FiniteBilevel", "Jumps", "Sinusoidal"]
