"""Generated tables with classes, for development: few mistakes, many classes, rare ones, drifts and jumps.

All have nine columns, so that they share compiled programs. Names say what is difficult; the number is the seed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.stream_tables import Table

COLUMNS = 9


def _frame(x: np.ndarray, classes: np.ndarray) -> Any:
    import pandas as pd

    frame = pd.DataFrame(x.round(5), columns=[f"x{i}" for i in range(COLUMNS)])
    return frame.assign(target=[f"c{int(c)}" for c in classes])


def _separated(random: np.random.Generator, rows: int = 3_000) -> Any:
    """Five Gaussian classes, one of which has 80 % of the rows; few mistakes need be made."""
    centres = 3 * random.normal(size=(5, COLUMNS))
    classes = random.choice(5, size=rows, p=[0.8, 0.12, 0.05, 0.02, 0.01])
    return _frame(centres[classes] + random.normal(size=(rows, COLUMNS)), classes)


def _thresholds(random: np.random.Generator, rows: int = 3_000) -> Any:
    """Classes by thresholds of two heavy-tailed columns that the others depend on: a tree would make no mistake."""
    x = random.standard_t(3, size=(rows, COLUMNS))
    x[:, 2:] += x[:, :1] * random.normal(size=COLUMNS - 2)
    classes = np.select([x[:, 0] > 2, x[:, 0] < -2.5, x[:, 1] > 3, x[:, 1] < -4], [1, 2, 3, 4], 0)
    return _frame(x, classes)


def _small(random: np.random.Generator, rows: int = 500) -> Any:
    """Two classes in a few hundred rows, of columns that are nearly the same: 3 to 6 % of mistakes."""
    classes = (random.uniform(size=rows) < 0.6).astype(int)
    size = random.normal(size=(rows, 1)) + 2.2 * classes[:, None]
    x = size + 0.5 * random.normal(size=(rows, COLUMNS)) + 0.3 * classes[:, None] * random.normal(size=COLUMNS)
    x[:, 6:] = np.exp(x[:, 6:] / 2)
    return _frame(x, classes)


def _jumping(random: np.random.Generator, rows: int = 4_000) -> Any:
    """Four Gaussian classes, whose centres are drawn anew every 1,000 rows."""
    centres = 1.5 * random.normal(size=(-(-rows // 1_000), 4, COLUMNS))
    classes = random.integers(4, size=rows)
    return _frame(centres[np.arange(rows) // 1_000, classes] + random.normal(size=(rows, COLUMNS)), classes)


def _moving(random: np.random.Generator, rows: int = 4_000) -> Any:
    """Five classes of two Gaussians each, whose centres move steadily."""
    start, speed = 2 * random.normal(size=(2, 5, COLUMNS)), random.normal(size=(2, 5, COLUMNS))
    classes, which = random.integers(5, size=rows), random.integers(2, size=rows)
    centres = start[which, classes] + speed[which, classes] * (np.arange(rows)[:, None] / 1_000)
    return _frame(centres + random.normal(size=(rows, COLUMNS)), classes)


def _sums(random: np.random.Generator, rows: int = 4_000) -> Any:
    """Is a sum of two columns above a threshold, which changes every 1,000 rows? 2 % of the answers are wrong (after
    SEA: Street & Kim, KDD 2001)."""
    x = random.uniform(0, 10, (rows, COLUMNS))
    threshold = np.repeat([8.0, 9.0, 7.0, 9.5], rows // 4)
    return _frame(x, (x[:, 0] + x[:, 1] > threshold) ^ (random.uniform(size=rows) < 0.02))


def _hyperplane(random: np.random.Generator, rows: int = 4_000) -> Any:
    """Two classes on the sides of a plane that turns slowly."""
    x = random.normal(size=(rows, COLUMNS))
    angle = np.arange(rows) / 1_500
    first, second = random.normal(size=(2, COLUMNS))
    return _frame(x, x @ first * np.cos(angle) + x @ second * np.sin(angle) > 0)


def _digits(random: np.random.Generator, rows: int = 3_000) -> Any:
    """A display of seven segments, two of which are exchanged half-way; 5 % of the segments are wrong (after LED:
    Breiman et al., 1984)."""
    segments = ["1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010"]
    shown = np.array([[int(c) for c in word] for word in segments])
    classes = random.integers(len(shown), size=rows)
    x = np.concatenate([shown[classes], random.integers(2, size=(rows, 2))], axis=1)
    x = x ^ (random.uniform(size=x.shape) < 0.05)
    x[rows // 2 :, [0, 5]] = x[rows // 2 :, [5, 0]]
    return _frame(x.astype(float), classes)


def _runs(random: np.random.Generator, rows: int = 3_000) -> Any:
    """A class goes on for some fifty rows; the columns say little."""
    changes = random.uniform(size=rows) < 0.02
    classes = random.integers(4, size=rows)[np.cumsum(changes)]
    return _frame(0.4 * random.normal(size=(4, COLUMNS))[classes] + random.normal(size=(rows, COLUMNS)), classes)


KINDS: dict[str, Callable[[np.random.Generator], Any]] = {
    "separated": _separated, "thresholds": _thresholds, "small": _small, "jumping": _jumping, "moving": _moving,
    "sums": _sums, "hyperplane": _hyperplane, "segments": _digits, "runs": _runs,
}  # fmt: skip


def generated(seeds: tuple[int, ...] = (0, 1)) -> list[Table]:
    def load(kind: str, seed: int) -> Callable[[], Any]:
        return lambda: KINDS[kind](np.random.default_rng(seed))

    return [Table(f"{kind} {seed}", "target", load(kind, seed), task="classification")
            for kind in KINDS for seed in seeds]  # fmt: skip
