"""What the tests of the stream product share: rows for a learner, and a sink that keeps what a run writes."""

import numpy as np
import pandas as pd

from smoothfbo.stream.rows import Rows


def as_rows(x, y):
    """Rows of which each is predicted when the target of the one before is known."""
    return Rows(x, y, np.concatenate([[np.nan], y])[: len(y)])


class KeptTables:
    """A sink that keeps all tables in memory."""

    def __init__(self):
        self.tables = {"predictions": [], "blocks": []}

    def predictions(self, table):
        self.tables["predictions"].append(table.to_pandas())

    def blocks(self, table):
        self.tables["blocks"].append(table.to_pandas())

    def frame(self, name="predictions"):
        return pd.concat(self.tables[name], ignore_index=True)
