"""What a lane of the regression is, and what lanes of one program share. No jax here."""

from dataclasses import asdict, dataclass
from typing import Any

from smoothfbo.harness.methods import FBO
from smoothfbo.studies.regression.methods import find

BATCH_USES = ("batch", "full")  # or a number of samples


@dataclass(frozen=True)
class Regime:
    """How a regime of the sweep differs from the base: factors, and whether steps are normalised."""

    noise: float = 1.0
    frequency: float = 1.0
    rate: float = 1.0
    normalised: bool = False  # λ moves by the outer rate times g̃/‖g̃‖: the direction alone counts


REGIMES = {
    "default": Regime(),
    "noisy": Regime(noise=3.0),
    "fast": Regime(frequency=4.0),
    "slow": Regime(frequency=0.25),
    "normalised": Regime(rate=1e-3, normalised=True),
}


@dataclass(frozen=True)
class Shape:
    """What lanes must share to be in one program."""

    estimator: str
    drift: str
    weights: str
    minibatch: str
    lags: int
    batch: int
    inner_steps: int

    @property
    def name(self) -> str:
        return (
            f"{self.estimator}, {self.drift} drift, {self.weights} weights of {self.lags} lags, batch {self.batch}, "
            f"{self.inner_steps} inner steps on {self.minibatch}"
        )

    @property
    def samples_per_step(self) -> int | None:
        """Samples of an inner or adjoint step; None is all that the round has."""
        if self.minibatch in BATCH_USES:
            return self.batch if self.minibatch == "batch" else None
        return int(self.minibatch)


@dataclass(frozen=True)
class Lane:
    """One method with its numbers and its seed."""

    method: str
    window: int
    drift: str
    weights: str
    minibatch: str
    lags: int
    regime: str
    outer_rate: float
    normalised: bool
    inner_rate: float
    adjoint_rate: float
    noise: float
    amplitude: float
    frequency: float
    batch: int
    inner_steps: int
    seed: int

    @property
    def shape(self) -> Shape:
        estimator = FBO if self.method == "uniform" else find(self.method).estimator
        return Shape(estimator, self.drift, self.weights, self.minibatch, self.lags, self.batch, self.inner_steps)

    def keys(self) -> dict[str, Any]:
        """The columns that tell lanes apart."""
        return asdict(self)
