"""Which series a row is of: the values of one column or of several, numbered as they come."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

compute: Any = pyarrow.compute  # its functions are made when it is imported


def _dense(values: pa.Array) -> tuple[np.ndarray, int]:
    """Numbers 0, 1, … for the different values in order of appearance, and how many there are."""
    encoded = values.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


class SeriesKeys:
    """Series by the text in the columns `by`; slots 0, 1, … in order of appearance."""

    def __init__(self, by: tuple[str, ...]):
        self.by = by
        self.names: list[tuple[str, ...]] = []
        self._slots: dict[tuple[str, ...], int] = {}

    def add(self, names: list[tuple[str, ...]]) -> np.ndarray:
        """The slots of series, of new ones as well."""
        for name in names:
            if name not in self._slots:
                self._slots[name] = len(self.names)
                self.names.append(name)
        return np.array([self._slots[name] for name in names], np.int64)

    def of(self, table: pa.Table) -> np.ndarray:
        """The slot of every row."""
        if not table.num_rows:
            return np.zeros(0, np.int64)
        code = np.zeros(table.num_rows, np.int64)
        for name in self.by:
            other, count = _dense(table[name].combine_chunks())
            # Numbers of pairs are made dense again, so that several columns with many values do not overflow.
            code, _ = _dense(pa.array(code * count + other))
        # Codes are in order of appearance, so each is first met where the largest so far grows.
        first = np.flatnonzero(np.diff(np.maximum.accumulate(code), prepend=-1))
        columns = [table[name].take(pa.array(first)).to_pylist() for name in self.by]
        return self.add(list(zip(*columns, strict=True)))[code]

    def known(self, table: pa.Table) -> np.ndarray:
        """The slot of every row, −1 for a series that has not come yet; nothing is added."""
        here = SeriesKeys(self.by)
        codes = here.of(table)
        return np.array([self._slots.get(name, -1) for name in here.names], np.int64)[codes]

    def text(self, slot: int) -> str:
        """A series in words."""
        return ", ".join(self.names[slot])

    def columns(self, slots: np.ndarray, taken: set[str]) -> dict[str, pa.Array]:
        """The values of the columns `by` for rows of these series; a name that is taken gets a prefix."""
        index = pa.array(slots)
        named = {
            f"by_{name}" if name in taken else name: values
            for name, values in zip(self.by, self._values(), strict=True)
        }
        return {name: pa.array(values, pa.string()).take(index) for name, values in named.items()}

    def _values(self) -> list[list[str]]:
        return [[name[column] for name in self.names] for column in range(len(self.by))]
