"""Charts described once and drawn twice: by matplotlib for files, here; by plotly for the page, in `interactive`."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from smoothfbo.harness import store

mpl.use("Agg")
from matplotlib import pyplot as plt

# Colours that can be told apart by most people, in a fixed order.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8b5a2b", "#555555", "#000000")
MARK = "#d55e00"
LONGEST = 240  # points of a line that are drawn
MOST_IN_LEGEND_INSIDE = 5  # names; a longer legend stands beside the lines
MOST_ROWS = 9  # of a heat map with words; more make it taller
LARGEST_RATIO = 4.0  # beyond it colours do not change
RATIO_TICKS = (0.25, 0.5, 1.0, 2.0, 4.0)
RATIO_COLOURS = ((0, "#2166ac"), (0.25, "#92c5de"), (0.5, "#f7f7f7"), (0.75, "#f4a582"), (1, "#b2182b"))
MOST_NAMES = 16  # in a picture's legend: more leave no room for the lines; the page tells which line is which


@dataclass(frozen=True)
class Series:
    """A line with its 95 % interval."""

    name: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    colour: str = PALETTE[0]
    dashed: bool = False
    markers: bool = False
    only_band: bool = False  # the interval without its line


@dataclass(frozen=True)
class Chart:
    """Lines over one pair of axes."""

    name: str  # of the file
    title: str
    caption: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    steps: bool = False  # hold each value until the next one
    marks: Sequence[float] = ()  # vertical lines


@dataclass(frozen=True)
class HeatMap:
    """Values over two axes."""

    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    value_label: str
    x: Any = field(repr=False)
    y: Any = field(repr=False)
    values: Any = field(repr=False)  # axes (y, x)
    y_ticks: Sequence[str] = ()  # words in place of the numbers y
    x_ticks: Sequence[str] = ()  # and of the numbers x
    texts: Sequence[Sequence[str]] = ()  # what is written into the cells; axes as those of the values
    is_ratio: bool = False  # blue below 1, red above, as far as 1/4 and 4


def thinned(series: Series) -> Series:
    """At most `LONGEST` points, the last one among them."""
    number = len(series.x)
    if number <= LONGEST:
        return series
    keep = np.unique(np.append(np.arange(0, number, -(-number // LONGEST)), number - 1))
    parts = {n: None if (v := getattr(series, n)) is None else np.asarray(v)[keep] for n in ("x", "y", "low", "high")}
    return replace(series, **parts)


def drawable(chart: Chart) -> Chart:
    """Where nothing is positive, because no value is finite, an axis is not logarithmic; where it is, a line has a gap
    at values that are not positive."""
    if not chart.log_y:
        return chart
    if lowest(chart) is None:
        return replace(chart, log_y=False)
    return replace(chart, series=[replace(each, y=_positive(each.y)) for each in chart.series])


def _positive(values: Any) -> np.ndarray:
    values = np.asarray(values, float)
    return np.where(values > 0, values, np.nan)


def draw(chart: Chart | HeatMap, folder: Path) -> Path:
    """The chart as a PNG file in `folder`."""
    if isinstance(chart, Chart):
        chart = drawable(chart)
    crowded = isinstance(chart, Chart) and MOST_IN_LEGEND_INSIDE < len(chart.series) <= MOST_NAMES
    is_tall = isinstance(chart, HeatMap) and len(chart.y_ticks) > MOST_ROWS
    figure, axis = plt.subplots(figsize=(9.6 if crowded or is_tall else 7.2, 6.4 if is_tall else 4.2))
    # Fixed margins: a layout that measures all texts would take as long as the drawing itself.
    longest = max((len(tick) for tick in chart.y_ticks), default=0) if isinstance(chart, HeatMap) else 0
    left = 0.3 if longest > 24 else 0.24 if longest > 12 else 0.19 if longest > 4 else 0.125
    bottom = 0.26 if isinstance(chart, HeatMap) and max(map(len, chart.x_ticks), default=0) > 6 else 0.135
    figure.subplots_adjust(left=left, right=0.66 if crowded else 0.97, bottom=bottom, top=0.92)
    if isinstance(chart, HeatMap):
        _draw_cells(figure, axis, chart)
    else:
        _draw_lines(axis, chart)
    # Names may come from anywhere: a dollar sign is not the beginning of a formula, and no font has all letters.
    axis.set_xlabel(chart.x_label, parse_math=False)
    axis.set_ylabel(chart.y_label, parse_math=False)
    axis.set_title(chart.title, fontsize=11, parse_math=False)
    path = folder / f"{chart.name}.png"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        store.write(path, lambda file: figure.savefig(file, dpi=140))
    plt.close(figure)
    return path


def _draw_cells(figure: Any, axis: Axes, chart: HeatMap) -> None:
    x, y, values = np.asarray(chart.x), np.asarray(chart.y), np.asarray(chart.values, float)
    if chart.y_ticks:
        axis.set_yticks(y, chart.y_ticks, parse_math=False)
    if chart.x_ticks:
        long = max(map(len, chart.x_ticks)) > 6
        turned: dict[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axis.set_xticks(x, chart.x_ticks, parse_math=False, **turned)
    style: dict[str, Any] = {"cmap": "viridis"}
    if chart.is_ratio:
        style = {
            "cmap": LinearSegmentedColormap.from_list("ratio", RATIO_COLOURS),
            "norm": LogNorm(1 / LARGEST_RATIO, LARGEST_RATIO),
        }
    shown = np.clip(values, 1 / LARGEST_RATIO, LARGEST_RATIO) if chart.is_ratio else values
    image = axis.pcolormesh(_edges(x), _edges(y), np.ma.masked_invalid(shown), rasterized=True, **style)
    bar = figure.colorbar(image, ax=axis, label=chart.value_label)
    if chart.is_ratio:
        bar.set_ticks(RATIO_TICKS, labels=[f"{tick:g}" for tick in RATIO_TICKS])
        bar.minorticks_off()
    for row, texts in enumerate(chart.texts):
        for column, text in enumerate(texts):
            value = values[row, column]
            dark = chart.is_ratio and np.isfinite(value) and abs(np.log2(max(value, 1e-9))) > 1.3
            colour = "white" if dark else "black"
            axis.text(x[column], y[row], text, ha="center", va="center", fontsize=7.5, color=colour, parse_math=False)


def _edges(centres: np.ndarray) -> np.ndarray:
    """The edges of cells around these centres; a single cell is one unit wide."""
    steps = np.diff(centres) / 2 if len(centres) > 1 else np.array([0.5])
    return np.concatenate(
        [[centres[0] - steps[0]], centres[:-1] + steps[: len(centres) - 1], [centres[-1] + steps[-1]]]
    )


def _draw_lines(axis: Axes, chart: Chart) -> None:
    for series in map(thinned, chart.series):
        style = {"color": series.colour, "linestyle": "--" if series.dashed else "-", "linewidth": 1.6}
        if chart.steps:
            style["drawstyle"] = "steps-post"
        if not series.only_band:
            marker = "o" if series.markers else None
            axis.plot(series.x, series.y, label=series.name, marker=marker, markersize=4, **style)
        if series.low is not None:
            name = series.name if series.only_band else None
            axis.fill_between(
                series.x, series.low, series.high, color=series.colour, alpha=0.18, linewidth=0, label=name
            )
    for mark in chart.marks:
        axis.axvline(mark, color=MARK, linestyle=":", linewidth=1.2)
    axis.set(xscale="log" if chart.log_x else "linear", yscale="log" if chart.log_y else "linear")
    if chart.log_y and (floor := lowest(chart)) is not None:
        axis.set_ylim(bottom=floor)
    for scale, is_log in ((axis.xaxis, chart.log_x), (axis.yaxis, chart.log_y)):
        if is_log:
            _label_decades(scale)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if 1 < len(chart.series) <= MOST_NAMES:
        beside = (
            {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if len(chart.series) > MOST_IN_LEGEND_INSIDE else {}
        )
        legend = axis.legend(frameon=False, fontsize=8, **beside)
        for text in legend.get_texts():
            text.set_parse_math(False)


def _label_decades(scale: Axis) -> None:
    """Labels at powers of ten, and at 2 and 5 times them where there are few: more would overlap."""
    if np.ptp(np.log10(scale.get_view_interval())) < 2:
        scale.set_minor_locator(LogLocator(subs=(2, 5)))
        scale.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        scale.set_minor_formatter(NullFormatter())


def lowest(chart: Chart) -> float | None:
    """Where a logarithmic axis ends below: intervals may reach zero, lines do not."""
    values = np.concatenate([np.asarray(series.y, float) for series in chart.series]) if chart.series else np.zeros(0)
    positive = values[np.isfinite(values) & (values > 0)]
    return float(positive.min()) / 3 if len(positive) else None
