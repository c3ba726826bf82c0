"""The methods of this study: the estimators that every study knows, and uniform weights. No jax here."""

from smoothfbo.harness import methods
from smoothfbo.harness.methods import Method, Style

OWN = {"uniform": Style("Uniform weights", "#777777", is_reference=True)}
METHODS = (*methods.with_smoothed(("unrolled", "aid", "fbo", "exact")), "uniform")


def find(name: str) -> Method:
    return methods.find(name, OWN)
