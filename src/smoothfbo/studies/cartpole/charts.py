"""The CartPole study's charts, from its stored tables."""

from collections.abc import Iterator
from dataclasses import replace

from smoothfbo.harness.charts import PALETTE, Chart, Series
from smoothfbo.harness.statistics import Frame, bands
from smoothfbo.studies.cartpole.config import GRID, LARGEST_RETURN
from smoothfbo.studies.cartpole.methods import find

SYMBOLS: dict[str, str] = dict(zip(GRID, ("inner rate", "outer rate", "τ", "α", "final rate", "w", "θ"), strict=True))
POINTS = 25  # of a line, where single evaluations are too noisy to be told apart
MOST_WITH_INTERVALS = 6  # more lines than this do not all get intervals


def side_by_side(rounds: Frame) -> Iterator[Chart]:
    """Every method in both environments."""
    for method, frame in rounds.groupby("method", sort=False):
        lines = []
        for environment, here in frame.groupby("environment", sort=False):
            averaged, _ = _averaged(here, ["return_mean"])
            lines += [
                replace(line, name=f"{line.name}, {environment}", dashed=environment == "stationary")
                for line in _lines(averaged, "return_mean", limits=(0, LARGEST_RETURN))
            ]
        yield Chart(
            f"both_{method}", find(str(method)).label, "Mean return; 95 % interval over seeds. Dashed: nothing drifts.",
            "environment step", "return", lines,
        )  # fmt: skip


def _lines(
    frame: Frame, column: str, *, geometric: bool = False, limits: tuple[int, int] | None = None
) -> list[Series]:
    """Mean over seeds with its 95 % interval; one line for each method and setting, named by what differs.

    Among many lines only the continuous ones keep their intervals: the dashed ones are the smoothed baselines.
    Intervals end at the `limits` of what is possible.
    """
    groups = list(frame.groupby(["method", *GRID], sort=False))
    settings: dict[str, list[tuple[float, ...]]] = {}
    for (method, *numbers), _ in groups:
        settings.setdefault(method, []).append(tuple(numbers))
    several = len(groups) > len(settings)
    result = []
    for index, ((method, *numbers), rows) in enumerate(groups):
        band = bands(rows, "round", column, geometric=geometric)
        band = band if limits is None else band.clip(*limits)
        varied = [len({each[place] for each in settings[method]}) > 1 for place in range(len(GRID))]
        told = [f"{SYMBOLS[key]} = {value:g}" for key, value, vary in zip(GRID, numbers, varied, strict=True) if vary]
        shown = find(method)
        crowded = len(groups) > MOST_WITH_INTERVALS and shown.is_dashed
        result.append(
            Series(
                ", ".join([shown.label, *told]),
                band.index,
                band["mean"],
                None if crowded else band["low"],
                None if crowded else band["high"],
                PALETTE[index % len(PALETTE)] if several else shown.colour,
                shown.is_dashed,
            )
        )
    return result


def _averaged(frame: Frame, columns: list[str]) -> tuple[Frame, int]:
    """Means of each lane over so many evaluations that at most `POINTS` of them are left."""
    lane = ["method", *GRID, "seed"]
    number = frame.groupby(lane, sort=False).cumcount()
    together = -(-(int(number.max()) + 1) // POINTS)
    parts = frame.assign(part=number // together).groupby([*lane, "part"], sort=False)
    return parts[columns].mean().assign(round=parts["round"].last()).reset_index(), together


def over_training(frame: Frame, environment: str) -> Iterator[Chart]:
    """All charts of one environment."""
    averaged, together = _averaged(frame, ["return_mean", "newest_return", "pole_angle", "reward_low", "reward_high"])
    evaluations = "an evaluation" if together == 1 else f"{together} evaluations"
    yield Chart(
        f"{environment}_return", "Return over training",
        f"Mean return of {evaluations}; 95 % interval over seeds (with many lines, dashed ones have none).",
        "environment step", "return", _lines(averaged, "return_mean", limits=(0, LARGEST_RETURN)),
    )  # fmt: skip
    yield Chart(
        f"{environment}_newest", "Return of the newest networks alone",
        f"Without the average over earlier networks. Mean return of {evaluations}; 95 % interval over seeds (with "
        "many lines, dashed ones have none).",
        "environment step", "return", _lines(averaged, "newest_return", limits=(0, LARGEST_RETURN)),
    )  # fmt: skip
    yield Chart(
        f"{environment}_cumulative", "Cumulative return", "Sum of the evaluations' mean returns.",
        "environment step", "Σ return", _lines(frame, "cumulative_return"),
    )  # fmt: skip
    yield Chart(
        f"{environment}_proxy", "Cumulative proxy Σ‖g̃‖²",
        "Squared norms of the smoothed gradient, before clipping; geometric mean over seeds.",
        "environment step", "Σ‖g̃‖²", _lines(frame, "proxy", geometric=True), log_y=True,
    )  # fmt: skip
    for name, title, symbol, column in (
        ("norm", "Size of the raw gradient", "‖ĝ‖", "hypergradient_norm"),
        ("used_norm", "Size of the smoothed gradient, before clipping", "‖g̃‖", "used_norm"),
    ):
        yield Chart(
            f"{environment}_{name}", title, "Mean norm since the evaluation before; geometric mean over seeds.",
            "environment step", symbol, _lines(frame, column, geometric=True), log_y=True,
        )  # fmt: skip
    ends = []
    for name, column in (("lower end of the band", "reward_low"), ("upper end of the band", "reward_high")):
        band = bands(averaged, "round", column)
        ends.append(Series(name, band.index, band["mean"], colour="#000000", dashed=True))
    angle = [*_lines(averaged, "pole_angle"), *ends]
    yield Chart(
        f"{environment}_interval", "The rewarded band", "Pole angles that are paid for.", "environment step",
        "angle (rad)", ends,
    )  # fmt: skip
    yield Chart(
        f"{environment}_angle", "Pole angle and the rewarded band", f"Mean angle during {evaluations}.",
        "environment step", "angle (rad)", angle,
    )  # fmt: skip
