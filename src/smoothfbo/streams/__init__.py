"""Streams with a known truth."""

from smoothfbo.streams.drift import Jumps, Sinusoidal
from smoothfbo.streams.regression import DriftingRegression

__all__ = ["DriftingRegression", "Jumps", "Sinusoidal"]
