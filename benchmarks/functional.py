"""Functional, implicit (AID) and unrolled hypergradients at equal time per round, where the exact one is known.

Each method is run with more and more steps per round, and drawn as a line: time per round, and the mean cosine of its
raw hypergradient with the exact one. Efforts are multiples of those of `smoothfbo regression`: k inner steps, and with
them k adjoint steps (functional) or 2k steps of conjugate gradients (AID). Rates are the shipped ones, but for the
outer one: λ stays where it begins, so that all methods are judged at the same points. Where it moves, a cosine depends
as much on where a method has taken λ.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from benchmarks import measure
from smoothfbo.harness.charts import PALETTE, Chart, Series
from smoothfbo.harness.lanes import use_compilation_cache
from smoothfbo.online import Info, State
from smoothfbo.runs import run as run_online
from smoothfbo.runs import start
from smoothfbo.studies.regression.config import RegressionConfig
from smoothfbo.studies.regression.lanes import Lane
from smoothfbo.studies.regression.measure import headlines, measure_lane
from smoothfbo.studies.regression.program import make_algorithm, make_testbed, numbers_of

NAMES = {"fbo": "functional", "aid": "AID", "unrolled": "unrolled"}
EFFORTS = {"fbo": (1, 5, 10, 20, 50), "aid": (1, 2, 5, 10), "unrolled": (1, 5, 10, 20)}
QUICK_EFFORTS = {"fbo": (5, 50), "aid": (2,), "unrolled": (10,)}  # most of the time is compilation
FIRST_SEED = 5_000
STANDSTILL = 1e-12  # an outer rate at which λ does not change in single precision


class Runs:
    """A method with one effort. A call is a whole run with the next seed, whose records are kept."""

    def __init__(self, method: str, effort: int, rounds: int):
        self.method, self.effort, self._config = method, effort, configuration(method, effort, rounds)
        self._simulate = jax.jit(self._one_run)
        self._runs: list[tuple[Lane, dict[str, Any]]] = []

    def __call__(self) -> None:
        lane = replace(next(self._config.lanes()), seed=FIRST_SEED + len(self._runs))
        numbers = jax.tree.map(lambda leaf: leaf[0], numbers_of([lane]))
        self._runs.append((lane, jax.block_until_ready(self._simulate(numbers))))

    def _one_run(self, numbers: Any) -> dict[str, Any]:
        shape = next(self._config.lanes()).shape
        testbed = make_testbed(self._config, shape, numbers)
        algorithm = make_algorithm(self._config, shape, numbers, testbed, capacity=1)
        key = jax.random.fold_in(jax.random.key(numbers.seed), 1)
        state = start(algorithm, testbed.source(), testbed.initial(), key)
        return run_online(algorithm, testbed.source(), rounds=self._config.rounds, state=state, record=_record)[1]

    def cosines(self) -> list[float]:
        """One for each seed: the mean over the second half of its rounds, as the experiment measures it."""
        rounds = self._config.rounds
        # The truth is the same for all methods and efforts, and is computed once for one configuration.
        config, unused = configuration("fbo", 1, rounds), dict.fromkeys(("outer_loss", "inner_loss"), np.zeros(rounds))
        columns = [(measure_lane(config, lane, records | unused), records) for lane, records in self._runs]
        return [headlines(*each)["cosine_raw"] for each in columns]


def configuration(method: str, effort: int, rounds: int) -> RegressionConfig:
    return RegressionConfig(
        methods=(method,), windows=(1,), rounds=rounds, seeds=1, first_seed=FIRST_SEED, outer_rate=(STANDSTILL,),
        inner_steps=(effort,), adjoint_steps=effort, aid_steps=2 * effort,
    )  # fmt: skip


def _record(state: State, info: Info) -> dict[str, Any]:
    """No losses: what is not recorded is not computed, and must not be timed."""
    del state
    return {"outer": info.outer, "raw": info.gradient, "used": info.smoothed, "skipped": info.skipped}


def run(quick: bool) -> measure.Result:
    use_compilation_cache()
    rounds, seeds = (150, 3) if quick else (300, 5)
    candidates = {
        f"{method} {effort}": Runs(method, effort, rounds)
        for method, efforts in (QUICK_EFFORTS if quick else EFFORTS).items()
        for effort in efforts
    }
    seconds = measure.in_turns(candidates, seeds - 1)  # the unmeasured turn has a seed of its own
    cases = [described(runs, [each / rounds for each in seconds[name]]) for name, runs in candidates.items()]
    lines = [line for rival in ("aid", "unrolled") for line in (*at_equal_time(cases, rival), *costs(cases, rival))]
    return measure.Result(lines, cases)


def described(runs: Runs, seconds: Sequence[float]) -> dict[str, Any]:
    steps = {"fbo": {"adjoint_steps": runs.effort}, "aid": {"conjugate_gradient_steps": 2 * runs.effort}}
    cosines = runs.cosines()
    return {
        "method": runs.method,
        "inner_steps": runs.effort,
        **steps.get(runs.method, {}),
        **measure.summary(seconds),
        "turns": list(seconds),
        "cosine": float(np.mean(cosines)),
        "cosines": cosines,
    }


def at_equal_time(cases: Sequence[dict[str, Any]], rival: str) -> list[measure.Ratio]:
    """Cosines at times that both methods can have, each interpolated between its efforts."""
    ours, theirs = (_of(cases, method) for method in ("fbo", rival))
    shortest = max(ours[0]["seconds"], theirs[0]["seconds"])
    longest = min(ours[-1]["seconds"], theirs[-1]["seconds"])
    lines = []
    for budget in np.geomspace(shortest, longest, 3 if shortest < longest else int(shortest == longest)):
        what = f"cosine at {1e3 * budget:.2g} ms per round"
        pair = interpolated(ours, budget), interpolated(theirs, budget)
        lines.append(measure.ratio(what, NAMES["fbo"], NAMES[rival], *pair))
    return lines


def interpolated(cases: Sequence[dict[str, Any]], budget: float) -> list[float]:
    """The cosine of every seed at a time per round."""
    times = [case["seconds"] for case in cases]
    seeds = np.transpose([case["cosines"] for case in cases])
    return [float(np.interp(budget, times, row)) for row in seeds]


def costs(cases: Sequence[dict[str, Any]], rival: str) -> list[measure.Ratio]:
    """Time at the largest effort that both were run with."""
    ours, theirs = ({case["inner_steps"]: case for case in _of(cases, method)} for method in ("fbo", rival))
    shared = sorted(set(ours) & set(theirs))
    what = "time per round, {} inner steps"
    return [
        measure.ratio(what.format(k), NAMES["fbo"], NAMES[rival], ours[k]["turns"], theirs[k]["turns"])
        for k in shared[-1:]
    ]


def charts(result: measure.Result) -> list[Chart]:
    series = []
    for colour, (method, name) in zip(PALETTE, NAMES.items(), strict=False):
        cases = _of(result.cases, method)
        low, high = ([end(case["cosines"]) for case in cases] for end in (min, max))
        times = [1e3 * case["seconds"] for case in cases]
        middle = [case["cosine"] for case in cases]
        series.append(Series(name, times, middle, low, high, colour, markers=True))
    caption = (
        "Mean and range over seeds. Along a line the steps per round grow: "
        + "; ".join(f"{NAMES[method]} {', '.join(map(str, efforts))}" for method, efforts in EFFORTS.items())
        + " inner steps."
    )
    axes = "milliseconds per round", "cosine with the exact hypergradient"
    return [Chart("functional", "Accuracy at equal time", caption, *axes, series)]


def _of(cases: Sequence[Any], method: str) -> list[Any]:
    """The cases of a method, quickest first."""
    return sorted((case for case in cases if case["method"] == method), key=lambda case: case["seconds"])
