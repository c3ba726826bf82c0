"""What is used of scikit-learn, or one sentence that says how to install it."""

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight as check_sample_weight
    from sklearn.utils.validation import check_X_y, validate_data
except ImportError as error:
    raise ImportError(
        "StreamRegressor and StreamClassifier need scikit-learn 1.6: pip install 'smoothfbo[experiments]'."
    ) from error

__all__ = [
    "BaseEstimator",
    "ClassifierMixin",
    "NotFittedError",
    "RegressorMixin",
    "check_X_y",
    "check_classification_targets",
    "check_sample_weight",
    "validate_data",
]
