"""The methods of this study: those that every study knows, and uniform weights. No jax here."""

from smoothfbo.harness import methods
from smoothfbo.harness.methods import RECOMMENDED, Method, Style

OWN = {"uniform": Style("Uniform weights", "#777777", is_reference=True)}
METHODS = (*methods.with_smoothed(("unrolled", "aid", "fbo", "exact")), RECOMMENDED, "uniform")
WITHOUT_RATE = (RECOMMENDED, "uniform")


def find(name: str) -> Method:
    return methods.find(name, OWN)
