"""Configuration of the CartPole study. No jax here: `--help` must be quick."""

from dataclasses import dataclass

from smoothfbo.errors import UsageError

BASE_METHODS = ("mle", "omd", "itd", "fbo", "vep", "omd-cg")
METHODS = (*BASE_METHODS, *(f"smooth-{method}" for method in BASE_METHODS))
ENVIRONMENTS = ("stationary", "drifting")

# The numbers of a lane, in the order of the fields below: a settings file fixes them for each method.
GRID = ("inner_rate", "outer_rate", "target_rate", "temperature", "window", "mix")


@dataclass(frozen=True)
class CartPoleConfig:
    """Model-based soft Q-learning on CartPole whose rewarded interval of pole angles drifts (Section 6.2).

    Every method trains the same two Q networks with the same small world model and differs only in how the model is
    trained: by likelihood (mle), value equivalence (vep), or a hypergradient (omd, omd-cg, itd, fbo); with `smooth-`
    in front the gradient is averaged over time. Fields with several values form a grid, all of it in one program.
    """

    methods: tuple[str, ...] = ("mle", "fbo", "smooth-fbo")
    """Methods: mle, omd, omd-cg, itd, fbo, vep, each also with smooth- in front."""
    environments: tuple[str, ...] = ("stationary", "drifting")
    """Environments: stationary keeps the first interval, drifting moves it to the last one."""
    steps: int = 1_000_000
    """Training steps: one environment step, one inner and one model step each. A multiple of evaluate_every."""
    evaluate_every: int = 10_000
    """Steps between evaluations."""
    episodes: int = 10
    """Episodes of an evaluation, with the interval of that moment and greedy actions."""
    seeds: int = 10
    """Independent runs of every setting."""
    first_seed: int = 0
    """The seeds are first_seed, first_seed + 1, …"""
    inner_rate: tuple[float, ...] = (1e-3,)
    """Learning rate of the Q networks (Adam; plain gradient descent for itd)."""
    outer_rate: tuple[float, ...] = (3e-4,)
    """Learning rate of the world model (Adam)."""
    target_rate: tuple[float, ...] = (5e-3,)
    """Rate τ at which the target networks follow the Q networks."""
    temperature: tuple[float, ...] = (1e-2,)
    """Temperature α of soft values and of the policy."""
    window: tuple[int, ...] = (100,)
    """Smoothing windows w of the smooth- methods."""
    mix: tuple[float, ...] = (0.4,)
    """Share θ of the newest gradient in the smoothed one: θ·newest + (1−θ)·average."""
    inner_steps: int = 1
    """Steps of the Q networks for each step of the world model, on the same transitions."""
    clip: float = 1.0
    """Largest norm of a model gradient after smoothing; 0 does not clip."""
    discount: float = 0.99
    """Discount γ."""
    exploration: float = 0.1
    """Share ε of random actions beside the soft policy."""
    random_steps: int = 1_000
    """Random steps that fill the memory before training begins; they come on top of `steps`."""
    batch: int = 256
    """Remembered transitions per step."""
    capacity: int = 100_000
    """Transitions that are remembered."""
    q_hidden: tuple[int, ...] = (32, 32)
    """Hidden layers of each Q network."""
    model_hidden: tuple[int, ...] = (3, 3)
    """Hidden layers of the transition and of the reward network; the paper's are too small on purpose."""
    bounded: bool = False
    """Keep the model's predictions within the range of what can happen, for all methods (not in the paper)."""
    first_interval: tuple[float, float] = (-0.2095, 0.06)
    """Rewarded pole angles at the beginning, low and high."""
    last_interval: tuple[float, float] = (-0.06, 0.2095)
    """Rewarded pole angles at the end of the drifting environment."""

    def __post_init__(self) -> None:
        for name, known in (("methods", METHODS), ("environments", ENVIRONMENTS)):
            for value in getattr(self, name):
                _require(value in known, name, value, "one of " + ", ".join(known))
        for name in ("methods", "environments", *GRID):
            values = getattr(self, name)
            _require(len(values) > 0, name, "nothing", "at least one value")
            _require(len(set(values)) == len(values), name, " ".join(map(str, values)), "different values")
        for name in ("steps", "evaluate_every", "episodes", "seeds", "inner_steps", "random_steps", "batch"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "an integer of at least 1")
        for name in ("inner_rate", "outer_rate", "target_rate", "temperature"):
            for value in getattr(self, name):
                _require(0 < value < float("inf"), name, value, "positive and finite")
        for value in self.target_rate:
            _require(value <= 1, "target_rate", value, "at most 1")
        for value in self.window:
            _require(1 <= value <= self.steps, "window", value, f"between 1 and steps = {self.steps}")
        for value in self.mix:
            _require(0 <= value <= 1, "mix", value, "between 0 and 1")
        _require(0 <= self.clip < float("inf"), "clip", self.clip, "finite and not negative")
        _require(0 <= self.discount < 1, "discount", self.discount, "at least 0 and below 1")
        _require(0 <= self.exploration <= 1, "exploration", self.exploration, "between 0 and 1")
        _require(self.first_seed >= 0, "first_seed", self.first_seed, "not negative")
        _require(self.capacity >= self.batch, "capacity", self.capacity, f"at least batch = {self.batch}")
        whole = self.steps % self.evaluate_every == 0
        _require(whole, "steps", self.steps, f"a multiple of evaluate_every = {self.evaluate_every}")
        for name in ("q_hidden", "model_hidden"):
            sizes = getattr(self, name)
            _require(all(size >= 1 for size in sizes), name, " ".join(map(str, sizes)), "sizes of at least 1")
        for name in ("first_interval", "last_interval"):
            low, high = getattr(self, name)
            _require(low < high, name, f"{low} {high}", "a low below a high")


def _require(condition: bool, name: str, value: object, allowed: str) -> None:
    if not condition:
        raise UsageError(f"--{name.replace('_', '-')} must be {allowed}, got {value}.")
