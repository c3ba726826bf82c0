"""Configuration of the CartPole study. No jax here: `--help` must be quick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from smoothfbo.harness.methods import any_smoothed
from smoothfbo.harness.requirements import require, require_known
from smoothfbo.studies.cartpole.methods import METHODS

Settings: TypeAlias = Mapping[str, Sequence[Mapping[str, float]]]  # method -> its settings, the best one first

ENVIRONMENTS = ("stationary", "drifting")

LARGEST_RETURN = 500  # a reward of at most 1 a step, until the time limit
MOST_SEEDS = 100_000  # each is a lane with a memory of its own
MOST_AVERAGED = 50  # networks: more cost more than training where evaluations are frequent

# The numbers of a lane, in the order of the fields below: a settings file fixes them for each method.
GRID = ("inner_rate", "outer_rate", "target_rate", "temperature", "final_rate", "window", "mix")
SMOOTHING = ("window", "mix")  # only smoothed methods have these
LANE = ("method", "environment", *GRID, "seed")  # what tells the lanes of a study apart
# The fields that say which lanes there are: runs that differ in these alone are parts of one study.
WHICH_LANES = ("methods", "environment", "seeds", "first_seed", *GRID, "settings", "vary", "trials")


@dataclass(frozen=True)
class CartPoleConfig:
    """Model-based soft Q-learning on CartPole whose rewarded interval of pole angles drifts (Section 6.2).

    Every method trains the same two Q networks with the same small world model and differs only in how the model is
    trained: by likelihood (mle), value equivalence (vep), or a hypergradient (omd, omd-cg, itd, fbo, corrected-fbo);
    with `smooth-` in front the gradient is averaged over time. Fields with several values form a grid, all of it in
    one program.
    """

    methods: tuple[str, ...] = ("mle", "fbo", "smooth-fbo")
    """Methods: mle, omd, omd-cg, itd, fbo, corrected-fbo, vep, each also with smooth- in front."""
    environment: tuple[str, ...] = ("stationary", "drifting")
    """Environments: stationary keeps the first interval, drifting moves it to the last one."""
    steps: int = 1_000_000
    """Training steps: one environment step, one inner and one model step each. A multiple of `evaluate_every`."""
    evaluate_every: int = 10_000
    """Steps between evaluations."""
    episodes: int = 20
    """Episodes of an evaluation, with the interval of that moment and greedy actions."""
    averaged: float = 0.3
    """The policy that is evaluated uses the mean values of the Q networks at this share of the evaluations so far (at
    most 50). The newest networks alone are evaluated beside it; 0 evaluates only these."""
    vote: bool = False
    """Let the averaged networks vote: the action that most of them prefer counts, not that with the highest mean value.
    A few networks with large values then cannot outvote the others."""
    seeds: int = 10
    """Independent runs of every setting."""
    first_seed: int = 0
    """The first seed; the others follow it."""
    inner_rate: tuple[float, ...] = (1e-3,)
    """Learning rate of the Q networks (Adam)."""
    itd_factor: float = 100.0
    """itd takes plain gradient steps in place of Adam's, with `inner_rate` times this."""
    outer_rate: tuple[float, ...] = (3e-4,)
    """Learning rate of the world model (Adam)."""
    target_rate: tuple[float, ...] = (5e-3,)
    """Rate τ at which the target networks follow the Q networks."""
    temperature: tuple[float, ...] = (1e-2,)
    """Temperature α of soft values and of the policy."""
    final_rate: tuple[float, ...] = (0.1,)
    """Share of both learning rates that is left at the end of training; they fall linearly."""
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
    independent_final: bool = False
    """Draw the transitions of the hypergradient independently of those of the inner step, as step 3 of Algorithm
    FuncGrad does; without it both are the same."""
    capacity: int = 100_000
    """Transitions that are remembered."""
    critics: int = 2
    """Q networks: 2 (their minimum counts in targets, their mean when acting) or 1, the paper's formula."""
    q_hidden: tuple[int, ...] = (32, 32)
    """Hidden layers of each Q network."""
    model_hidden: tuple[int, ...] = (3, 3)
    """Hidden layers of the transition and of the reward network; the paper's are too small on purpose."""
    model_leak: float = 0.1
    """Slope of the model's hidden units below zero; 0 makes them ReLUs, and one that is off for all data stays off."""
    bounded: bool = False
    """Keep the model's predictions within the range of what can happen, for all methods (not in the paper)."""
    bounded_values: bool = True
    """Keep the soft values of target networks near what rewards in [0, 1] allow, for all methods: only a tenth of
    what lies beyond counts."""
    first_interval: tuple[float, float] = (-0.2095, 0.06)
    """Rewarded pole angles at the beginning, low and high."""
    last_interval: tuple[float, float] = (-0.06, 0.2095)
    """Rewarded pole angles at the end of the drifting environment."""

    settings: str = "none"
    """Where each method's rates, final rates, window and mix come from: none (the options above), tuned (what the
    package ships), or a file that a run wrote (best.json in its folder)."""

    vary: tuple[str, ...] = ()
    """Numbers to take from the options instead of the settings: any of inner_rate, outer_rate, target_rate,
    temperature, final_rate, window, mix."""

    trials: int = 1
    """The most lanes of a method for each seed. Every setting makes one lane for each combination of the values of
    `vary`; settings are taken from the best one on, until there are this many lanes, and at least one is."""

    def __post_init__(self) -> None:
        require_known("methods", self.methods, METHODS)
        require_known("environment", self.environment, ENVIRONMENTS)
        for name in GRID:
            values = getattr(self, name)
            require(len(values) > 0, name, "nothing", "at least one value")
            require(len(set(values)) == len(values), name, " ".join(map(str, values)), "different values")
        if self.vary:
            require_known("vary", self.vary, GRID)
        for name, value in (("vary", self.vary), ("trials", self.trials > 1)):
            require(not value or self.settings != "none", name, "none", "used together with `settings`")
        for name in ("steps", "evaluate_every", "episodes", "seeds", "inner_steps", "random_steps", "batch", "trials"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "an integer of at least 1")
        for name in ("inner_rate", "outer_rate", "target_rate", "temperature"):
            for value in getattr(self, name):
                require(0 < value < float("inf"), name, value, "positive and finite")
        for value in self.target_rate:
            require(value <= 1, "target_rate", value, "at most 1")
        whole = self.steps % self.evaluate_every == 0
        require(whole, "steps", self.steps, f"a multiple of `evaluate_every` = {self.evaluate_every}")
        is_given = self.settings == "none" or "window" in self.vary
        for value in self.window if any_smoothed(self.methods) and is_given else ():
            require(1 <= value <= self.steps, "window", value, f"between 1 and steps = {self.steps}")
        for name in ("mix", "final_rate"):
            for value in getattr(self, name):
                require(0 <= value <= 1, name, value, "between 0 and 1")
        require(self.critics in (1, 2), "critics", self.critics, "1 or 2")
        require(0 <= self.averaged <= 1, "averaged", self.averaged, "between 0 and 1")
        require(0 < self.itd_factor < float("inf"), "itd_factor", self.itd_factor, "positive and finite")
        require(0 <= self.model_leak <= 1, "model_leak", self.model_leak, "between 0 and 1")
        require(0 <= self.clip < float("inf"), "clip", self.clip, "finite and not negative")
        require(0 <= self.discount < 1, "discount", self.discount, "at least 0 and below 1")
        require(0 <= self.exploration <= 1, "exploration", self.exploration, "between 0 and 1")
        require(self.first_seed >= 0, "first_seed", self.first_seed, "not negative")
        require(self.seeds <= MOST_SEEDS, "seeds", self.seeds, f"at most {MOST_SEEDS:,}")
        last = 2**31 - self.seeds
        require(self.first_seed <= last, "first_seed", self.first_seed, f"at most 2³¹ − seeds = {last}")
        require(self.capacity >= self.batch, "capacity", self.capacity, f"at least batch = {self.batch}")
        for name in ("q_hidden", "model_hidden"):
            sizes = getattr(self, name)
            require(all(size >= 1 for size in sizes), name, " ".join(map(str, sizes)), "sizes of at least 1")
        for name in ("first_interval", "last_interval"):
            low, high = getattr(self, name)
            require(-inf < low < high < inf, name, f"{low} {high}", "a low below a high, both finite")
