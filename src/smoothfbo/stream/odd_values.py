"""Notes on values far from all others of their column, which may stand for a missing one; counted over the table."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

FAR, FEWEST_ROWS = 300, 100  # a value so many interquartile ranges from the median of so many rows is named
MOST_ROWS = 1000  # that are kept until there are enough values


@dataclass
class OddValue:
    """The first one of a column, how often it came since, and between which two values half of the others lie."""

    row: int
    value: float
    count: int
    low: float
    high: float

    def note(self, column: str, with_count: bool) -> str:
        often = f" ({self.count:,} times)" if with_count and self.count > 1 else ""
        return (
            f"column {column!r}, row {self.row:,}: {self.value:g}{often} is far from all else (half of the values "
            f"lie in {self.low:.4g} to {self.high:.4g}); if it stands for a missing value, leave it empty"
        )


@dataclass
class OddValues:
    """By column; `few` are the values of the last rows where there were not enough of them yet."""

    found: dict[str, OddValue] = field(default_factory=dict)
    few: dict[str, list[float]] = field(default_factory=dict)

    def look(self, columns: Mapping[str, np.ndarray], rows: int) -> None:
        """Look at the values after so many rows: one is named for every column, once, and counted from then on."""
        for name, values in columns.items():
            odd = self.found.get(name)
            if odd is not None:
                odd.count += int(np.sum(values == odd.value))
                continue
            before = self.few.pop(name, [])
            values = np.concatenate([before, values])
            if np.sum(~np.isnan(values)) >= FEWEST_ROWS:
                self._judge(name, values, rows - len(before))
            else:
                self.few[name] = values[-MOST_ROWS:].tolist()

    def _judge(self, name: str, values: np.ndarray, rows: int) -> None:
        low, middle, high = np.nanpercentile(values, (25, 50, 75))
        distance = np.nan_to_num(np.abs(values - middle))
        value = values[np.argmax(distance)]
        if high > low and distance.max() > FAR * (high - low):
            same = np.flatnonzero(values == value)
            self.found[name] = OddValue(rows + int(same[0]) + 1, float(value), len(same), float(low), float(high))

    def notes(self, with_counts: bool = True) -> Iterator[str]:
        """While more rows come, without the counts: each note stays as it is."""
        for name, odd in self.found.items():
            yield odd.note(name, with_counts)

    def state(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def restored(cls, state: dict[str, Any]) -> "OddValues":
        return cls({name: OddValue(**odd) for name, odd in state.get("found", {}).items()}, state.get("few", {}))
