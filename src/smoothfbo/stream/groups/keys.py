"""Which series a row is of: the values of one column or of several, numbered as they come."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

compute: Any = pyarrow.compute  # its functions are made when it is imported


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
            encoded = table[name].combine_chunks().dictionary_encode()
            # Numbers of pairs are made dense again, so that several columns with many values do not overflow.
            pairs = code * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
            code = np.unique(pairs, return_inverse=True)[1]
        _, first, code = np.unique(code, return_index=True, return_inverse=True)
        rows = np.sort(first)  # new series get their numbers in the order of the table
        columns = [table[name].take(pa.array(rows)).to_pylist() for name in self.by]
        slots = np.empty(len(first), np.int64)
        slots[np.argsort(first)] = self.add(list(zip(*columns, strict=True)))
        return slots[code]

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
