"""Many series as one estimator: a data frame whose columns `by` say which series a row is of."""

from collections.abc import Sequence
from typing import Any

from smoothfbo.stream.estimators import StreamClassifier, StreamRegressor
from smoothfbo.stream.groups.many import ManySeries


class SeriesRegressor(StreamRegressor):
    """Regression on many drifting series at once: a `StreamRegressor` for each of them, learnt together.

    Every series is learnt as if it were alone, to rounding; see `smoothfbo stream --by`. Rows are those of a data
    frame; series may come mixed, and new ones at any time. All options of `StreamRegressor` can be given by name; they
    hold for every series. Rows have no weights.

    Parameters
    ----------
    by
        The column of the data frame that says which series a row is of, or a list of such columns.

    Attributes
    ----------
    series_
        The series so far, in order of appearance: values of the column `by` as text, or tuples of several.
    learned_
        What was learnt of all series.
    n_features_in_
        Number of features, without the columns `by`.
    feature_names_in_
        Their names.
    """

    _kind = ManySeries

    def __init__(self, by: str | Sequence[str], **options: Any):
        super().__init__(**options)
        self.by = by

    @property
    def series_(self) -> list[Any]:
        """The series so far, in order of appearance: values of the column `by` as text, or tuples of several."""
        return _names(self)


class SeriesClassifier(StreamClassifier):
    """Classification on many drifting series at once: a `StreamClassifier` for each of them, learnt together.

    Parameters and attributes are those of `SeriesRegressor`, and `classes_`: the classes of all series so far.
    """

    _kind = ManySeries

    def __init__(self, by: str | Sequence[str], **options: Any):
        super().__init__(**options)
        self.by = by

    @property
    def series_(self) -> list[Any]:
        """The series so far, in order of appearance: values of the column `by` as text, or tuples of several."""
        return _names(self)


def _names(estimator: SeriesRegressor | SeriesClassifier) -> list[Any]:
    estimator._require_started()
    return [name[0] if isinstance(estimator.by, str) else name for name in estimator.learned_.keys.names]
