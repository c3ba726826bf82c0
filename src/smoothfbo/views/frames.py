"""A trace as a table."""

from typing import Any

import jax
import numpy as np


def trace_frame(trace: Any) -> Any:
    """One row a round (and lane), one column a number; see `Info.to_pandas`."""
    import pandas as pd

    shape = np.shape(trace.round)
    if not shape:
        raise ValueError("to_pandas needs a trace, as run returns it, not the Info of one round.")
    lanes = ["lane"] if len(shape) == 2 else [f"lane_{axis}" for axis in range(len(shape) - 1)]
    index = [np.broadcast_to(np.arange(size)[(...,) + (None,) * (len(shape) - 1 - axis)], shape).ravel()
             for axis, size in enumerate(shape[:-1])]  # fmt: skip
    columns = {}
    for field, value in zip(trace._fields, trace, strict=True):
        columns |= {} if field == "round" else trace_columns(field, value, len(shape))
    rounds = np.asarray(trace.round).ravel()
    if lanes:
        return pd.DataFrame(columns, pd.MultiIndex.from_arrays([*index, rounds], names=[*lanes, "round"]))
    return pd.DataFrame(columns, pd.Index(rounds, name="round"))


def trace_columns(field: str, value: Any, axes: int) -> dict[str, np.ndarray]:
    """A column for each number of a pytree whose arrays have `axes` axes over lanes and rounds first."""
    columns = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(value):
        name = ".".join([field, *(jax.tree_util.keystr((step,), simple=True) for step in path)])
        rows = np.asarray(leaf)
        rows = rows.reshape(-1, *rows.shape[axes:])
        for place in np.ndindex(rows.shape[1:]):
            where = f"[{', '.join(map(str, place))}]" if place else ""
            columns[name + where] = rows[(slice(None), *place)]
    return columns
