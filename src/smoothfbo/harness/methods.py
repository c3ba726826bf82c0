"""The methods that studies compare: one name, one label and one colour for each, in every table and picture.

A method is an estimator, smoothed over time or not. Here stand the estimators that several studies compare; what
only one study has stands in the folder of that study. No jax here: configurations and reports use it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Style(NamedTuple):
    """How an estimator is shown. `smoothed`: label and colour of its own where it is smoothed over time."""

    label: str
    colour: str
    smoothed: tuple[str, str] | None = None
    is_reference: bool = False  # what a perfect method would do, or what doing nothing does


# Smoothed methods keep the colour of their estimator and are drawn dashed, unless they have a style of their own.
# Methods share a colour only where no study compares them.
SHARED: Mapping[str, Style] = {
    "fbo": Style("FBO", "#0072b2", smoothed=("SmoothFBO", "#009e73")),
    "recommended": Style("SmoothFBO, recommended (untuned)", "#d4008f"),
    "corrected-fbo": Style("FBO, corrected", "#56b4e9", smoothed=("SmoothFBO, corrected", "#00573f")),
    "aid": Style("AID", "#cc79a7"),
    "unrolled": Style("Unrolled", "#d55e00"),
    "omd": Style("OMD", "#1e0096"),
    "exact": Style(
        "Exact hypergradient", "#000000", smoothed=("Smoothed exact hypergradient", "#e69f00"), is_reference=True
    ),
}
FBO, SMOOTH_FBO, RECOMMENDED = "fbo", "smooth-fbo", "recommended"
_SMOOTH = "smooth-"


@dataclass(frozen=True)
class Method:
    """`name` is how the command line and the files call it, `label` how the paper does."""

    name: str
    estimator: str
    label: str
    colour: str
    is_smoothed: bool
    is_reference: bool
    is_dashed: bool
    """References and smoothed baselines, so that FBO, its rivals and SmoothFBO stand out."""

    def with_window(self, window: int) -> str:
        """The label, with the window where there is one."""
        return f"{self.label}, w = {window}" if self.is_smoothed else self.label


def find(name: str, own: Mapping[str, Style] | None = None) -> Method:
    """The method of this name; `own` has the estimators that only the study at hand compares."""
    is_smoothed = name.startswith(_SMOOTH)
    estimator = name.removeprefix(_SMOOTH)
    style = (own or {}).get(estimator) or SHARED[estimator]
    label, colour = style.label, style.colour
    if is_smoothed:
        words = f"Smoothed {label[0].lower() + label[1:] if label[1:].islower() else label}"
        label, colour = style.smoothed or (words, colour)
    is_dashed = style.is_reference or (is_smoothed and style.smoothed is None)
    return Method(name, estimator, label, colour, is_smoothed, style.is_reference, is_dashed)


def is_shared(name: str) -> bool:
    """Whether every study knows this method."""
    return name.removeprefix(_SMOOTH) in SHARED


def with_smoothed(estimators: tuple[str, ...]) -> tuple[str, ...]:
    """The names of these estimators alone, and then of all of them smoothed."""
    return (*estimators, *(_SMOOTH + name for name in estimators))


def any_smoothed(names: tuple[str, ...]) -> bool:
    return any(name.startswith(_SMOOTH) for name in names)
