"""Streams with a known truth."""

from smoothfbo.streams.cosine import DriftingCosine
from smoothfbo.streams.drift import Jumps, Sinusoidal
from smoothfbo.streams.finite import FiniteBilevel
from smoothfbo.streams.regression import DriftingRegression

__all__ = ["DriftingCosine", "DriftingRegression", "FiniteBilevel", "Jumps", "Sinusoidal"]
