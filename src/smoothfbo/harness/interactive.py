"""Charts as data and layout for plotly, which the page shows."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from smoothfbo.harness.charts import (
    LARGEST_RATIO,
    MARK,
    RATIO_COLOURS,
    RATIO_TICKS,
    Chart,
    HeatMap,
    drawable,
    lowest,
    thinned,
)

MOST_TICKS = 8  # values of x that are all named on a logarithmic axis


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
    floor = lowest(chart) if chart.log_y else None
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
            filled = {"fill": "tonexty", "fillcolor": _transparent(series.colour)}
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


def _transparent(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def _numbers(values: Any) -> list[float | None]:
    """Five digits; JSON has no word for what is not finite."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(values, float)]
