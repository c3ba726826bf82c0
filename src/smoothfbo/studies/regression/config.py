"""Configuration of the non-stationary regression. No jax here: `--help` must be quick."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

from smoothfbo.harness.methods import FBO, RECOMMENDED, SMOOTH_FBO, any_smoothed
from smoothfbo.harness.requirements import require, require_known, require_rising
from smoothfbo.studies.regression.lanes import BATCH_USES, REGIMES, Lane
from smoothfbo.studies.regression.methods import METHODS, WITHOUT_RATE, find

DRIFTS = ("sinusoidal", "jumps")
WEIGHTS = ("per-lag", "decay", "log")
FINALS = ("all", "drawn", "fresh")
TEST_POINTS = 128  # inputs on which the inner function is compared with the exact one
# Options with several values, crossed.
FACTORS = ("weights", "minibatch", "outer_rate", "inner_rate", "batch", "inner_steps")


@dataclass(frozen=True)
class RegressionConfig:
    """The paper's non-stationary regression: which past batches to trust, learned online, with the truth known.

    y = σ(W_tᵀx + b_t) + noise, with W_t and b_t drifting. A network h is fitted to the last batches; how much each of
    them counts is the outer variable λ, tuned on the newest batch. Everything is compared with the exact solution.
    Options that take several values are crossed; all lanes of one kind run in one compiled program.
    """

    methods: tuple[str, ...] = ("unrolled", "aid", "fbo", "smooth-fbo", "recommended", "exact", "uniform")
    """Methods: unrolled, aid, fbo and exact (the true hypergradient), each also as smooth-...; recommended (smooth_fbo
    with its defaults: it has no outer rate and no window, and uses the first kind of mini-batches) and uniform (all
    weights stay 1)."""
    windows: tuple[int, ...] = (1, 5, 10, 50, 100, 250, 500)
    """Smoothing windows w of smooth-fbo; methods without smooth-... have w = 1."""
    baseline_windows: tuple[int, ...] = (10, 100)
    """Those of `windows` at which the other smooth-... methods run."""
    drift: tuple[str, ...] = ("sinusoidal",)
    """How the truth moves: sinusoidal, jumps."""
    weights: tuple[str, ...] = ("per-lag",)
    """The outer variable: per-lag (one weight for each past batch), decay (a scalar λ, weights exp(-λ·lag)) or log (the
    logarithms of the weights per lag: their shares are a softmax, and nothing is projected)."""
    rounds: int = 1_000
    """Rounds T."""
    seeds: int = 10
    """Seeds; each draws its own truth, data and initialisation."""
    first_seed: int = 0
    """The first seed. Defaults were chosen on seeds from 1000 on, which no reported figure uses."""
    outer_rate: tuple[float, ...] = (30.0,)
    """Step size of the outer variable. (The paper's 1e-3 leaves the weights where they start.)"""
    inner_rate: tuple[float, ...] = (3e-3,)
    """Adam's rate for the inner network (paper: 1e-4)."""
    adjoint_rate: float = 1e-3
    """Adam's rate for the adjoint network."""
    batch: tuple[int, ...] = (32,)
    """Samples per round."""
    minibatch: tuple[str, ...] = ("batch",)
    """Samples per inner and adjoint step: batch (as many as a batch has, drawn from the last L batches), a number of
    them, or full (all samples of the last L batches in every step)."""
    final: str = "all"
    """What the hypergradient is formed on: all (all data of the round, which the fits have seen), drawn (a mini-batch
    of these, drawn again, as step 3 of Algorithm FuncGrad says) or fresh (new samples of the same rounds: independent
    of the fits, as the theorems assume)."""
    inner_steps: tuple[int, ...] = (5,)
    """Inner updates per round."""
    adjoint_steps: int = 5
    """Adjoint updates per round."""
    lags: int = 10
    """Past batches that the inner problem sees, L."""
    tied: bool = False
    """Let the inner problem of a smooth-... method see as many batches as its window has (the paper writes w for
    both)."""
    inputs: int = 5
    """Dimension of x."""
    width: int = 64
    """Hidden units of the three-layer networks."""
    noise: float = 0.3
    """Standard deviation of the noise of y."""
    amplitude: float = 2.0
    """Size β of the drift."""
    frequency: float = 0.05
    """Frequency ω of the sinusoidal drift."""
    jump_interval: int = 100
    """Rounds between jumps."""
    aid_ridge: float = 0.1
    """Ridge added to the Hessian in implicit differentiation (AID)."""
    aid_steps: int = 10
    """Conjugate-gradient steps of AID per round, warm-started."""
    sweep_rates: tuple[float, ...] = ()
    """A second study beside the first: these outer rates, for the methods, windows and regimes below."""
    sweep_methods: tuple[str, ...] = ("unrolled", "aid", "fbo", "smooth-fbo", "exact")
    """Methods of the sweep."""
    sweep_windows: tuple[int, ...] = (1, 10, 100)
    """Windows of the sweep's smooth-... methods."""
    sweep_regimes: tuple[str, ...] = ("default", "noisy", "fast", "normalised")
    """Regimes of the sweep: default, noisy (3 × noise), fast (4 × frequency), slow (frequency / 4), normalised (steps
    of length rate / 1000 along g̃). Regimes other than the default are run for fbo and smooth-fbo only, with the first
    kind of weights and of mini-batches."""
    paper_values: bool = False
    """Also run fbo and smooth-fbo at the paper's rates: inner 1e-4, outer 1e-3."""
    probe_draws: int = 8
    """Draws of a round's data, once per chunk, to tell bias from noise (0: none)."""
    chunk: int = 50
    """Rounds per compiled call; between calls records and a checkpoint are written."""
    record_every: int = 1
    """Rounds from one row of metrics.parquet to the next. (Headline figures always use all rounds.)"""

    def __post_init__(self) -> None:
        for name, known in {
            "methods": METHODS, "drift": DRIFTS, "weights": WEIGHTS, "sweep_methods": METHODS,
            "sweep_regimes": tuple(REGIMES),
        }.items():  # fmt: skip
            require_known(name, getattr(self, name), known)
        require_known("final", (self.final,), FINALS, "one")
        for name in (
            "rounds",
            "seeds",
            "adjoint_steps",
            "lags",
            "inputs",
            "width",
            "jump_interval",
            "aid_steps",
            "chunk",
            "record_every",
        ):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer of at least 1")
        require(self.rounds >= 2, "rounds", self.rounds, "an integer of at least 2")
        for name in ("windows", "baseline_windows", *FACTORS[2:], "sweep_windows"):
            require_rising(name, getattr(self, name))
        smooth_alone = all(find(method).is_smoothed for method in self.methods) and max(self.windows) == 1
        require(not smooth_alone, "windows", 1, "above 1 somewhere where all methods are smooth-...")
        for method in WITHOUT_RATE:
            require(method not in self.sweep_methods, "sweep_methods", method, "methods that have an outer rate")
        used = {"windows": self.methods, "sweep_windows": self.sweep_methods if self.sweep_rates else ()}
        for name, methods in used.items():
            for window in getattr(self, name) if any_smoothed(methods) else ():
                require(1 <= window <= self.rounds, name, window, f"between 1 and rounds = {self.rounds}")
        for name in ("batch", "inner_steps"):
            for value in getattr(self, name):
                require(value >= 1, name, value, "integers of at least 1")
        data = self.lags * self.batch[0]
        allowed = f"batch, full, or between 1 and the {data} samples of a round's inner data (lags x batch)"
        require(len(self.minibatch) > 0, "minibatch", "nothing", allowed)
        for value in self.minibatch:
            known = value in BATCH_USES or (value.isdecimal() and 1 <= int(value) <= data)
            require(known, "minibatch", value, allowed)
        require(len(set(self.minibatch)) == len(self.minibatch), "minibatch", " ".join(self.minibatch), "different")
        for name in ("outer_rate", "inner_rate", "sweep_rates"):
            for value in getattr(self, name):
                require(0 < value < float("inf"), name, value, "positive and finite")
        for name in ("adjoint_rate", "aid_ridge"):
            require(0 < getattr(self, name) < float("inf"), name, getattr(self, name), "positive and finite")
        for name in ("noise", "amplitude", "frequency"):
            require(0 <= getattr(self, name) < float("inf"), name, getattr(self, name), "finite and not negative")
        require(0 <= self.first_seed < 2**31, "first_seed", self.first_seed, "between 0 and 2147483647")
        require(self.probe_draws == 0 or self.probe_draws >= 2, "probe_draws", self.probe_draws, "0 or at least 2")

    @property
    def base(self) -> dict[str, Any]:
        """The value of each factor in the main comparison: the usual one where it is among them, else the first."""
        usual = {field.name: field.default for field in fields(RegressionConfig)}
        chosen = {
            name: usual[name][0] if usual[name][0] in getattr(self, name) else getattr(self, name)[0]  # pyright: ignore[reportIndexIssue]
            for name in FACTORS
        }
        return chosen | {"adjoint_rate": self.adjoint_rate}

    def lanes(self) -> Iterator[Lane]:
        """All lanes, each once."""
        return iter(dict.fromkeys([*self._main(), *self._sweep(), *self._paper()]))

    def _main(self) -> Iterator[Lane]:
        for method, drift, weights, minibatch, outer, inner, batch, steps in product(
            self.methods, self.drift, self.weights, self.minibatch, self.outer_rate, self.inner_rate, self.batch,
            self.inner_steps,
        ):  # fmt: skip
            if method == RECOMMENDED and minibatch != self.base["minibatch"]:
                continue  # each of its windows has many rounds of data: all of them in every step would take long
            base = self._lane(method, drift, weights, minibatch)
            if method not in WITHOUT_RATE:
                base = replace(base, outer_rate=outer)
            shared = tuple(window for window in self.windows if window in self.baseline_windows)
            windows = self.windows if method == SMOOTH_FBO else shared
            yield from self._over_windows(replace(base, inner_rate=inner, batch=batch, inner_steps=steps), windows)

    def _sweep(self) -> Iterator[Lane]:
        for method, regime, rate, weights, minibatch in product(
            self.sweep_methods, self.sweep_regimes, self.sweep_rates, self.weights, self.minibatch
        ):
            change = REGIMES[regime]
            if change.frequency != 1 and self.drift[0] == "jumps":
                continue  # jumps have no frequency
            usual = (weights, minibatch) == (self.base["weights"], self.base["minibatch"])
            if regime == "default" or (usual and method in (FBO, SMOOTH_FBO)):
                lane = replace(
                    self._lane(method, self.drift[0], weights, minibatch),
                    regime=regime,
                    outer_rate=float(f"{rate * change.rate:.6g}"),  # 0.1, not 0.1 and its rounding error
                    normalised=change.normalised,
                    noise=self.noise * change.noise,
                    frequency=self.frequency * change.frequency,
                )
                yield from self._over_windows(lane, self.sweep_windows)

    def _paper(self) -> Iterator[Lane]:
        if self.paper_values:
            for method in (FBO, SMOOTH_FBO):
                lane = self._lane(method, self.drift[0], self.base["weights"], self.base["minibatch"])
                lane = replace(lane, outer_rate=1e-3, inner_rate=1e-4, adjoint_rate=1e-4)
                yield from self._over_windows(lane, self.windows)

    def _lane(self, method: str, drift: str, weights: str, minibatch: str) -> Lane:
        return Lane(
            method=method, window=1, drift=drift, weights=weights, minibatch=minibatch, lags=self.lags,
            regime="default",
            outer_rate=0.0 if method in WITHOUT_RATE else self.base["outer_rate"], inner_rate=self.base["inner_rate"],
            adjoint_rate=self.adjoint_rate, noise=self.noise, amplitude=self.amplitude, frequency=self.frequency,
            batch=self.base["batch"], inner_steps=self.base["inner_steps"], seed=0, normalised=False,
        )  # fmt: skip

    def _over_windows(self, lane: Lane, windows: tuple[int, ...]) -> Iterator[Lane]:
        """Lanes for every seed, and for every window above 1 of a smooth-... method (w = 1 is without smoothing)."""
        for window in [w for w in windows if w > 1] if find(lane.method).is_smoothed else [1]:
            for seed in range(self.first_seed, self.first_seed + self.seeds):
                lags = window if self.tied and window > 1 else self.lags
                yield replace(lane, window=window, seed=seed, lags=lags)
