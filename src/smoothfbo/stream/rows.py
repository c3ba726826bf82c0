"""Rows on their way from a table to the learner."""

from typing import Any, NamedTuple


class Rows(NamedTuple):
    """Encoded rows: NumPy arrays outside of the compiled program, JAX arrays (in blocks) inside it.

    - `features`: rows × columns; NaN where nothing is known yet.
    - `target`: a number or the index of a class; NaN where it is missing.
    - `previous`: the newest target that is known when the row is predicted; NaN if there is none.
    """

    features: Any
    target: Any
    previous: Any
