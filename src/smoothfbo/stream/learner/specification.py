"""What a learner is: all that fixes its shapes and its mathematics. No jax here."""

from dataclasses import dataclass, replace

from smoothfbo.stream.learner.ladder import NEIGHBOURS, PRODUCTS, ladder_names
from smoothfbo.stream.options import LearnerOptions, default_block

LIMIT = 1.0  # of the entries of a smoothed gradient
DEPTH = 6.0  # the largest difference of log-weights
CLIP = 10.0  # standardised features are cut here
LEVELS = (0.5, 0.8, 0.95)  # of the bands


@dataclass(frozen=True, kw_only=True)
class Specification(LearnerOptions):
    """Options and shapes of a learner; two learners with equal specifications can exchange their states."""

    features: int
    """Columns of the input."""
    outputs: int
    """Entries of a prediction: 1 in regression, one less than the classes there is room for in classification."""
    is_classification: bool
    with_references: bool = True
    """Whether the references are computed."""
    windows: tuple[int, ...] = ()
    """Uniform windows among the references, in blocks."""
    lags: tuple[int, int] = (0, 0)
    """Which columns are lags of the target: from the first number up to the second."""
    own: tuple[int, ...] = ()
    """The columns of the table itself, which come first: −1 for a number, for a level of a text column its place among
    the levels. Products of two of them have an expert, in regression."""
    seasons: tuple[int, ...] = ()
    """Lags of the target that are experts by themselves: the last of the lags, in regression."""
    delay: int = 0
    """A block is learnt after this many more blocks were predicted: its targets are not known before."""
    horizon: int = 1
    """When a row is predicted, the newest target known is that of this many rows before."""

    @property
    def rows(self) -> int:
        """Rows of a block, i.e. of a round."""
        return self.block or default_block(self.is_classification)

    @property
    def is_network(self) -> bool:
        return self.predictor == "network"

    @property
    def has_products(self) -> bool:
        """Whether there are two columns that can be multiplied; the levels of a text column are one."""
        return not self.is_classification and sum(place <= 0 for place in self.own) >= 2

    @property
    def constant(self) -> int:
        """Where the constant 1 stands in z = (features, 1, targets)."""
        return self.features

    @property
    def size(self) -> int:
        """Entries of z = (features, 1, targets)."""
        return self.features + 1 + self.outputs

    @property
    def kept(self) -> int:
        """Entries of (features, 1, and every target with its last known value): what second moments are kept of."""
        return self.size + self.outputs

    def with_classes(self, classes: int) -> "Specification":
        """Twice as many outputs until so many classes have one; the same specification if they have."""
        outputs = self.outputs
        while outputs < classes - 1:
            outputs = 2 * outputs + 1
        return self if outputs == self.outputs else replace(self, outputs=outputs)

    @property
    def expert_names(self) -> tuple[str, ...]:
        """What the recommended prediction is mixed of."""
        return (
            "learned_memory",
            *ladder_names(self.rates),
            "since_change",
            "random_features",
            "random_features_difference",
            *(PRODUCTS if self.has_products else ()),
            *(NEIGHBOURS if self.is_classification else ()),
            *(f"season_{lag}" for lag in self.seasons),
            "last_value",
        )

    @property
    def reference_names(self) -> tuple[str, ...]:
        """The experts, and what is only compared with, in the order of their predictions."""
        if not self.with_references:
            return ()
        return (
            *self.expert_names,
            "unsmoothed",
            *(f"window_{window}" for window in self.windows),
            "rolling_ridge",
        )


def blocks_until_known(horizon: int, rows: int) -> int:
    """⌈(horizon − 1)/rows⌉: how many blocks late a whole block of targets is known.

    When the first row t of a block is predicted, the newest known target is that of row t − horizon.
    """
    return -(-(horizon - 1) // rows)
