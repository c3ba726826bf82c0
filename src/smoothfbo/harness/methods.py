"""The methods that studies compare: one name, one label and one colour for each, in every table and picture.

A method is an estimator, smoothed over time or not. No jax here: configurations and reports use it.
"""

from dataclasses import dataclass

# Estimator -> label, colour. Smoothed methods keep the colour of their estimator and are drawn dashed. Methods
# share a colour only where no study compares them.
_ESTIMATORS = {
    "fbo": ("FBO", "#0072b2"),
    "corrected-fbo": ("FBO, corrected", "#56b4e9"),
    "aid": ("AID", "#cc79a7"),
    "unrolled": ("Unrolled", "#d55e00"),
    "itd": ("ITD", "#d55e00"),
    "omd": ("OMD", "#1e0096"),
    "omd-cg": ("OMD (CG)", "#8b5a2b"),
    "vep": ("VEP", "#e69f00"),
    "mle": ("MLE", "#777777"),
    "exact": ("Exact hypergradient", "#000000"),
    "uniform": ("Uniform weights", "#777777"),
    "mixed-fbo": ("SmoothFBO, θ = 0.4", "#44aa99"),
    "recommended": ("SmoothFBO, recommended (untuned)", "#d4008f"),
    "fbo-solved": ("FBO, solved", "#1b9e9e"),
    "replayed-fbo": ("FBO, replayed", "#7570b3"),
    "fbo-linear": ("FBO, linear adjoint", "#6969ff"),
    "fbo-4": ("FBO, 4 × fit steps", "#003f66"),
    "aid-neumann": ("AID (Neumann)", "#aa4499"),
    "sobow": ("SOBOW", "#e69f00"),
    "oagd": ("OAGD", "#8b5a2b"),
    "sogd": ("SOGD", "#882255"),
    "soba": ("Single loop (SOBA)", "#999933"),
    "sobbo": ("SOBBO", "#117733"),
    "f2sa": ("First order (F²SA)", "#b22222"),
    "still": ("λ never moves", "#777777"),
    "constant": ("Best constant λ", "#555555"),
}
# These have a name of their own when they are smoothed, or a colour, since references are dashed anyway.
_SMOOTHED = {
    "fbo": ("SmoothFBO", "#009e73"),
    "corrected-fbo": ("SmoothFBO, corrected", "#00573f"),
    "exact": ("Smoothed exact hypergradient", "#e69f00"),
}
# What a perfect method would do, and what doing nothing does.
_REFERENCES = ("exact", "uniform", "still", "constant")
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

    @property
    def is_dashed(self) -> bool:
        """References and smoothed baselines, so that FBO, its rivals and SmoothFBO stand out."""
        return self.is_reference or (self.is_smoothed and self.estimator not in _SMOOTHED)

    def with_window(self, window: int) -> str:
        """The label, with the window where there is one."""
        return f"{self.label}, w = {window}" if self.is_smoothed else self.label


FBO, SMOOTH_FBO, RECOMMENDED = "fbo", "smooth-fbo", "recommended"


def find(name: str) -> Method:
    """The method of this name."""
    is_smoothed = name.startswith(_SMOOTH)
    estimator = name.removeprefix(_SMOOTH)
    label, colour = _ESTIMATORS[estimator]
    if is_smoothed:
        words = f"Smoothed {label[0].lower() + label[1:] if label[1:].islower() else label}"
        label, colour = _SMOOTHED.get(estimator, (words, colour))
    return Method(name, estimator, label, colour, is_smoothed, estimator in _REFERENCES)


def is_known(name: str) -> bool:
    """Whether `find` has a label for it; plug-ins bring their own."""
    return name.removeprefix(_SMOOTH) in _ESTIMATORS


def with_smoothed(estimators: tuple[str, ...]) -> tuple[str, ...]:
    """The names of these estimators alone, and then of all of them smoothed."""
    return (*estimators, *(_SMOOTH + name for name in estimators))


def any_smoothed(names: tuple[str, ...]) -> bool:
    return any(find(name).is_smoothed for name in names)
