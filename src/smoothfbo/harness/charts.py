"""Charts described once and drawn twice: by matplotlib for files, by plotly for the page."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
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
MOST_TICKS = 8  # values of x that are all named on a logarithmic axis
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
    if _floor(chart) is None:
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
    if chart.log_y and (floor := _floor(chart)) is not None:
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


def _floor(chart: Chart) -> float | None:
    """Where a logarithmic axis ends below: intervals may reach zero, lines do not."""
    values = np.concatenate([np.asarray(series.y, float) for series in chart.series]) if chart.series else np.zeros(0)
    positive = values[np.isfinite(values) & (values > 0)]
    return float(positive.min()) / 3 if len(positive) else None


def as_plotly(chart: Chart | HeatMap) -> dict[str, Any]:
    """The chart as data and layout for plotly, ready for JSON."""
    layout: dict[str, Any] = {
        "margin": {"l": 64, "r": 16, "t": 8, "b": 48},
        "xaxis": {"title": {"text": _plain(chart.x_label)}, "automargin": True},
        "yaxis": {"title": {"text": _plain(chart.y_label)}, "automargin": True},
        "legend": {"orientation": "h", "y": -0.22},
        "hovermode": "closest",
        "template": "none",
        "height": 420,
    }
    if isinstance(chart, HeatMap):
        return {"data": [_cells(chart)], "layout": layout | _layout_of_cells(chart, layout)}
    chart = drawable(chart)
    for axis, logarithmic in (("xaxis", chart.log_x), ("yaxis", chart.log_y)):
        layout[axis] |= {"type": "log" if logarithmic else "linear", "gridcolor": "#e6e6e6", "zeroline": False}
        if logarithmic:
            layout[axis] |= {"exponentformat": "power", "dtick": 1}
    places = np.unique(np.concatenate([np.asarray(series.x, float) for series in chart.series] or [np.zeros(0)]))
    if chart.log_x and len(places) <= MOST_TICKS:
        layout["xaxis"] |= {"tickvals": _numbers(places), "ticktext": [f"{place:g}" for place in places]}
    elif chart.log_x and _spread([series.x for series in chart.series]) < 100:
        layout["xaxis"]["dtick"] = "D2"
    layout["showlegend"] = len(chart.series) > 1  # a single line is named by the title
    floor = _floor(chart) if chart.log_y else None
    if floor is not None:
        tops = np.concatenate([np.asarray(s.y if s.high is None else s.high, float) for s in chart.series])
        highest = float(np.max(tops, initial=floor, where=np.isfinite(tops)))
        layout["yaxis"]["range"] = [np.log10(floor), np.log10(max(highest, floor)) + 0.1]
        if highest < 100 * floor:  # hardly a power of ten among the values
            layout["yaxis"]["dtick"] = "D2"
    traces: list[dict[str, Any]] = []
    for index, series in enumerate(map(thinned, chart.series)):
        group = {"legendgroup": str(index), "x": _numbers(series.x)}
        shape = {"shape": "hv"} if chart.steps else {}
        if series.low is not None:
            band = {**group, "mode": "lines", "line": {"width": 0, **shape}, "showlegend": False, "hoverinfo": "skip"}
            low = series.low if floor is None else np.maximum(series.low, floor / 10)
            traces.append({**band, "y": _numbers(low)})
            filled = {"fill": "tonexty", "fillcolor": _faint(series.colour)}
            named = {"name": _plain(series.name), "showlegend": True} if series.only_band else {}
            traces.append({**band, "y": _numbers(series.high), **filled, **named})
        if series.only_band:
            continue
        line = {"color": series.colour, "width": 2, "dash": "dash" if series.dashed else "solid", **shape}
        mode = "lines+markers" if series.markers else "lines"
        traces.append({**group, "y": _numbers(series.y), "name": _plain(series.name), "mode": mode, "line": line})
    layout["shapes"] = [
        {"type": "line", "x0": mark, "x1": mark, "y0": 0, "y1": 1, "yref": "paper",
         "line": {"color": MARK, "dash": "dot", "width": 1.2}}
        for mark in map(float, chart.marks)
    ]  # fmt: skip
    return {"data": traces, "layout": layout}


def _cells(chart: HeatMap) -> dict[str, Any]:
    """plotly has no logarithmic colours: ratios are shown by their logarithm, and named on the bar."""
    values = np.asarray(chart.values, float)
    bar: dict[str, Any] = {"title": {"text": _plain(chart.value_label), "side": "right"}}
    trace = {"type": "heatmap", "x": _numbers(chart.x), "y": _numbers(chart.y), "colorscale": "Viridis"}
    if chart.is_ratio:
        values = np.log2(np.maximum(values, 1e-9))
        limit = float(np.log2(LARGEST_RATIO))
        bar |= {"tickvals": _numbers(np.log2(RATIO_TICKS)), "ticktext": [f"{tick:g}" for tick in RATIO_TICKS]}
        trace |= {"colorscale": RATIO_COLOURS, "zmin": -limit, "zmax": limit}
    if len(chart.texts):
        trace |= {"text": [[_plain(text) for text in row] for row in chart.texts], "texttemplate": "%{text}",
                  "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>"}  # fmt: skip
    return trace | {"z": [_numbers(row) for row in values], "colorbar": bar}


def _layout_of_cells(chart: HeatMap, layout: dict[str, Any]) -> dict[str, Any]:
    """Words on the axes, and height for many rows."""
    result: dict[str, Any] = {"height": max(layout["height"], 140 + 26 * len(chart.y_ticks))}
    for axis, places, ticks in (("xaxis", chart.x, chart.x_ticks), ("yaxis", chart.y, chart.y_ticks)):
        if ticks:
            result[axis] = layout[axis] | {"tickvals": _numbers(places), "ticktext": [_plain(tick) for tick in ticks]}
    return result


def _plain(text: str) -> str:
    """plotly reads <b>, <i>, <a> in its texts; names are shown as they are."""
    return escape(text, quote=False)


def _spread(parts: Sequence[Any]) -> float:
    """Largest over smallest of all positive values."""
    values = np.concatenate([np.asarray(part, float) for part in parts]) if parts else np.ones(1)
    positive = values[np.isfinite(values) & (values > 0)]
    return float(positive.max() / positive.min()) if len(positive) else 1.0


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _numbers(values: Any) -> list[float | None]:
    """Five digits; JSON has no word for what is not finite."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, float)]
