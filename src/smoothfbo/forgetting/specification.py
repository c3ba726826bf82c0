"""What a learner is: all that fixes its shapes and its mathematics. No jax here."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Specification:
    """Shapes and numbers of a learner; two learners with equal specifications can exchange their states."""

    features: int
    """Columns of the input."""
    outputs: int
    """Entries of a prediction: 1 in regression, one less than the classes there is room for in classification."""
    is_classification: bool
    block: int
    """Rows of a block, i.e. of a round."""
    rates: int
    """Forgetting rates 1 − 2^−k, with 0 (newest block) and 1 (all of the past)."""
    windows: tuple[int, ...]
    """Uniform windows among the references, in blocks."""
    smoothing: int
    """Window of SmoothFBO, in rounds."""
    step: float
    """Outer step."""
    limit: float
    """Bound of a smoothed gradient's entries."""
    depth: float
    """Largest difference of log-weights."""
    ridge: float
    """Penalty on the coefficients, in standardised units."""
    clip: float
    """Standardised features are cut here."""
    with_references: bool
    """Whether the references are computed."""
    network: bool
    """A network in place of the linear predictor."""
    width: int
    network_blocks: int
    """Blocks of rows that are kept for the network."""
    network_steps: int
    network_rate: float
    seed: int

    @property
    def constant(self) -> int:
        """Where the constant 1 stands in z = (features, 1, targets)."""
        return self.features

    @property
    def size(self) -> int:
        """Entries of z = (features, 1, targets)."""
        return self.features + 1 + self.outputs

    @property
    def reference_names(self) -> tuple[str, ...]:
        """The references in the order of their predictions."""
        if not self.with_references:
            return ()
        memories = [f"forgetting_{2**k}" for k in range(1, self.rates - 1)]
        return (
            "unsmoothed",
            "last_block",
            *memories,
            "all_past",
            *(f"window_{window}" for window in self.windows),
            "last_value",
        )
