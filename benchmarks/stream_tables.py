"""Real tables for the stream benchmark, in their own order, and which of them were used for development.

All come with scikit-learn, statsmodels or river, but for the electricity table (Harries 1999), whose CSV file is given.
The split was fixed before any method was compared: `HELD_OUT` tables were run once, at the end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Table:
    """`load` gives a pandas frame; `extra_lags` is the season, where one is known beforehand."""

    name: str
    target: str
    load: Callable[[], Any]
    extra_lags: tuple[int, ...] = ()
    task: str = "regression"
    ignore: tuple[str, ...] = ()


def _river(name: str) -> Callable[[], Any]:
    def load() -> Any:
        import pandas as pd
        from river import datasets

        rows = [{**x, "target": y} for x, y in getattr(datasets, name)()]
        frame = pd.DataFrame(rows)
        return frame.drop(columns=[c for c in frame if str(frame[c].dtype).startswith("datetime")])

    return load


def _solar_flares() -> Any:
    """The number of common flares within a day."""
    import pandas as pd
    from river import datasets

    return pd.DataFrame([{**x, "target": y["c-class-flares"]} for x, y in datasets.SolarFlare()])


def _sp500() -> Any:
    import gzip
    from importlib.resources import files

    import pandas as pd

    with gzip.open(str(files("river.datasets") / "sp500.csv.gz")) as file:
        return pd.read_csv(file)


def _statsmodels(name: str, prepare: Callable[[Any], Any] = lambda frame: frame) -> Callable[[], Any]:
    def load() -> Any:
        import statsmodels.datasets

        return prepare(getattr(statsmodels.datasets, name).load_pandas().data)

    return load


def _sklearn(name: str) -> Callable[[], Any]:
    def load() -> Any:
        import sklearn.datasets

        data = getattr(sklearn.datasets, f"load_{name}")(as_frame=True)
        return data.frame

    return load


def _months(frame: Any) -> Any:
    """El Niño: one row a year becomes one row a month."""
    import pandas as pd

    values = frame.drop(columns="YEAR").to_numpy().ravel()
    return pd.DataFrame({"temperature": values})


def _inflation(frame: Any) -> Any:
    return frame[["infl", "tbilrate", "unemp"]]


def _growth(frame: Any) -> Any:
    import numpy as np

    columns = ["realgdp", "realcons", "realinv", "m1", "cpi"]
    rates = 100 * np.log(frame[columns]).diff().iloc[1:]
    # The target of a row is the same quarter's growth; the other columns are those of the quarter before.
    others = [column for column in columns if column != "realgdp"]
    rates[others] = rates[others].shift(1)
    rates["unemp"] = frame["unemp"].shift(1)
    return rates.iloc[1:]


def _electricity(path: Path, first: int = 0) -> Callable[[], Any]:
    def load() -> Any:
        import pandas as pd

        return pd.read_csv(path).iloc[first:]

    return load


def development(electricity: Path | None) -> list[Table]:
    """Tables on which rules and constants were chosen."""
    tables = [
        Table("trump approval", "target", _river("TrumpApproval")),
        Table("water flow", "target", _river("WaterFlow"), (24, 168)),
        Table("airline passengers", "target", _river("AirlinePassengers"), (12,)),
        Table("CO2", "co2", _statsmodels("co2"), (52,)),
        Table("inflation", "infl", _statsmodels("macrodata", _inflation)),
        Table("phishing", "target", _river("Phishing"), task="classification"),
        Table("bananas", "target", _river("Bananas"), task="classification"),
        Table("sunspots", "SUNACTIVITY", _statsmodels("sunspots"), (11,), ignore=("YEAR",)),
        Table("voters: age", "age", _statsmodels("anes96")),
        Table("voters: vote", "vote", _statsmodels("anes96"), task="classification"),
        Table("school scores", "NABOVE", _statsmodels("star98"), ignore=("NBELOW",)),
        Table("solar flares", "target", _solar_flares),
    ]
    if electricity is not None:
        tables += [
            Table("electricity: nswprice", "nswprice", _electricity(electricity), (48,)),
            Table("electricity: nswdemand", "nswdemand", _electricity(electricity), (48,)),
            Table("electricity: class", "class", _electricity(electricity), (48,), task="classification"),
            Table("electricity: nswprice, later", "nswprice", _electricity(electricity, 6_000), (48,)),
            Table("electricity: class, later", "class", _electricity(electricity, 6_000), (48,), task="classification"),
        ]
    return tables


def held_out(electricity: Path | None) -> list[Table]:
    """Tables that were run once, when everything had been chosen."""
    tables = [
        Table("El Niño", "temperature", _statsmodels("elnino", _months), (12,)),
        Table("GDP growth", "realgdp", _statsmodels("macrodata", _growth)),
        Table("Nile", "volume", _statsmodels("nile"), ignore=("year",)),
        Table("doctor visits", "mdvis", _statsmodels("randhie")),
        Table("affairs", "affairs", _statsmodels("fair")),
        Table("chick weights", "target", _river("ChickWeights")),
        Table("S&P 500", "next_day_return", _sp500, ignore=("date",)),
        Table("diabetes", "target", _sklearn("diabetes")),
        Table("image segments", "target", _river("ImageSegments"), task="classification"),
        Table("shuttle", "target", _river("Shuttle"), task="classification"),
        Table("digits", "target", _sklearn("digits"), task="classification"),
        Table("breast cancer", "target", _sklearn("breast_cancer"), task="classification"),
    ]
    if electricity is not None:
        tables += [
            # These columns are constant in the first 17,424 rows.
            Table("electricity: vicprice", "vicprice", _electricity(electricity, 18_000), (48,)),
            Table("electricity: vicdemand", "vicdemand", _electricity(electricity, 18_000), (48,)),
            Table("electricity: transfer", "transfer", _electricity(electricity, 18_000), (48,)),
        ]
    return tables
