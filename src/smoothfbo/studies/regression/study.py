"""The regression as a study: programs, measures, summary."""

from functools import partial
from typing import Any

from smoothfbo.harness.statistics import Frame, interval
from smoothfbo.harness.study import Study
from smoothfbo.studies.regression.claims import judge_claims
from smoothfbo.studies.regression.config import RegressionConfig
from smoothfbo.studies.regression.measure import HEADLINES, measure, stream_of_lane
from smoothfbo.studies.regression.program import programs

SETTING = ("drift", "weights", "regime", "noise", "frequency", "batch", "inner_steps", "inner_rate", "adjoint_rate",
           "outer_rate")  # fmt: skip
GROUP = (*SETTING, "method", "window")


def study(config: RegressionConfig) -> Study:
    return Study("regression", config, programs(config), partial(measure, config), partial(summarise, config))


def summarise(config: RegressionConfig, rounds: Frame, lanes: Frame) -> dict[str, Any]:
    """Per method and window mean and interval of every headline figure; `base` is the main comparison's setting."""
    del rounds
    groups = []
    for keys, group in lanes.groupby(list(GROUP), sort=False):
        present = [name for name in HEADLINES if name in group and group[name].notna().any()]
        groups.append({**dict(zip(GROUP, keys, strict=True)), "metrics": {n: interval(group[n]) for n in present}})
    stream = stream_of_lane(config, next(config.lanes()))
    truth = {"seed": config.first_seed, "weight": stream.weight[:, 0].tolist(), "bias": float(stream.bias[0])}
    return {"truth": truth, "base": config.base, "groups": groups, "claims": list(judge_claims(config, lanes))}
