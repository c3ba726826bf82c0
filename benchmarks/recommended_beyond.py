"""The recommended SmoothFBO, nothing tuned, on problems beyond the arena, against FBO tuned on each of them.

The rivals' kind of step, rate and window have the smallest mean gap on the tuning seeds. All are then compared on the
reported seeds, and the best rival is the one that is best there. All take closed-form fits of the round's data: FBO,
its θ-mix, and SmoothFBO with a window of stored gradients. (Unrolled, such a fit gives FBO's gradient.)
`python -m benchmarks.recommended_beyond --out FILE [--group unseen | blind | later] [--only NAME ...]
[--first-seed 14000] [--keep-rivals]`.
"""

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import smoothfbo as sf
from benchmarks import measure
from benchmarks.beyond_problems import PROBLEMS, Case
from benchmarks.blind_problems import BLIND
from benchmarks.later_problems import LATER
from benchmarks.recommended_regression import ratio
from benchmarks.unseen_problems import UNSEEN

GROUPS = {"beyond": PROBLEMS, "unseen": UNSEEN, "blind": BLIND, "later": LATER}
ALL = PROBLEMS | UNSEEN | BLIND | LATER
SEEDS, TUNING = tuple(range(14_000, 14_020)), tuple(range(540, 544))
KINDS = ("sgd", "normalised", "adam")
RATES = tuple(float(f"{rate:.1g}") for rate in 10.0 ** np.arange(-4, 2.25, 0.5))  # in the problem's units
METHODS, WINDOWS, MIX = ("fbo", "mixed", "stored"), (4, 16), 0.4
EVERY = 5  # rounds: how often the gap is taken in the second half


def stepping(kind: Any, rate: Any) -> optax.GradientTransformation:
    """One of the three kinds of step, which may be traced."""
    adam = optax.scale_by_adam()

    def update(gradient: Any, state: Any, params: Any = None) -> Any:
        by_adam, state = adam.update(gradient, state, params)
        size = optax.tree.norm(gradient)
        factors = jnp.where(kind == 1, 1 / jnp.where(size > 0, size, 1), jnp.where(kind == 0, 1.0, 0.0))
        move = jax.tree.map(lambda plain, other: jnp.where(kind == 2, other, factors * plain), gradient, by_adam)
        return jax.tree.map(lambda leaf: -rate * leaf, move), state

    return optax.GradientTransformation(adam.init, update)


def rival(case: Case, setting: Any) -> sf.Online:
    kind, rate, window, mix = setting
    rate = rate * jnp.where(kind == 0, case.units**2, case.units)
    smoother = sf.mixed_average(mix, sf.window_average(window, capacity=max(WINDOWS), constant=True))
    estimator = sf.Oracle(case.oracle) if case.linear is None else sf.Functional(case.linear, case.linear)
    return sf.Online(case.problem, estimator, optax.chain(smoother, stepping(kind, rate)), case.project)


def recommended(case: Case, setting: Any) -> sf.Online:
    del setting
    if case.linear is None:  # only the steps are left
        return sf.Online(None, sf.Oracle(case.oracle), sf.adaptive_steps(project=case.project), case.project)
    return sf.smooth_fbo(case.problem, case.linear, project=case.project)


def lane(make: Any, rounds: int, algorithm: Any, setting: Any, seed: Any) -> Any:
    """The mean gap of the second half, and how many rounds were skipped."""
    case = make(seed)
    final, outer = sf.run(
        algorithm(case, setting), case.source, case.start, rounds=rounds, key=jax.random.key(seed + 1),
        record=lambda state, info: info.outer,  # noqa: ARG005
    )  # fmt: skip
    times = jnp.arange(rounds // 2, rounds, EVERY)
    gaps = jax.vmap(case.gap)(times, jax.tree.map(lambda leaf: leaf[rounds // 2 :: EVERY], outer))
    standing = jax.vmap(case.gap, in_axes=(0, None))(times, case.start)
    return {"gap": jnp.mean(gaps), "skipped": final.learner.skipped, "standing": jnp.mean(standing)}


class Program:
    """Lanes of one problem, `settings` times `seeds` at a time, so that it is compiled once. Settings share data."""

    def __init__(self, make: Any, rounds: int, algorithm: Any, settings: int, seeds: int):
        one = partial(lane, make, rounds, algorithm)
        self.program = jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None)))
        self.settings, self.seeds = settings, seeds

    def __call__(self, settings: Sequence[tuple[Any, ...]], seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Axes (setting, seed)."""
        columns = zip(*_filled(settings, self.settings), strict=True)
        settings_of_all = tuple(jnp.asarray(column) for column in columns)
        parts = [
            self.program(settings_of_all, jnp.asarray(_filled(seeds[start : start + self.seeds], self.seeds)))
            for start in range(0, len(seeds), self.seeds)
        ]
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1).astype(float), *parts)
        return {name: values[: len(settings), : len(seeds)] for name, values in joined.items()}


def _filled(some: Sequence[Any], number: int) -> list[Any]:
    return [*some, *[some[0]] * (number - len(some))]


def grid(method: str, kinds: Sequence[str], rates: Sequence[float]) -> list[tuple[Any, ...]]:
    """(kind, rate, window, θ), of one method."""
    windows, mix = (1,) if method == "fbo" else WINDOWS, MIX if method == "mixed" else 0.0
    return [(KINDS.index(kind), rate, window, mix) for kind, rate, window in product(kinds, rates, windows)]


def tune(program: Program, grids: dict[str, list[Any]], seeds: Sequence[int]) -> dict[str, Any]:
    """The setting of each method with the smallest mean gap on the tuning seeds."""
    gaps = program([setting for each in grids.values() for setting in each], seeds)["gap"]
    means = np.where(np.isfinite(gaps).all(axis=1), gaps.mean(axis=1), np.inf)
    found, done = {}, 0
    for method, each in grids.items():
        part, done = means[done : done + len(each)], done + len(each)
        found[method] = each[int(part.argmin())]
    return found


def run_rivals(
    name: str,
    seeds: Sequence[int],
    tuning: Sequence[int],
    kinds: Sequence[str] = KINDS,
    rates: Sequence[float] = RATES,
    rounds: int | None = None,
) -> dict[str, dict[str, Any]]:
    """Every rival's setting, and its gap on every seed."""
    _, usual, make = ALL[name]
    grids = {method: grid(method, kinds, rates) for method in METHODS}
    program = Program(make, rounds or usual, rival, sum(map(len, grids.values())), len(tuning))
    found = tune(program, grids, tuning)
    gaps = program(list(found.values()), seeds)["gap"]
    return {
        method: {"gap": float(gap.mean()), "seeds": gap.tolist(), "step": KINDS[kind], "rate": rate, "window": window}
        for (method, (kind, rate, window, _)), gap in zip(found.items(), gaps, strict=True)
    }


def compare(
    name: str,
    seeds: Sequence[int] = SEEDS,
    tuning: Sequence[int] = TUNING,
    rounds: int | None = None,
    rivals: dict[str, dict[str, Any]] | None = None,
    **grids: Any,
) -> dict[str, Any]:
    """One line of the table. `rivals` are those of a stored one, if they are not to be run again."""
    what, usual, make = ALL[name]
    rounds = usual if rounds is None else rounds
    rivals = run_rivals(name, seeds, tuning, rounds=rounds, **grids) if rivals is None else rivals
    ours = Program(make, rounds, recommended, 1, len(seeds))([(0,)], seeds)
    row = {"problem": name, "what": what, "rounds": rounds, "standing": float(ours["standing"].mean())}
    row["best_tuned"] = min(METHODS, key=lambda method: np.nan_to_num(rivals[method]["gap"], nan=np.inf))
    gap = ours["gap"][0]
    mine = {"gap": float(gap.mean()), "seeds": gap.tolist(), "skipped": int(ours["skipped"].sum())}
    row["methods"] = {**rivals, "recommended": mine}
    for against in ("best_tuned", "fbo"):
        row[f"to_{against}"] = ratio(gap, np.array(rivals[row.get(against, against)]["seeds"]))
    return row


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    gaps = "  ".join(f"{name} {found['gap']:.3g}" for name, found in row["methods"].items())
    to_best = row["to_best_tuned"]
    ratio = f"{to_best['mean']:.2f} [{to_best['low']:.2f}, {to_best['high']:.2f}] of {row['best_tuned']}"
    return f"{row['problem']}: standing {row['standing']:.3g}  {gaps}  {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=Path, help="the JSON file to write; other problems in it are kept")
    parser.add_argument(
        "--group", choices=GROUPS, default="beyond", help="unseen, blind, later: written when the method was finished"
    )
    parser.add_argument("--only", nargs="+", choices=ALL, help="these problems, of any group")
    parser.add_argument("--first-seed", type=int, default=SEEDS[0], help="the first of the 20 reported seeds")
    parser.add_argument("--keep-rivals", action="store_true", help="run smooth_fbo alone; the rivals are in the file")
    arguments = parser.parse_args()

    group = "" if arguments.group == "beyond" else f" --group {arguments.group}"
    command = f"python -m benchmarks.recommended_beyond{group}"
    seeds = tuple(range(arguments.first_seed, arguments.first_seed + len(SEEDS)))
    commit = measure.commit()  # of what runs now: files may change while it does
    cases = {case["problem"]: case for case in _stored(arguments.out)}
    for name in arguments.only or GROUPS[arguments.group]:
        before = time.perf_counter()
        old = cases[name] if arguments.keep_rivals else {}
        case = compare(name, seeds, rivals={method: old["methods"][method] for method in METHODS} if old else None)
        of_rivals = old.get("rivals_commit", old.get("commit", commit))
        seconds = round(time.perf_counter() - before)
        cases[name] = {**case, "commit": commit, "rivals_commit": of_rivals, "seconds": seconds}
        print(f"{line(case)}  ({cases[name]['seconds']} s)", flush=True)
        stored = {
            "command": command, "device": jax.devices()[0].device_kind,
            "seeds": seeds, "tuning_seeds": TUNING, "rates": RATES,
            "cases": [cases[name] for name in ALL if name in cases],
        }  # fmt: skip
        arguments.out.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def _stored(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else []


if __name__ == "__main__":
    main()
