"""Generated streams for the stream benchmark: coefficients that jump, values that cannot be meant, and no change.

python -m benchmarks.stream_generated --first-seed 12000 --seeds 8     # the jumps alone; nothing is written
python -m benchmarks.stream_generated --tails --first-seed 7000 --seeds 20     # columns with long tails alone
python -m benchmarks.stream_generated --sentinels --first-seed 7000 --seeds 5     # −9999 for what is missing
"""

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from smoothfbo.stream.learner.changes import ChangeDetector, effective_memory
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import Specification, blocks_until_known
from smoothfbo.stream.options import default_block
from smoothfbo.stream.passes import best_reference
from smoothfbo.stream.rows import Rows

# Every so many rows, so large, and how many rows late a target becomes known.
JUMPS = tuple((every, size, 1) for every in (500, 2_000, 10_000) for size in (1.0, 5.0))
JUMPS += tuple((2_000, size, horizon) for horizon in (24, 48) for size in (1.0, 5.0))
SEEDS = (0, 1, 2)  # of the jumps
RECOVERED = 1.25  # times the error of the second half of the segments
EVENT = 3_000
EVENTS = ("wrong value", "thousandth", "fahrenheit", "wrong target", "target jumps 500 spreads")
SPANS = {"2 to 64": (2, 64), "64 to 500": (64, 500), "500 to 1200": (500, 1_200), "1200 to 3000": (1_200, 3_000)}
NOISES = ("gaussian", "student", "lognormal")
TAILS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "lognormal, σ = 1": lambda random, rows: random.lognormal(0, 1, rows),
    "lognormal, σ = 1.5": lambda random, rows: random.lognormal(0, 1.5, rows),
    "Student, 2 degrees": lambda random, rows: random.standard_t(2, rows),
    "Pareto, 2.5": lambda random, rows: random.pareto(2.5, rows),
}
ROWS_OF_TAILS, LAST, MISSING = 3_000, 500, -9999.0


def process(features: np.ndarray, target: np.ndarray, horizon: int = 1) -> tuple[tuple[str, ...], Outcome]:
    """The learner's outcome on numbers alone, without lags."""
    columns = features.shape[1]
    spec = Specification(
        features=columns, outputs=1, is_classification=False, windows=(4, 16, 64), own=(-1,) * columns,
        delay=blocks_until_known(horizon, default_block(False)), horizon=horizon,
    )  # fmt: skip
    previous = np.r_[np.full(horizon, np.nan), target[:-horizon]]
    outcome = Learner(spec).process(Rows(features, target, previous))
    return ("smoothfbo", *spec.reference_names), outcome


def measure_jump(every: int, size: float, horizon: int = 1, seeds: Iterable[int] = SEEDS) -> dict[str, Any]:
    """Five coefficients are drawn anew, `size` times as large as the noise; the best fixed expert of every seed."""
    ratios, of_memory, bests, after, later = [], [], [], [], []
    for seed in seeds:
        random, rows = np.random.default_rng(seed), max(4 * every, 8_000)
        x = random.normal(size=(rows, 5))
        weights = np.repeat(size * random.normal(size=(rows // every, 5)), every, axis=0)
        y = (x * weights).sum(axis=1) + random.normal(size=rows)
        names, outcome = process(x, y, horizon)
        squares = (outcome.predictions - y) ** 2
        errors = dict(zip(names, np.nanmean(squares, axis=1).tolist(), strict=True))
        best = best_reference(errors) or ""
        ratios.append(errors["smoothfbo"] / errors[best])
        of_memory.append(errors["learned_memory"] / errors[best])
        bests.append(best)
        segments = squares[0].reshape(-1, every)[1:]
        after.append(segments[:, : every // 2])
        later.append(segments[:, every // 2 :].mean())
    mean_after, usual = np.concatenate(after).mean(axis=0), float(np.mean(later))
    recovered = [r for r in range(0, every // 2 - 64, 16) if mean_after[r : r + 64].mean() <= RECOVERED * usual]
    return {
        "jumps every": every, "size": size, "horizon": horizon, "best": bests, "ratios": ratios,
        "ratio": float(np.exp(np.mean(np.log(ratios)))), "learned_memory": float(np.exp(np.mean(np.log(of_memory)))),
        "recovered_after": recovered[0] if recovered else every, "error_64_to_128_rows_after":
        float(mean_after[64:128].mean()), "error_of_second_halves": usual,
    }  # fmt: skip


def measure_event(event: str) -> dict[str, Any]:
    """Three features, of which the first has an excess error of 4 if it is lost; the noise has variance 0.01."""
    random, rows = np.random.default_rng(0), 6_000
    x = random.normal(size=(rows, 3)) * [1, 5, 1] + [10, 20, 0]
    y = 2 * (x[:, 0] - 10) + 0.2 * (x[:, 1] - 20) + 0.5 * x[:, 2] + 0.1 * random.normal(size=rows)
    if event == "wrong value":
        x[EVENT, 0] = -9999
    elif event == "wrong target":
        y[EVENT] = -9999
    elif event == "thousandth":
        x[EVENT:, 0] /= 1000
    elif event == "fahrenheit":
        x[EVENT:, 0] = 32 + 1.8 * x[EVENT:, 0]
    else:
        y[EVENT:] += 500 * y[:EVENT].std()
    _, outcome = process(x, y)
    excess = (outcome.predictions[0] - y) ** 2 - 0.01
    return {"event": event} | {
        f"excess of rows {name} after": float(excess[EVENT + a : EVENT + b].mean()) for name, (a, b) in SPANS.items()
    }


def measure_alarms(noise: str, rows: int) -> dict[str, Any]:
    """Changes that are reported where there are none."""
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, 3))
    draws = {
        "gaussian": random.normal(size=rows), "student": random.standard_t(3, rows),
        "lognormal": random.lognormal(size=rows),
    }  # fmt: skip
    y = x @ [1.0, 0.5, 0.0] + draws[noise]
    _, outcome = process(x, y)
    squares = np.nan_to_num((outcome.predictions[0] - y) ** 2)
    detector, alarms = ChangeDetector(), []
    for number, weights in enumerate(outcome.weights):
        memory = effective_memory(weights, number)
        place = detector.update(memory, float(squares[16 * number : 16 * number + 16].mean()))
        if place is not None:
            alarms.append(16 * place + 1)
    return {"noise": noise, "rows": rows, "alarms": len(alarms), "at": alarms}


def measure_tail(tail: str, noise: float, seeds: Iterable[int]) -> dict[str, Any]:
    """y = x₁ + x₂ + noise; x₁ has a long tail. The squared error over that of least squares on all rows before."""
    ratios, of_noise = [], []
    for seed in seeds:
        random = np.random.default_rng(seed)
        x = random.normal(size=(ROWS_OF_TAILS, 3))
        x[:, 0] = TAILS[tail](random, ROWS_OF_TAILS)
        y = x[:, 0] + x[:, 1] + noise * random.normal(size=ROWS_OF_TAILS)
        _, outcome = process(x, y)
        ours = (outcome.predictions[0, -LAST:] - y[-LAST:]) ** 2
        ratios.append(float(ours.mean() / _squares_of_least_squares(x, y).mean()))
        of_noise.append(float(ours.mean() / noise**2))
    return {
        "tail": tail, "noise": noise, "mean": float(np.mean(ratios)), "median": float(np.median(ratios)),
        "largest": max(ratios), "of the noise": float(np.mean(of_noise)),
    }  # fmt: skip


def _squares_of_least_squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the last rows, each predicted by a fit to all rows before it."""
    z, first = np.c_[x, np.ones(len(y))], len(y) - LAST
    moments, products = z[:first].T @ z[:first], z[:first].T @ y[:first]
    squares = []
    for row, target in zip(z[first:], y[first:], strict=True):
        squares.append((row @ np.linalg.solve(moments, products) - target) ** 2)
        moments, products = moments + np.outer(row, row), products + row * target
    return np.array(squares)


def measure_sentinels(where: str, seeds: Iterable[int]) -> dict[str, Any]:
    """The stream of `measure_event`, with −9999 in 1 % of the rows: in the first feature, the target, or both.

    The error above the noise in the last 3,000 rows, without those in which something is missing.
    """
    found = []
    for seed in seeds:
        random, rows = np.random.default_rng(seed), 6_000
        x = random.normal(size=(rows, 3)) * [1, 5, 1] + [10, 20, 0]
        y = 2 * (x[:, 0] - 10) + 0.2 * (x[:, 1] - 20) + 0.5 * x[:, 2] + 0.1 * random.normal(size=rows)
        is_missing = random.random((2, rows)) < 0.01
        if "feature" in where:
            x[is_missing[0], 0] = MISSING
        if "target" in where:
            y[is_missing[0 if "same" in where else 1]] = MISSING
        _, outcome = process(x, y)
        counts = (y > MISSING) & (x[:, 0] > MISSING)
        counts[:EVENT] = False
        found.append(float(np.mean((outcome.predictions[0] - y)[counts] ** 2) - 0.01))
    return {"where": where, "excess": float(np.mean(found)), "largest": max(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-seed", type=int, default=SEEDS[0])
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--horizons", type=int, nargs="+", default=sorted({horizon for *_, horizon in JUMPS}))
    parser.add_argument("--tails", action="store_true", help="columns with long tails alone")
    parser.add_argument("--sentinels", action="store_true", help="-9999 for what is missing alone")
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    if arguments.tails:
        for tail in TAILS:
            for noise in (1.0, 0.1):
                print(measure_tail(tail, noise, seeds), flush=True)
    if arguments.sentinels:
        for where in ("feature", "target", "feature and target", "feature and target, same rows"):
            print(measure_sentinels(where, seeds), flush=True)
    for every, size, horizon in () if arguments.tails or arguments.sentinels else JUMPS:
        if horizon in arguments.horizons:
            print(measure_jump(every, size, horizon, seeds), flush=True)


if __name__ == "__main__":
    main()
