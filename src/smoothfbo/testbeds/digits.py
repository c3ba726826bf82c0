"""Handwritten digits: the data of `RotatingCorruption`."""

from functools import cache

import numpy as np


@cache
def digits(components: int) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits: principal components with mean square 1, and labels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "RotatingCorruption uses the digits of scikit-learn: pip install 'smoothfbo[experiments]'."
        ) from error
    pixels, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    centred = pixels - pixels.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    vectors = vectors[:, np.argsort(-values)[:components]]
    vectors = vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(components)])  # one of two signs
    reduced = centred @ vectors
    return reduced / np.sqrt(np.mean(reduced**2)), labels
