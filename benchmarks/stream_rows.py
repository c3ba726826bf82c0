"""Microseconds for one row of `StreamRegressor` and of river's linear regression, in one process.

    python -m benchmarks.stream_rows

All learn 10 numeric features row by row: predict_one, then learn_one. Averages over blocks of 16 rows, because the fit
changes once a block; of 400 blocks the one that is slower than a tenth of them, because other work on the machine only
slows them down. What is compiled is compiled before.
"""

import json
import time
from typing import Any

import numpy as np

FEATURES, BLOCK, ROWS = 10, 16, 6_400


def rows(count: int) -> list[tuple[dict[str, float], float]]:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, FEATURES))
    y = x @ np.arange(FEATURES) + random.normal(size=count)
    return [
        ({f"x{i}": value for i, value in enumerate(row)}, target)
        for row, target in zip(x.tolist(), y.tolist(), strict=True)
    ]


def measure(model: Any) -> dict[str, float]:
    """Microseconds per call."""
    data = rows(2 * ROWS)
    for x, y in data[:ROWS]:
        model.predict_one(x)
        model.learn_one(x, y)
    spent: dict[str, list[float]] = {"predict_one": [], "learn_one": []}
    for block in range(ROWS, 2 * ROWS, BLOCK):
        predicting = learning = 0.0
        for x, y in data[block : block + BLOCK]:
            start = time.perf_counter()
            model.predict_one(x)
            middle = time.perf_counter()
            model.learn_one(x, y)
            predicting, learning = predicting + middle - start, learning + time.perf_counter() - middle
        spent["predict_one"].append(predicting)
        spent["learn_one"].append(learning)
    return {name: 1e6 * float(np.quantile(seconds, 0.1)) / BLOCK for name, seconds in spent.items()}


def main() -> None:
    from river import linear_model, preprocessing

    from smoothfbo import StreamRegressor

    models = {
        "StreamRegressor": StreamRegressor(),
        "river: linear regression": linear_model.LinearRegression(),
        "river: standardised linear regression": preprocessing.StandardScaler() | linear_model.LinearRegression(),
    }
    found = {name: measure(model) for name, model in models.items()}
    print(json.dumps({"microseconds": found}, indent=2))


if __name__ == "__main__":
    main()
