"""Configuration of the arena. No jax here: `--help` must be quick."""

from dataclasses import dataclass

from smoothfbo.harness.requirements import require, require_rising

FIRST_TUNING_SEED = 10_000  # seeds from here on choose the settings, and nothing else
CHUNKS = 4  # compiled calls of a program


@dataclass(frozen=True)
class ArenaConfig:
    """Every online bilevel method on problems whose best answer moves, judged by the truth.

    Each method tries the same number of settings (rate, window, plain or normalised steps) on tuning seeds. The best
    of them is reported on fresh seeds, by the gap F_t(λ_t) − min F_t between what it played and the best possible
    answer. All lanes of a method and a problem share one compiled program.
    """

    problems: tuple[str, ...] = ()
    """Names of problems; all of them without a value: regression, decay, sources, instruments, support, families,
    corruption, cosine."""
    methods: tuple[str, ...] = ()
    """Names of methods; all of them without a value: recommended, fbo, smooth-fbo, mixed-fbo, fbo-linear, fbo-solved,
    replayed-fbo, fbo-4, corrected-fbo, aid, aid-neumann, omd, unrolled, sobow, oagd, sogd, soba, sobbo, f2sa, exact."""
    add: tuple[str, ...] = ()
    """Python files with methods (METHOD) and problems (PROBLEM) of your own, in addition to those chosen above."""
    knobs: tuple[str, ...] = ()
    """Changes of the problems: NAME=VALUE for all that have this number, or PROBLEM.NAME=VALUE for one. Every problem
    has noise, dimension, period (rounds in which the truth goes round once: the speed of its drift) and drift (smooth,
    jumps, bursts: calm, then fast; or walk)."""
    rounds: int = 600
    """Rounds T of every lane."""
    seeds: int = 20
    """Fresh seeds, on which results are reported."""
    first_seed: int = 0
    """The first fresh seed."""
    tuning_seeds: int = 4
    """Seeds, from 10000 on, that choose each method's setting."""
    trials: int = 20
    """Settings that every method may try on a problem. Methods without a window try more rates instead."""
    record_every: int = 10
    """Rounds from one evaluation of the exact objective and its gradient to the next."""
    map_noises: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    """Map of when smoothing pays: noise levels of the moving sources. Without a value no map is made."""
    map_periods: tuple[float, ...] = (200.0, 600.0, 1800.0, 5400.0)
    """Map: rounds in which the sources go round once."""
    map_rates: int = 9
    """Map: how many rates each method tries, from a hundredth of the problem's smallest one on."""
    map_window: int = 16
    """Map: SmoothFBO's window."""
    map_seeds: int = 8
    """Map: fresh seeds. Its number of tuning seeds is `tuning_seeds`."""
    time_limit: float = 60.0
    """Seconds of processor time that the first rounds of a plug-in may take on a problem, compilation included."""

    def __post_init__(self) -> None:
        for name in ("seeds", "tuning_seeds", "record_every", "map_rates", "map_window", "map_seeds"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer of at least 1")
        step = CHUNKS * self.record_every
        require(
            self.rounds >= 2 * step and self.rounds % step == 0,
            "rounds", self.rounds, f"a multiple of {CHUNKS} × `record_every` = {step}, at least {2 * step}",
        )  # fmt: skip
        require(self.trials >= 2, "trials", self.trials, "an integer of at least 2")
        last = FIRST_TUNING_SEED - self.seeds
        require(0 <= self.first_seed <= last, "first_seed", self.first_seed, f"between 0 and {last}")
        for name in ("map_noises", "map_periods"):
            if self.map_noises:
                require_rising(name, getattr(self, name))
            for value in getattr(self, name):
                require(0 < value < float("inf"), name, value, "positive and finite")
        require(0 < self.time_limit < float("inf"), "time_limit", self.time_limit, "positive and finite")

    @property
    def chunk(self) -> int:
        """Rounds per compiled call."""
        return self.rounds // CHUNKS

    @property
    def fresh(self) -> tuple[int, ...]:
        return tuple(range(self.first_seed, self.first_seed + self.seeds))

    @property
    def tuning(self) -> tuple[int, ...]:
        return tuple(range(FIRST_TUNING_SEED, FIRST_TUNING_SEED + self.tuning_seeds))


PRESETS = {
    "quick": ArenaConfig(
        problems=("sources", "instruments", "families"),
        methods=(
            "recommended",
            "fbo",
            "fbo-solved",
            "smooth-fbo",
            "mixed-fbo",
            "aid",
            "sobow",
            "sogd",
            "soba",
            "exact",
        ),
        rounds=400,
        seeds=8,
        tuning_seeds=3,
        trials=16,
        map_noises=(0.1, 0.3, 1.0),
        map_periods=(200.0, 600.0, 1800.0),
        map_rates=7,
        map_seeds=4,
    ),
    "full": ArenaConfig(),
}
"""quick: at most five minutes on two cores; full: all methods and problems."""
