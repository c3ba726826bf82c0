"""What an estimator has learnt of many series: a learner for each of them."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from smoothfbo.errors import UsageError
from smoothfbo.stream.frames import as_text, is_missing
from smoothfbo.stream.groups.files import VERSION, learners_of
from smoothfbo.stream.groups.keys import SeriesKeys
from smoothfbo.stream.groups.learners import SeriesLearners
from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import fill_forward, join, segments_of
from smoothfbo.stream.series import AbstractSeries, KeyedRows


class ManySeries(AbstractSeries):
    """Rows are told apart by the columns `by`; series may come mixed, and new ones at any time."""

    learners: SeriesLearners
    previous: np.ndarray  # the last target that is known, of every series

    def __init__(self, by: str | Sequence[str]):
        self.by = (by,) if isinstance(by, str) else tuple(by)
        if not self.by or len(set(self.by)) < len(self.by):
            raise ValueError(f"`by` must be a column, or a list of different columns, got {by!r}.")
        self.keys, self.previous = SeriesKeys(self.by), np.zeros(0)

    def split(self, frame: Any) -> tuple[Any, pa.Table]:
        if not hasattr(frame, "columns"):
            raise TypeError(f"Many series need a data frame with {', '.join(self.by)}, got {type(frame).__name__}.")
        for name in self.by:
            if name not in frame.columns:
                raise ValueError(f"The data frame has no column {name!r}, which says which series a row is of.")
            if frame[name].isna().any():
                raise ValueError(f"Column {name!r} has no value in row {int(np.argmax(frame[name].isna())) + 1}.")
        keys = pa.table({name: pa.array([as_text(value) for value in frame[name]], pa.string()) for name in self.by})
        return frame.drop(columns=list(self.by)), keys

    def split_row(self, x: Mapping[Any, Any]) -> tuple[Mapping[Any, Any], pa.Table]:
        for name in self.by:
            if is_missing(x.get(name)):
                raise ValueError(f"The row has no {name!r}, which says which series it is of, got {dict(x)!r}.")
        keys = pa.table({name: pa.array([as_text(x[name])]) for name in self.by})
        return {name: value for name, value in x.items() if name not in self.by}, keys

    def check_weights(self, weights: np.ndarray | None, name: str) -> None:
        if weights is not None:
            raise ValueError(f"Rows of many series have no weights; leave `{name}` out.")

    def start(self, spec: Specification) -> None:
        self.learners = SeriesLearners(spec)

    @property
    def spec(self) -> Specification:
        return self.learners.spec

    @property
    def has_target(self) -> bool:
        return not np.isnan(self.previous).all()

    def can_predict(self, keys: pa.Table) -> bool:
        return bool(self._have_targets(self.keys.known(keys))[0])

    def _have_targets(self, slots: np.ndarray) -> np.ndarray:
        """Of which of these series, −1 for one that is new, a target is known."""
        return (slots >= 0) & ~np.isnan(self.previous[slots])

    def learn(self, rows: KeyedRows, y: np.ndarray, weights: np.ndarray | None) -> None:
        self.check_weights(weights, "weights")
        segments = segments_of(self.keys.of(rows.keys))
        more = len(self.keys.names) - len(self.previous)
        self.previous = np.concatenate([self.previous, np.full(max(more, 0), np.nan)])
        y = y[segments.order]
        joined = join(segments, np.ones(len(segments.slots), np.int64))
        known = joined.of(self.previous[segments.slots], y)
        fill_forward(known[:, None], joined.starts)
        self.learners.process(Rows(rows.features[segments.order], y, known[joined.rows - 1]), segments)
        self.previous[segments.slots] = known[joined.starts[1:] - 1]

    def predict(self, rows: KeyedRows, with_bands: bool = False) -> Outcome:
        """What could come next in every series; of several rows of a series, each could be the next one."""
        slots = self.keys.known(rows.keys)
        if not (is_known := self._have_targets(slots)).all():
            name = ", ".join(column[int(np.argmin(is_known))].as_py() for column in rows.keys.columns)
            raise ValueError(f"Nothing was learnt of the series {name!r}; a row with a target must be learnt first.")
        room = self.spec.rows - self.learners.kept[slots] % self.spec.rows
        all = segments_of(slots)
        place = all.in_table_order(np.arange(len(slots)) - np.repeat(all.starts[:-1], all.lengths))
        parts, order = [], []
        for turn in range(int((place // room).max(initial=0)) + 1):  # as many rows as the block that waits has room for
            turned = np.flatnonzero(place // room == turn)
            segments = segments_of(slots[turned])
            chosen = turned[segments.order]
            unknown = np.full(len(chosen), np.nan)
            next_rows = Rows(rows.features[chosen], unknown, self.previous[slots[chosen]])
            parts.append(self.learners.predict(next_rows, segments, with_bands))
            order.append(chosen)
        back = np.argsort(np.concatenate(order))
        first = parts[0]
        return Outcome(
            np.concatenate([part.predictions for part in parts], axis=1)[:, back],
            np.concatenate([part.scores for part in parts])[back],
            first.weights,
            first.effects,
            first.finite,
            None if first.bands is None else np.concatenate([part.bands for part in parts])[back],
        )

    def weights(self) -> NoReturn:
        raise AttributeError("Every series has weights of its own; a StreamRegressor of one series shows them.")

    def linear_fit(self) -> NoReturn:
        raise AttributeError("Every series has coefficients of its own; a StreamRegressor of one series shows them.")

    def save(self, path: Path, content: dict[str, Any]) -> None:
        header = {
            "format": files.SERIES_FORMAT,
            "version": VERSION,
            "specification": dataclasses.asdict(self.spec),
            "content": content | {"series": self.keys.names},
        }
        files.write(path, header, self.learners.arrays(len(self.keys.names)) | {"previous": self.previous})

    @classmethod
    def load(cls, path: Path) -> tuple[Any, dict[str, Any]]:
        header, arrays = files.read(path, files.SERIES_FORMAT, VERSION)
        content = header["content"]
        chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["specification"].items()}
        self = cls(content["parameters"]["by"])
        try:
            self.learners, self.previous = learners_of(Specification(**chosen), arrays), arrays["previous"]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path} has another shape than this program expects: {error}.") from error
        self.keys.add([tuple(name) for name in content["series"]])
        return self, content
