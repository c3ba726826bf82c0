"""Many series as one estimator: a data frame whose columns `by` say which series a row is of."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from smoothfbo.errors import UsageError
from smoothfbo.stream.base import StreamEstimator
from smoothfbo.stream.estimators import StreamClassifier, StreamRegressor
from smoothfbo.stream.frames import as_frame, as_text, is_missing
from smoothfbo.stream.groups.files import VERSION, learners_of
from smoothfbo.stream.groups.keys import SeriesKeys
from smoothfbo.stream.groups.learners import SeriesLearners
from smoothfbo.stream.learner import files
from smoothfbo.stream.learner.learner import Outcome
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.segments import fill_forward, join, segments_of


class _Keyed(NamedTuple):
    """The features of rows, and beside them the columns that say which series they are of."""

    features: np.ndarray
    keys: pa.Table


class _BySeries(StreamEstimator):
    """What the two estimators below have in place of one learner; before `StreamRegressor` among the bases."""

    def __init__(self, by: str | Sequence[str], **options: Any):
        super().__init__(**options)
        self.by = by

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """`by`, and the options of every series, which scikit-learn does not find in the signature above."""
        return super().get_params(deep) | self._options()

    @property
    def series_(self) -> list[Any]:
        """The series so far, in order of appearance: values of the column `by` as text, or tuples of several."""
        self._require_started()
        return [name[0] if isinstance(self.by, str) else name for name in self.keys_.names]

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Any:
        """Go on with further rows of any series, new ones as well; rows of a series must be in the order of time."""
        if sample_weight is not None:
            raise ValueError("Rows of many series have no weights; leave `sample_weight` out.")
        return super().partial_fit(X, y, classes)

    def _can_predict(self, x: Mapping[Any, Any]) -> bool:
        return self._is_started and bool(self._have_targets(self.keys_.known(self._key(x)))[0])

    def _have_targets(self, slots: np.ndarray) -> np.ndarray:
        """Of which of these series, −1 for one that is new, a target is known."""
        return (slots >= 0) & ~np.isnan(self.previous_[slots])

    @property
    def weights(self) -> np.ndarray:
        raise AttributeError("Every series has weights of its own; a StreamRegressor of one series shows them.")

    def _fit(self) -> Any:
        raise AttributeError("Every series has coefficients of its own; a StreamRegressor of one series shows them.")

    def save(self, path: str | Path) -> None:
        """The whole estimator, with all series, in one file of plain arrays."""
        self._require_started()
        header = {
            "format": files.SERIES_FORMAT,
            "version": VERSION,
            "specification": dataclasses.asdict(self.learner_.spec),
            "content": self._described() | {"series": self.keys_.names},
        }
        files.write(Path(path), header, self.learner_.arrays(len(self.keys_.names)) | {"previous": self.previous_})

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """An estimator as it was saved; it resumes as if it had not been interrupted."""
        header, arrays = files.read(Path(path), files.SERIES_FORMAT, VERSION)
        content = header["content"]
        self = cls._restored(path, content)
        chosen: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["specification"].items()}
        try:
            self.learner_, self.previous_ = learners_of(Specification(**chosen), arrays), arrays["previous"]
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{path} has another shape than this program expects: {error}.") from error
        self.keys_ = SeriesKeys(self._by)
        self.keys_.add([tuple(name) for name in content["series"]])
        return self

    @property
    def _by(self) -> tuple[str, ...]:
        names = (self.by,) if isinstance(self.by, str) else tuple(self.by)
        if not names or len(set(names)) < len(names):
            raise ValueError(f"`by` must be a column, or a list of different columns, got {self.by!r}.")
        return names

    def _check(self, weight: np.ndarray | None) -> None:
        if weight is not None:
            raise ValueError("Rows of many series have no weights; leave `w` out.")
        super()._check(None)

    def _checked(self, X: Any) -> Any:
        features, keys = self._split(X)
        return _Keyed(super()._checked(features), keys)

    def _checked_rows(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        features, keys = self._split(X)
        values, y = super()._checked_rows(features, y)
        return _Keyed(values, keys), y

    def _split(self, X: Any) -> tuple[Any, pa.Table]:
        """The columns of features, and those that name the series."""
        X = as_frame(X)
        if not hasattr(X, "columns"):
            raise TypeError(f"Many series need a data frame with {', '.join(self._by)}, got {type(X).__name__}.")
        for name in self._by:
            if name not in X.columns:
                raise ValueError(f"The data frame has no column {name!r}, which says which series a row is of.")
            if X[name].isna().any():
                raise ValueError(f"Column {name!r} has no value in row {int(np.argmax(X[name].isna())) + 1}.")
        keys = pa.table({name: pa.array([as_text(value) for value in X[name]], pa.string()) for name in self._by})
        return X.drop(columns=list(self._by)), keys

    def _key(self, x: Mapping[Any, Any]) -> pa.Table:
        for name in self._by:
            if is_missing(x.get(name)):
                raise ValueError(f"The row has no {name!r}, which says which series it is of, got {dict(x)!r}.")
        return pa.table({name: pa.array([as_text(x[name])]) for name in self._by})

    def _row(self, x: Mapping[Any, Any], learns: bool = False) -> Any:
        features = {name: value for name, value in x.items() if name not in self._by}
        return _Keyed(super()._row(features, learns), self._key(x))

    def _learn(self, X: Any, y: np.ndarray, weight: np.ndarray | None = None) -> None:
        del weight
        if not self._is_started:
            self._start(X.features)
            self.keys_, self.previous_ = SeriesKeys(self._by), np.zeros(0)
        width = self.learner_.spec.features
        if X.features.shape[1] != width:
            raise ValueError(f"X has {X.features.shape[1]} features, but it learnt with {width}.")
        segments = segments_of(self.keys_.of(X.keys))
        more = len(self.keys_.names) - len(self.previous_)
        self.previous_ = np.concatenate([self.previous_, np.full(max(more, 0), np.nan)])
        y = y[segments.order]
        joined = join(segments, np.ones(len(segments.slots), np.int64))
        known = joined.of(self.previous_[segments.slots], y)
        fill_forward(known[:, None], joined.starts)
        self.learner_.process(Rows(X.features[segments.order], y, known[joined.rows - 1]), segments)
        self.previous_[segments.slots] = known[joined.starts[1:] - 1]

    def _one(self, row: Any) -> Any:
        return StreamEstimator._one(self, row)

    def _new_learner(self, spec: Specification) -> Any:
        return SeriesLearners(spec)

    def _outcome(self, X: Any, with_bands: bool = False) -> Outcome:
        """What could come next in every series; of several rows of a series, each could be the next one."""
        slots = self.keys_.known(X.keys)
        if not (is_known := self._have_targets(slots)).all():
            name = ", ".join(column[int(np.argmin(is_known))].as_py() for column in X.keys.columns)
            raise ValueError(f"Nothing was learnt of the series {name!r}; a row with a target must be learnt first.")
        room = self.learner_.spec.rows - self.learner_.kept[slots] % self.learner_.spec.rows
        all = segments_of(slots)
        place = all.in_table_order(np.arange(len(slots)) - np.repeat(all.starts[:-1], all.lengths))
        parts, order = [], []
        for turn in range(int((place // room).max(initial=0)) + 1):  # as many rows as the block that waits has room for
            rows = np.flatnonzero(place // room == turn)
            segments = segments_of(slots[rows])
            chosen = rows[segments.order]
            unknown = np.full(len(chosen), np.nan)
            next_rows = Rows(X.features[chosen], unknown, self.previous_[slots[chosen]])
            parts.append(self.learner_.predict(next_rows, segments, with_bands))
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


class SeriesRegressor(_BySeries, StreamRegressor):
    """Regression on many drifting series at once: a `StreamRegressor` for each of them, learnt together.

    Every series is learnt as if it were alone, to rounding; see `smoothfbo stream --by`. Rows are those of a data
    frame; series may come mixed, and new ones at any time. All options of `StreamRegressor` can be given by name; they
    hold for every series.

    Parameters
    ----------
    by
        The column of the data frame that says which series a row is of, or a list of such columns.

    Attributes
    ----------
    series_
        The series so far.
    learner_
        The learners.
    n_features_in_
        Number of features, without the columns `by`.
    feature_names_in_
        Their names.
    """


class SeriesClassifier(_BySeries, StreamClassifier):
    """Classification on many drifting series at once: a `StreamClassifier` for each of them, learnt together.

    Parameters and attributes are those of `SeriesRegressor`, and `classes_`: the classes of all series so far.
    """
