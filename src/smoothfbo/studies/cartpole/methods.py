"""The methods of this study: the estimators that every study knows, and its own. No jax here."""

from smoothfbo.harness import methods
from smoothfbo.harness.methods import Method, Style

OWN = {
    "mle": Style("MLE", "#777777"),
    "itd": Style("ITD", "#d55e00"),
    "vep": Style("VEP", "#e69f00"),
    "omd-cg": Style("OMD (CG)", "#8b5a2b"),
}
METHODS = methods.with_smoothed(("mle", "omd", "itd", "fbo", "corrected-fbo", "vep", "omd-cg"))


def find(name: str) -> Method:
    return methods.find(name, OWN)
