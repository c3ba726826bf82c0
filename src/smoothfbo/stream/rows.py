"""Rows on their way from a table to the learner."""

from typing import Any, NamedTuple

import numpy as np


class Rows(NamedTuple):
    """Encoded rows: NumPy arrays outside of the compiled program, JAX arrays (in blocks) inside it.

    - `features`: rows × columns; NaN where nothing is known yet.
    - `target`: a number or the index of a class; NaN where it is missing.
    - `previous`: the newest target that is known when the row is predicted; NaN if there is none.
    """

    features: Any
    target: Any
    previous: Any


def join(one: Rows, other: Rows) -> Rows:
    return Rows(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))


def cut(rows: Rows, start: int, stop: int | None) -> Rows:
    return Rows(*(column[start:stop] for column in rows))


def padded(column: np.ndarray, rows: int) -> np.ndarray:
    """The column with rows of zeros behind it, `rows` in all."""
    filled = np.zeros((rows, *column.shape[1:]))
    filled[: len(column)] = column
    return filled
