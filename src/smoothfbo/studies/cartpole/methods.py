"""The methods of this study: the estimators that every study knows, and its own. No jax here."""

from smoothfbo.harness import methods
from smoothfbo.harness.methods import Look, Method

OWN = {
    "mle": Look("MLE", "#777777"),
    "itd": Look("ITD", "#d55e00"),
    "vep": Look("VEP", "#e69f00"),
    "omd-cg": Look("OMD (CG)", "#8b5a2b"),
}
METHODS = methods.with_smoothed(("mle", "omd", "itd", "fbo", "corrected-fbo", "vep", "omd-cg"))


def find(name: str) -> Method:
    return methods.find(name, OWN)
