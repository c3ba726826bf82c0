"""The stream learner on streams that nothing was chosen on: river's own generators, against eight of river's models.

    python -m benchmarks.stream_unseen        # benchmarks/results/stream_unseen.json

Every method predicts a row before its target is used, from the same features, on the first 2,000 rows.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.stream import RIVER_ROWS, geometric, measure_river, measure_table, with_river
from benchmarks.stream_tables import Table

SEED = 11


def _rows(name: str, **options: Any) -> Callable[[], Any]:
    def load() -> Any:
        import pandas as pd
        from river.datasets import synth

        generator = getattr(synth, name)(**options)
        return pd.DataFrame(
            [{f"x{key}": value for key, value in x.items()} | {"y": y} for x, y in generator.take(2_000)]
        )

    return load


def tables() -> list[Table]:
    classes: dict[str, dict[str, Any]] = {
        "Agrawal": {"classification_function": 4, "seed": SEED},
        "SEA": {"variant": 2, "noise": 0.1, "seed": SEED},
        "LEDDrift": {"noise_percentage": 0.1, "irrelevant_features": True, "n_drift_features": 4, "seed": SEED},
        "RandomRBFDrift": {
            "n_classes": 4, "n_features": 8, "n_centroids": 20, "change_speed": 0.001, "n_drift_centroids": 10,
            "seed_model": SEED, "seed_sample": SEED,
        },
        "RandomTree": {
            "n_classes": 3, "n_num_features": 6, "n_cat_features": 0, "seed_tree": SEED, "seed_sample": SEED,
        },
        "Waveform": {"seed": SEED},
        "Sine": {"classification_function": 2, "seed": SEED},
        "Hyperplane": {"n_features": 8, "mag_change": 0.01, "seed": SEED},
        "Mixed": {"seed": SEED},
    }  # fmt: skip
    numbers: dict[str, dict[str, Any]] = {
        "Friedman": {"seed": SEED},
        "FriedmanDrift": {"drift_type": "lea", "position": (500, 1_000, 1_500), "seed": SEED},
        "Mv": {"seed": SEED},
        "Planes2D": {"seed": SEED},
    }
    return [Table(name, "y", _rows(name, **options), task="classification") for name, options in classes.items()] + [
        Table(name, "y", _rows(name, **options)) for name, options in numbers.items()
    ]


def run() -> measure.Result:
    cases = []
    with tempfile.TemporaryDirectory() as name:
        for table in tables():
            case = measure_table(table, "unseen", RIVER_ROWS, Path(name))
            case = with_river(case, measure_river(table, Path(name))["errors"])
            cases.append({key: value for key, value in case.items() if "resampled" not in key})
            print(
                table.name,
                f"{case['ratio']:.3f} of {case['best']}, {case['ratio_to_river']:.3f} of",
                case["river_best"],
            )
    lines = []
    for task in ("classification", "regression"):
        found = [case for case in cases if case["task"] == task]
        for reference, key in (("best fixed expert", "ratio"), ("best of eight river models", "ratio_to_river")):
            ratios = [case[key] for case in found]
            what = f"{len(found)} generators, {task} (range over them)"
            lines.append(
                measure.Ratio(what, "SmoothFBO", reference, geometric(ratios), min(ratios), max(ratios), "≤ 1.0")
            )
    return measure.Result(lines, cases)


def main() -> None:
    from benchmarks.__main__ import show

    begin = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - begin
    measure.write("stream_unseen", result, command="python -m benchmarks.stream_unseen", seconds=seconds)
    show("stream_unseen", result)


if __name__ == "__main__":
    main()
