"""A trace as a picture."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from smoothfbo.views.frames import trace_columns

LINES = 10  # entries of λ that have a line and a name each


def plot(trace: Any) -> Any:
    """The trace of a run as a matplotlib figure: losses, norms, residuals with skipped rounds, and λ over time.

    Of a trace with lanes it shows the median over lanes, and the range of the middle half of them. Of more than ten
    entries of λ it shows the median and the range of the entries.
    """
    from matplotlib import pyplot

    fields = getattr(trace, "_fields", ())
    if "outer_loss" not in fields or not np.shape(trace.round):
        raise TypeError(
            f"plot needs a trace as run returns it, an Info with an axis over rounds, got a {type(trace).__name__}."
        )
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 6.5), sharex=True, layout="constrained")
    rounds = np.asarray(trace.round).reshape(-1, np.shape(trace.round)[-1])[0]

    def show(axis: Any, title: str, lines: Mapping[str, np.ndarray], *, log: bool = True) -> None:
        """Lines of arrays whose last axis is the rounds; all other axes become a range."""
        for label, values in lines.items():
            values = values.reshape(-1, len(rounds)).astype(float)
            if not np.isfinite(values).any():
                continue
            low, middle, high = _quartiles(values)
            (line,) = axis.plot(rounds, middle, label=label, linewidth=1.2)
            if len(values) > 1:
                axis.fill_between(rounds, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        if log and all((line.get_ydata() > 0).any() for line in axis.lines) and axis.lines:
            axis.set_yscale("log")
        axis.set_title(title, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        if axis.lines:
            axis.legend(frameon=False, fontsize=8)

    show(axes[0, 0], "losses", {"outer": np.asarray(trace.outer_loss), "inner": np.asarray(trace.inner_loss)})
    norms = {"raw": np.asarray(trace.gradient_norm), "smoothed": np.asarray(trace.smoothed_norm)}
    show(axes[0, 1], "norm of the hypergradient", norms)
    residuals = {"inner": np.asarray(trace.inner_residual), "adjoint": np.asarray(trace.adjoint_residual)}
    show(axes[1, 0], "residuals (0 is solved)", residuals)
    skipped = ~np.asarray(trace.finite).reshape(-1, len(rounds)).all(axis=0)
    if skipped.any():
        marks = np.full(skipped.sum(), 0.02)
        axes[1, 0].plot(rounds[skipped], marks, "|", color="tab:red", label=f"skipped rounds ({skipped.sum()})",
                        transform=axes[1, 0].get_xaxis_transform(), markersize=10)  # fmt: skip
        axes[1, 0].legend(frameon=False, fontsize=8)
    entries = trace_columns("outer", trace.outer, np.ndim(trace.round))
    if len(entries) > LINES:
        entries = {f"{len(entries):,} entries": np.concatenate(list(entries.values()))}
    show(axes[1, 1], "λ", entries, log=False)
    for axis in axes[1]:
        axis.set_xlabel("round")
    return figure


def _quartiles(values: np.ndarray) -> np.ndarray:
    """Over the first axis, of what is finite; NaN where nothing is."""
    with warnings.catch_warnings(action="ignore"):  # of a round in which no lane is finite
        return np.nanquantile(np.where(np.isfinite(values), values, np.nan), (0.25, 0.5, 0.75), axis=0)
