"""Presets of the CartPole study. No jax here.

quick: minutes on 2 cores; paper: a million steps, for a GPU; appendix: the paper's study of the window.

Three presets find the settings, in the stationary environment, on seeds that are never reported, each from what the one
before it found, with as many trials for every method: tune, the paper's grid and the outer rate; retune, longer, with
what the grid leaves out; choose, the best four on more seeds.

faithful is the paper's algorithm as written: one Q network, no clipping, no bounds on values, no leak, constant rates,
the newest networks. faithful-tune finds its settings, on the paper's grid, in its environment and with its seed; the
outer rate, which the paper does not give, is tuned beside it. faithful-REMEDY adds one of our remedies to it, and
paper-no-REMEDY takes one away from ours, each for SmoothFBO and on seeds that nothing else uses.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from smoothfbo.harness.methods import SMOOTH_FBO
from smoothfbo.studies.cartpole.config import CartPoleConfig

STUDIED = ("mle", "omd", "itd", "fbo", "vep", "smooth-mle", "smooth-omd", "smooth-itd", "smooth-fbo")

_tuning = partial(CartPoleConfig, methods=STUDIED, environment=("stationary",))

# The paper's algorithm as written, and what each of our remedies changes in it.
FAITHFUL: Mapping[str, Any] = {
    "critics": 1, "clip": 0.0, "bounded_values": False, "model_leak": 0.0, "final_rate": (1.0,), "averaged": 0.0,
}  # fmt: skip
REMEDIES: Mapping[str, Mapping[str, Any]] = {
    "twin": {"critics": 2},
    "clip": {"clip": 1.0},
    "bounds": {"bounded_values": True},
    "leak": {"model_leak": 0.1},
    "falling": {"final_rate": (0.1,)},
    "averaged": {"averaged": 0.3},
}
PAPER_METHODS = ("mle", "omd", "itd", "fbo", "smooth-omd", "smooth-itd", "smooth-fbo")

_faithful = partial(
    CartPoleConfig,
    methods=PAPER_METHODS,
    environment=("drifting",),
    itd_factor=1.0,
    first_seed=800,
    settings="out/cartpole-faithful-tune/best.json",
    vary=("final_rate",),
)
_remedied = partial(CartPoleConfig, methods=(SMOOTH_FBO,), environment=("drifting",), first_seed=800, settings="tuned")


def _without(remedy: str) -> CartPoleConfig:
    """All remedies but one. The rates' end is a number of the settings, so it has to be varied."""
    removed: dict[str, Any] = {name: FAITHFUL[name] for name in REMEDIES[remedy]}
    return _remedied(vary=("final_rate",), **removed) if remedy == "falling" else _remedied(**removed)


PRESETS = {
    "quick": CartPoleConfig(steps=100_000, seeds=4, evaluate_every=5_000, settings="tuned"),
    "paper": CartPoleConfig(methods=STUDIED, settings="tuned"),
    "appendix": CartPoleConfig(
        methods=("mle", "omd", "fbo", "smooth-fbo"),
        environment=("drifting",),
        steps=100_000,
        seeds=20,
        evaluate_every=5_000,
        inner_rate=(3e-3,),
        target_rate=(1e-2,),
        window=(10, 100, 1_000),
        mix=(0.0,),
    ),
    "tune": _tuning(
        steps=200_000,
        seeds=1,
        first_seed=1_000,
        inner_rate=(3e-4, 3e-3),
        target_rate=(1e-3, 1e-2, 1e-1),
        temperature=(1e-3, 1e-2, 1e-1),
        outer_rate=(1e-4, 3e-4),
    ),
    "retune": _tuning(
        steps=500_000,
        seeds=3,
        first_seed=1_001,
        settings="out/cartpole-tune/best.json",
        vary=("final_rate", "window"),
        final_rate=(0.1, 0.0),
        window=(10, 100),
        trials=12,
    ),
    "choose": _tuning(
        steps=500_000,
        seeds=9,
        first_seed=1_004,
        settings="out/cartpole-retune/best.json",
        trials=4,
    ),
    "faithful-tune": CartPoleConfig(
        **FAITHFUL,
        methods=PAPER_METHODS,
        environment=("stationary",),
        itd_factor=1.0,
        seeds=1,
        first_seed=1,
        inner_rate=(3e-4, 3e-3),
        target_rate=(1e-3, 1e-2, 1e-1),
        temperature=(1e-3, 1e-2, 1e-1),
        outer_rate=(1e-4, 1e-3),
        window=(1_000, 10_000),
        mix=(0.4, 0.6, 0.8),
    ),
    "faithful": _faithful(**FAITHFUL),
    **{
        f"faithful-{name}": _faithful(**{**FAITHFUL, **added}, methods=(SMOOTH_FBO,))
        for name, added in REMEDIES.items()
    },
    **{f"paper-no-{name}": _without(name) for name in REMEDIES},
}
