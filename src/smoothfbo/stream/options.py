"""How the stream learner learns: every option stated and checked once. No jax here: `--help` must be quick."""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal

from smoothfbo.harness.requirements import require


def default_block(is_classification: bool) -> int:
    """Rows of a block. Classes gain more from quick changes than they lose by the noise of small blocks.

    Chosen on six generated streams and the first fifth of the electricity data: error rates with 4, 8, 16, 32 rows are
    on average 0.1113, 0.1106, 0.1122, 0.1147.
    """
    return 8 if is_classification else 16


@dataclass(frozen=True)
class LearnerOptions:
    """How the learner learns. The estimators take these options by the same names."""

    block: int | None = None
    """Rows of a block: a round of SmoothFBO, and the unit of all memories. If not given: 16, for classes 8."""
    predictor: Literal["linear", "network"] = "linear"
    """Linear in standardised features (closed form), or a network with two hidden layers."""
    smoothing: int = 5
    """Window w of SmoothFBO: how many rounds of hypergradients are averaged."""
    step: float = 0.5
    """Outer step, of log-weights; stable for step·smoothing up to about 5."""
    rates: int = 10
    """Forgetting rates: memories of 1, 2, 4, … blocks and, as the last one, all of the past."""
    ridge: float = 1e-3
    """Penalty on the coefficients of standardised features."""
    width: int = 32
    """Network: units of each hidden layer."""
    network_blocks: int = 64
    """Network: blocks whose rows are kept and fitted."""
    network_steps: int = 10
    """Network: optimiser steps per round for each fit."""
    network_rate: float = 3e-3
    """Network: learning rate."""
    seed: int = 0
    """Seed of all that is drawn: random features, which products of many columns, the network and its mini-batches."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        if self.block is not None:
            require_integer("block", self.block, 2, 100_000)
        require_choice("predictor", self.predictor, ("linear", "network"))
        require_integer("smoothing", self.smoothing, 1, 10_000)
        require_integer("rates", self.rates, 2, 20)
        for name in ("step", "ridge", "network_rate"):
            value = getattr(self, name)
            require(is_number(value) and 0 < value < math.inf, name, value, "positive and finite")
        for name in ("width", "network_blocks", "network_steps"):
            require_integer(name, getattr(self, name), 1)
        require_integer("seed", self.seed, 0, 2**31 - 1)

    @property
    def learner_options(self) -> dict[str, Any]:
        """These options alone, by name, of any class that has more."""
        return {field.name: getattr(self, field.name) for field in fields(LearnerOptions)}


def require_integer(name: str, value: Any, least: int, most: int | None = None) -> None:
    allowed = f"an integer of at least {least}" if most is None else f"an integer between {least} and {most}"
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    require(is_integer and least <= int(value) <= (int(value) if most is None else most), name, value, allowed)


def require_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    require(value in choices, name, value, f"one of {', '.join(choices)}")


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
