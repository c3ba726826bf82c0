"""The small arena of the tests: a plug-in's problem and method beside three of ours, and lanes without a run."""

from pathlib import Path

import pandas as pd

from smoothfbo.studies.arena.config import ArenaConfig

EXAMPLE = Path(__file__).parents[1] / "examples" / "arena_plugin.py"
SMALL = ArenaConfig(
    problems=("target",), methods=("fbo", "smooth-fbo", "momentum", "exact"), add=(str(EXAMPLE),), rounds=80, seeds=3,
    tuning_seeds=2, trials=6, map_noises=(),
)  # fmt: skip


def frame(gaps, seeds, rate=1.0, method="fbo", **more):
    """Lanes of one setting."""
    base = {"problem": "p", "method": method, "rule": "plain", "window": 1, "rate": rate, "seed": seeds}
    rest = {"gap_all": 1.0, "regret_1": 1.0, "proxy": 1.0, "raw": 1.0, "skipped": 0}
    return pd.DataFrame(base | rest | {"gap": gaps} | more)
