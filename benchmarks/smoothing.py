"""Time and memory of `window_average` per update, over the window w and the number of parameters d.

What is timed is one compiled scan whose state is donated and whose gradient costs one multiplication. The plain way
writes into a ring buffer, too, but sums all of it in every round: (1/w, …, 1/w) · buffer. The mean over its first axis
is timed beside that: for many parameters it is far slower on a CPU, and would flatter us.

    python -m benchmarks.smoothing 1000 100000    # w, d: the peak memory of this process alone
"""

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import measure
from smoothfbo.harness.charts import PALETTE, Chart, Series
from smoothfbo.smoothing import window_average

WINDOWS = (1, 10, 100, 1_000, 10_000, 100_000)
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
LARGEST = 4 * 2**30  # bytes of a window
LARGEST_PLAIN = 2**30  # of one that is summed in every round
LARGEST_MEAN = 40_000_000
NOT_NOISE = 256e6  # bytes of a window from which on the rest of a process does not count
OUT_OF_CACHE = 40e6
STEP = 2_000_000  # numbers that a timed call goes through, about


class Rounds:
    """Some rounds in one scan, in place; a call goes on where the last one ended."""

    def __init__(self, one: Callable[[Any], Any], state: Any, rounds: int):
        self.rounds, self._state = rounds, state
        self._advance = jax.jit(
            lambda state: jax.lax.scan(lambda state, _: (one(state), None), state, length=rounds)[0], donate_argnums=0
        )

    def __call__(self) -> None:
        self._state = jax.block_until_ready(self._advance(self._state))


def ours(window: int, size: int) -> Rounds:
    smoother, direction = window_average(window), jnp.linspace(0.0, 1.0, size)

    def one(state: Any) -> Any:
        return smoother.update(direction * state.rounds.astype(direction.dtype), state)[1]

    # `init` writes the zeros of the buffer, so no page of it is touched for the first time in a timed round.
    return Rounds(one, smoother.init(direction), _between(STEP // size, 10, 20_000))


def plain(window: int, size: int, average: Callable[[Any], Any] | None = None) -> Rounds:
    """A ring buffer that is summed in every round."""
    direction, weights = jnp.linspace(0.0, 1.0, size), jnp.full(window, 1 / window)
    average = average or (lambda buffer: weights @ buffer)

    def one(state: tuple[Any, ...]) -> tuple[Any, ...]:
        round, buffer, _ = state
        gradient = direction * round.astype(direction.dtype)
        buffer = jax.lax.dynamic_update_index_in_dim(buffer, gradient, round % window, 0)
        return round + 1, buffer, average(buffer)

    state = (jnp.zeros((), jnp.int32), jnp.zeros((window, size)), jnp.zeros(size))
    return Rounds(one, state, _between(STEP // (window * size), 1, 20_000))


def mean(window: int, size: int) -> Rounds:
    return plain(window, size, lambda buffer: jnp.mean(buffer, axis=0))


def run(quick: bool) -> measure.Result:
    sizes, largest = ((1_000, 100_000), 400_000_000) if quick else (SIZES, LARGEST)
    memory = [case for size in sizes for case in peaks(size, largest)]
    times = [case for size in sizes for case in timings(size, largest, repetitions=11 if quick else 31)]
    lines = [line for size in sizes for line in time_lines(size, times)]
    for case in memory:
        what, share = f"memory, d = {case['size']:,}", case["peak_above_w1_bytes"] / case["window_bytes"]
        lines.append(measure.Ratio(what, _w(case["window"]), "w·d·4 bytes", share, share, share, "≤ 1.05"))
    return measure.Result(lines, [{k: v for k, v in case.items() if k != "turns"} for case in (*times, *memory)])


def timings(size: int, largest: float, repetitions: int) -> list[dict[str, Any]]:
    """Seconds per update, all windows of one size in turns."""
    limits = {ours: largest, plain: min(largest, LARGEST_PLAIN), mean: LARGEST_MEAN}
    candidates = {
        f"{way.__name__} {window}": (way(window, size), {"way": way.__name__, "window": window, "size": size})
        for way, limit in limits.items()
        for window in WINDOWS
        if _bytes(window, size) <= limit
    }
    seconds = measure.in_turns({name: rounds for name, (rounds, _) in candidates.items()}, repetitions)
    turns = {name: [each / rounds.rounds for each in seconds[name]] for name, (rounds, _) in candidates.items()}
    return [{**keys, **measure.summary(turns[name]), "turns": turns[name]} for name, (_, keys) in candidates.items()]


def time_lines(size: int, cases: Sequence[dict[str, Any]]) -> list[measure.Ratio]:
    turns = {(case["way"], case["window"]): case["turns"] for case in cases if case["size"] == size}
    last = max(window for _, window in turns)
    what = f"time per update, d = {size:,}"
    lines = [measure.ratio(what, _w(last), _w(10), turns["ours", last], turns["ours", 10], "≤ 1.1")]
    beyond = next((window for window in WINDOWS if _bytes(window, size) >= OUT_OF_CACHE), last)
    if 10 < beyond < last:
        reference = f"{_w(beyond)}, beyond the caches"
        lines.append(measure.ratio(what, _w(last), reference, turns["ours", last], turns["ours", beyond]))
    for way, name in (("plain", "summing the buffer"), ("mean", "jnp.mean of the buffer")):
        largest = max(window for other, window in turns if other == way)
        for window in sorted({10, largest} if way == "plain" else {largest}):
            pair = turns[way, window], turns["ours", window]
            lines.append(measure.ratio(f"speed, d = {size:,}, {_w(window)}", "window_average", name, *pair))
    return lines


def peaks(size: int, largest: float) -> list[dict[str, Any]]:
    """Peak memory of a process for each window that is large enough to be seen, less that of a process with w = 1."""

    def peak(window: int) -> int:
        return measure.in_own_process("benchmarks.smoothing", str(window), str(size))["peak_bytes"]

    windows = [window for window in WINDOWS if NOT_NOISE <= _bytes(window, size) <= largest]
    base = peak(1) if windows else 0
    return [
        {
            "size": size,
            "window": window,
            "window_bytes": _bytes(window, size),
            "peak_above_w1_bytes": peak(window) - base,
        }
        for window in windows
    ]


def charts(result: measure.Result) -> list[Chart]:
    series = []
    for way in ("ours", "plain"):
        for colour, size in zip(PALETTE, SIZES, strict=False):
            cases = [case for case in result.cases if case.get("way") == way and case["size"] == size]
            windows, times = ([scale * case[key] for case in cases] for key, scale in (("window", 1), ("seconds", 1e6)))
            # A name with an underscore in front is not in the legend: colours are explained once.
            name = f"d = {size:,}" if way == "ours" else f"_d = {size:,}" if size < SIZES[-1] else "summing the buffer"
            series.append(Series(name, windows, times, colour=colour, dashed=way == "plain", markers=True))
    caption = "Medians of repetitions in turns. Dashed: all of the window is summed in every round."
    axes = "window w", "microseconds per update"
    return [Chart("smoothing", "Time of a window average", caption, *axes, series, log_x=True, log_y=True)]


def _bytes(window: int, size: int) -> int:
    return 4 * window * size


def _between(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _w(window: int) -> str:
    return f"w = {window:,}"


if __name__ == "__main__":
    rounds = ours(int(sys.argv[1]), int(sys.argv[2]))
    rounds()
    print(json.dumps({"peak_bytes": measure.peak_memory()}))
