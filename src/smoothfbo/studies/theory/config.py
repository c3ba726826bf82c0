"""Configuration of the theory study. No jax here: `--help` must be quick."""

from dataclasses import dataclass

from smoothfbo.errors import UsageError
from smoothfbo.harness.requirements import require, require_rising


@dataclass(frozen=True)
class TheoryConfig:
    """Check every lemma, theorem and corollary of the paper by experiment, where all quantities are known.

    The problems: a gradient oracle (Algorithm 1), a functional bilevel problem with inexact inner and adjoint solves
    (Algorithm 3), the same with λ in both terms of the hypergradient, a linear inner predictor (the reduction lemma),
    and replayed windows. Expectations are means over many runs.
    """

    lanes: int = 200
    """Independent runs per setting, over which expectations are taken."""
    rounds: int = 200
    """Rounds T of each run."""
    windows: tuple[int, ...] = (1, 2, 4, 8, 16, 64)
    """Smoothing windows w."""
    drifts: tuple[float, ...] = (0.0, 0.02, 0.1)
    """How far the problem moves per round."""
    step: float = 1.0
    """Outer step as a fraction of the largest that the theorem allows: 1/L for the oracle, 4/(5L) for estimates."""
    small_step: float = 0.1
    """A second, smaller fraction, for which the same proof holds with 2/α in place of 2L or 5L/2."""
    allow_large_step: bool = False
    """Allow fractions above 1; their results are marked as outside the assumptions."""
    horizons: tuple[int, ...] = (100, 316, 1_000, 3_162, 10_000, 31_623, 100_000)
    """Numbers of rounds for the growth of the regret with T."""
    exponents: tuple[float, ...] = (0.333, 0.5, 0.667)
    """Windows w = ⌈T^exponent⌉ for the growth of the regret."""
    growth_lanes: int = 16
    """Independent runs per horizon."""
    seed: int = 0
    """Seed of all randomness."""

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**31, "seed", self.seed, "an integer between 0 and 2147483647")
        require(self.lanes >= 10, "lanes", self.lanes, "an integer of at least 10")
        require(self.growth_lanes >= 2, "growth_lanes", self.growth_lanes, "an integer of at least 2")
        require(self.rounds >= 2, "rounds", self.rounds, "an integer of at least 2")
        for name in ("windows", "drifts", "horizons", "exponents"):
            require_rising(name, getattr(self, name))
        for window in self.windows:
            require(1 <= window <= self.rounds, "windows", window, f"between 1 and rounds = {self.rounds}")
        for drift in self.drifts:
            require(0 <= drift < float("inf"), "drifts", drift, "finite and not negative")
        for name in ("step", "small_step"):
            fraction = getattr(self, name)
            require(0 < fraction < float("inf"), name, fraction, "positive and finite")
            if fraction > 1 and not self.allow_large_step:
                raise UsageError(
                    f"`{name}` {fraction:g} is more than the theorems allow (1); use at most 1, or "
                    "`allow_large_step` to run it and mark the result."
                )
        require(len(self.horizons) >= 3, "horizons", self.horizons, "at least three horizons")
        for horizon in self.horizons:
            require(horizon >= 10, "horizons", horizon, "integers of at least 10")
        for exponent in self.exponents:
            require(0 < exponent < 1, "exponents", exponent, "strictly between 0 and 1")


PRESETS = {"full": TheoryConfig()}
