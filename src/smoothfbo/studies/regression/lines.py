"""The lines of the regression's charts: which lanes, and how each method and window looks."""

from typing import Any, NamedTuple

import numpy as np

from smoothfbo.harness.charts import Series
from smoothfbo.harness.methods import SMOOTH_FBO, Method
from smoothfbo.harness.statistics import Frame, bands
from smoothfbo.studies.regression.claims import at_base
from smoothfbo.studies.regression.methods import find

# Windows from light to dark green, unlike the colour of any other method.
WINDOW_COLOURS = ("#b7e4c7", "#8fd3a8", "#63bd86", "#3fa66a", "#258d52", "#13713d", "#0a5229", "#053619")


def main_lanes(frame: Frame, base: dict[str, Any], drift: str) -> Frame:
    """The lanes of the main comparison: one setting of everything but method and window."""
    frame = at_base(frame, {"drift": drift, "regime": "default"}, base)
    return frame[frame["outer_rate"].isin((base["outer_rate"], 0.0))]


def one_window(frame: Frame) -> Frame:
    """All methods, the smoothed ones with a single window: 100, or the largest there is."""
    windows = sorted(frame["window"].unique())
    chosen = 100 if 100 in windows else windows[-1]
    return frame[(frame["window"] == 1) | (frame["window"] == chosen)]


class Entry(NamedTuple):
    """A line of a chart: a method with a window, and its rows."""

    method: Method
    window: int
    rows: Frame

    @property
    def label(self) -> str:
        return self.method.with_window(self.window)

    @property
    def colour(self) -> str:
        """SmoothFBO's windows have a colour each, the same in every picture."""
        if self.method.name != SMOOTH_FBO:
            return self.method.colour
        return WINDOW_COLOURS[min(round(0.78 * np.log2(self.window)), len(WINDOW_COLOURS) - 1)]


def entries_of(frame: Frame) -> list[Entry]:
    """The baselines first, and the windows in order."""
    pairs = sorted(
        {(str(m), int(w)) for m, w in zip(frame["method"], frame["window"], strict=True)},
        key=lambda p: (find(p[0]).is_smoothed, p),
    )
    return [
        Entry(find(method), window, frame[(frame["method"] == method) & (frame["window"] == window)])
        for method, window in pairs
    ]


def lines_of(
    frame: Frame,
    column: str,
    *,
    running: int = 1,
    methods: tuple[str, ...] | None = None,
    geometric: bool = False,
) -> list[Series]:
    """Mean and interval over seeds, over rounds; noisy columns as running means within each seed."""
    result = []
    for entry in entries_of(frame):
        rows = entry.rows
        if (
            (methods is not None and entry.method.name not in methods)
            or column not in rows
            or rows[column].isna().all()
        ):
            continue
        wide = rows.pivot_table(index="round", columns="seed", values=column, observed=True)
        if running > 1:
            spacing = int(wide.index[1] - wide.index[0]) if len(wide) > 1 else 1
            wide = wide.rolling(max(running // spacing, 1), min_periods=1, center=True).mean()
        band = bands(wide.stack().rename("value").reset_index(), "round", "value", geometric=geometric)
        result.append(series_of(entry, band, entry.method.is_dashed))
    return result


def series_of(entry: Entry, band: Frame, dashed: bool = False, markers: bool = False) -> Series:
    return Series(entry.label, band.index, band["mean"], band["low"], band["high"], entry.colour, dashed, markers)
