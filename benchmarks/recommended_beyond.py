"""The recommended SmoothFBO, nothing tuned, on problems beyond the arena, against FBO tuned on each of them.

The rivals' kind of step, rate and window have the smallest mean gap on the tuning seeds. All are then compared on the
reported seeds, and the best rival is the one that is best there. Rivals take closed-form fits of the round's data: FBO,
its θ-mix, and SmoothFBO with a window of stored gradients. Beside them is an unrolled inner function, trained by five
steps of Adam a round; unrolled, a closed-form fit gives FBO's gradient.
`python -m benchmarks.recommended_beyond --out FILE [--only NAME ...]`.
"""

import argparse
import json
import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import smoothfbo as sf
from benchmarks import measure
from benchmarks.beyond_problems import PROBLEMS, Case
from benchmarks.recommended_regression import ratio
from smoothfbo.testbeds.base import trained

SEEDS, TUNING = tuple(range(12_000, 12_020)), tuple(range(540, 544))
KINDS = ("sgd", "normalised", "adam")
RATES = tuple(float(f"{rate:.1g}") for rate in 10.0 ** np.arange(-4, 2.25, 0.5))  # in the problem's units
WINDOWS, MIX, INNER_RATES = (4, 16), 0.4, (0.03, 0.3)
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


def rival(is_unrolled: bool, case: Case, setting: Any) -> sf.Online:
    kind, rate, window, mix, inner_rate = setting
    rate = rate * jnp.where(kind == 0, case.units**2, case.units)
    smoother = sf.mixed_average(mix, sf.window_average(window, capacity=max(WINDOWS), constant=True))
    if case.linear is None:
        estimator = sf.Oracle(case.oracle)
    elif is_unrolled:
        estimator = sf.Unrolled(trained(case.linear, rate=inner_rate))
    else:
        estimator = sf.Functional(case.linear, case.linear)
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
    """Lanes of one problem, (setting, seed), so many at a time: it is compiled once."""

    def __init__(self, make: Any, rounds: int, algorithm: Any, lanes: int):
        self.lanes, self.program = lanes, jax.jit(jax.vmap(partial(lane, make, rounds, algorithm)))

    def __call__(self, settings: Sequence[tuple[Any, ...]], seeds: Sequence[int]) -> dict[str, np.ndarray]:
        """Axes (setting, seed)."""
        pairs = list(product(settings, seeds))
        padded = [pairs[number % len(pairs)] for number in range(self.lanes)]
        columns = tuple(jnp.asarray(column) for column in zip(*(setting for setting, _ in padded), strict=True))
        found = self.program(columns, jnp.asarray([seed for _, seed in padded]))
        form = len(settings), len(seeds)
        return {name: np.asarray(values, float)[: len(pairs)].reshape(form) for name, values in found.items()}


def grid(method: str, kinds: Sequence[str], rates: Sequence[float]) -> list[tuple[Any, ...]]:
    """(kind, rate, window, θ, rate of the inner function), of one method."""
    windows = (1,) if method in ("fbo", "unrolled") else WINDOWS
    mix = MIX if method == "mixed" else 0.0
    inner_rates = INNER_RATES if method == "unrolled" else (0.0,)
    return [
        (KINDS.index(kind), rate, window, mix, inner)
        for kind, rate, window, inner in product(kinds, rates, windows, inner_rates)
    ]


def tune(program: Program, grids: dict[str, list[Any]], seeds: Sequence[int]) -> dict[str, Any]:
    """The setting of each method with the smallest mean gap on the tuning seeds."""
    gaps = program([setting for each in grids.values() for setting in each], seeds)["gap"]
    means = np.where(np.isfinite(gaps).all(axis=1), gaps.mean(axis=1), np.inf)
    found, done = {}, 0
    for method, each in grids.items():
        part, done = means[done : done + len(each)], done + len(each)
        found[method] = each[int(part.argmin())]
    return found


def described(setting: tuple[Any, ...], method: str) -> dict[str, Any]:
    kind, rate, window, _, inner_rate = setting
    words = {"step": KINDS[kind], "rate": rate}
    return words | ({"inner_rate": inner_rate} if method == "unrolled" else {} if window == 1 else {"window": window})


def compare(
    name: str,
    seeds: Sequence[int] = SEEDS,
    tuning: Sequence[int] = TUNING,
    kinds: Sequence[str] = KINDS,
    rates: Sequence[float] = RATES,
    rounds: int | None = None,
) -> dict[str, Any]:
    """One line of the table."""
    what, usual, make = PROBLEMS[name]
    rounds = usual if rounds is None else rounds
    groups = [("fbo", "mixed", "stored"), ("unrolled",)]
    row: dict[str, Any] = {"problem": name, "what": what, "rounds": rounds, "methods": {}}
    gaps = {}
    for methods in groups if make(0).linear is not None else groups[:1]:
        grids = {method: grid(method, kinds, rates) for method in methods}
        lanes = max(sum(map(len, grids.values())) * len(tuning), len(methods) * len(seeds))
        program = Program(make, rounds, partial(rival, methods == ("unrolled",)), lanes)
        found = tune(program, grids, tuning)
        values = program(list(found.values()), seeds)["gap"]
        for (method, setting), each in zip(found.items(), values, strict=True):
            gaps[method], row["methods"][method] = each, described(setting, method)
    ours = Program(make, rounds, recommended, len(seeds))([(0,)], seeds)
    gaps["recommended"], row["methods"]["recommended"] = ours["gap"][0], {"skipped": int(ours["skipped"].sum())}
    row["standing"] = float(ours["standing"].mean())
    rivals = [method for method in gaps if method != "recommended"]
    row["best_tuned"] = min(rivals, key=lambda method: np.nan_to_num(gaps[method].mean(), nan=np.inf))
    for method, values in gaps.items():
        row["methods"][method] |= {"gap": float(values.mean()), "seeds": values.tolist()}
    row["to_best_tuned"], row["to_fbo"] = (
        ratio(gaps["recommended"], gaps[each]) for each in (row["best_tuned"], "fbo")
    )
    return row


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    gaps = "  ".join(f"{name} {found['gap']:.3g}" for name, found in row["methods"].items())
    to_best = row["to_best_tuned"]
    ratio = f"{to_best['mean']:.2f} [{to_best['low']:.2f}, {to_best['high']:.2f}] of {row['best_tuned']}"
    return f"{row['problem']}: standing {row['standing']:.3g}  {gaps}  {ratio}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the JSON file to write")
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS), help="these problems")
    arguments = parser.parse_args()

    commit, begin, cases = measure.commit(), time.perf_counter(), []  # of what runs now: files may change while it does
    for name in arguments.only:
        before = time.perf_counter()
        cases.append(compare(name))
        print(f"{line(cases[-1])}  ({time.perf_counter() - before:.0f} s)", flush=True)
        stored = {
            "command": "python -m benchmarks.recommended_beyond", "commit": commit,
            "device": jax.devices()[0].device_kind, "seconds": round(time.perf_counter() - begin),
            "seeds": SEEDS, "tuning_seeds": TUNING, "rates": RATES, "cases": cases,
        }  # fmt: skip
        with open(arguments.out, "w") as file:
            json.dump(stored, file, indent=1)


if __name__ == "__main__":
    main()
