"""What is written of a run: one row per input row, and one row per block."""

import numpy as np
import pyarrow as pa

from smoothfbo.stream.learner.changes import effective_memories
from smoothfbo.stream.learner.outcome import Outcome
from smoothfbo.stream.learner.specification import LEVELS
from smoothfbo.stream.reading import Encoder
from smoothfbo.stream.rows import Rows
from smoothfbo.stream.session import Session


def prediction_table(session: Session, start: int, encoded: Rows, time: pa.Array | None, outcome: Outcome) -> pa.Table:
    """`row` (from 1), the time if there is one, `target`, `prediction`, its bands, the prediction of every reference.

    The bands are `low_80` and `high_80`, between which 80 % of the targets lie, and so on; narrow ones first.
    """
    rows = len(encoded.target)
    columns: dict[str, pa.Array] = {"row": pa.array(np.arange(start + 1, start + rows + 1))}
    if time is not None:
        columns["time"] = time
    columns["target"] = target_values(session.encoder, encoded.target)
    for name, values in zip(session.methods, outcome.predictions, strict=True):
        columns["prediction" if name == "smoothfbo" else name] = target_values(session.encoder, values)
        if name == "smoothfbo" and outcome.bands is not None:
            columns |= {k: pa.array(edge, from_pandas=True) for k, edge in band_columns(outcome.bands).items()}
    if session.schema.is_classification:
        shares = probabilities(encoded.target, outcome.scores)
        columns |= {name: pa.array(values, from_pandas=True) for name, values in shares.items()}
    return pa.table(columns)


def band_columns(bands: np.ndarray) -> dict[str, np.ndarray]:
    """low_50, high_50, low_80, …"""
    sides = enumerate(("low", "high"))
    edges = [(f"{edge}_{100 * level:.0f}", bands[:, i, side]) for side, edge in sides for i, level in enumerate(LEVELS)]
    return dict(sorted(edges, key=lambda pair: pair[0].rpartition("_")[2]))


def probabilities(target: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Of the class that is predicted, and of the one that came; 0 for a class that was not known."""
    truth, width = np.where(np.isnan(target), 0, target).astype(int), scores.shape[1]
    share = scores[np.arange(len(target)), np.minimum(truth, width - 1)]
    share = np.where(np.isnan(target), np.nan, np.where(truth >= width, 0, share))
    return {"probability": scores.max(axis=1), "probability_of_target": share}


def target_values(encoder: Encoder, values: np.ndarray) -> pa.Array:
    """Numbers; in classification the names of the classes. Missing is null."""
    if not encoder.schema.is_classification:
        return pa.array(values, from_pandas=True)
    index = pa.array(values, pa.float64(), from_pandas=True).cast(pa.int32())
    # A class that the learner has made room for and that has not appeared is never the best.
    return pa.array(encoder.classes, pa.string()).take(index)


class BlockRecords:
    """Puts the losses of rows together to blocks, and looks for changes."""

    def __init__(self, session: Session):
        self.session = session

    def add(self, start: int, target: np.ndarray, outcome: Outcome) -> pa.Table | None:
        """The blocks that became full with these rows, as a table; None if there are none."""
        session, block = self.session, self.session.config.rows_per_block
        losses, known = session.losses(target, outcome.predictions)
        full = len(outcome.weights)
        # Where the blocks end, counted in these rows.
        ends = (start // block + 1) * block - start + block * np.arange(full)
        sums, counts = self._by_block(losses, ends), self._by_block(known[None].astype(float), ends)[0]
        if full:
            first = np.array(session.pending_loss[:-1])
            sums[:, 0] += first
            counts[0] += session.pending_loss[-1]
        last = int(ends[-1]) if full else 0
        rest = losses[:, last:].sum(axis=1)
        old = np.zeros(len(rest)) if full else np.array(session.pending_loss[:-1])
        session.pending_loss = [
            *(old + rest).tolist(),
            int(known[last:].sum()) + (0 if full else session.pending_loss[-1]),
        ]
        if not full:
            return None
        means = sums / np.maximum(counts, 1)
        return self._table(outcome, means, counts)

    def _by_block(self, values: np.ndarray, ends: np.ndarray) -> np.ndarray:
        if not len(ends):
            return values[:, :0]
        return np.add.reduceat(values[:, : ends[-1]], np.concatenate([[0], ends[:-1]]), axis=1)

    def _table(self, outcome: Outcome, means: np.ndarray, counts: np.ndarray) -> pa.Table:
        session = self.session
        block = session.config.rows_per_block
        numbers = np.arange(session.blocks, session.blocks + len(counts))
        delay = session.learner.spec.delay  # the losses of a block are known so much later
        memories = effective_memories(outcome.weights, numbers)
        for number, memory, loss in zip(numbers.tolist(), memories.tolist(), means[0].tolist(), strict=True):
            place = session.detector.update(memory, loss)
            if place is not None:
                session.changes.append({"row": place * block + 1, "block": place, "seen_in_block": number + delay})
        session.blocks += len(counts)
        columns = {
            "block": numbers,
            "first_row": numbers * block + 1,
            "known": counts.astype(np.int64),
            "memory": memories,
            "finite": outcome.finite,
        }
        columns |= {f"effect_{k}": outcome.effects[:, k] for k in range(outcome.effects.shape[1])}
        columns |= {f"weight_{k}": outcome.weights[:, k] for k in range(outcome.weights.shape[1])}
        columns |= {f"loss_{name}": means[i] for i, name in enumerate(session.methods)}
        return pa.table({name: pa.array(values) for name, values in columns.items()})
