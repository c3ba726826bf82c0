"""What comes of rows: predictions, and what is known of the blocks that became full."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import BlockResult


class Outcome(NamedTuple):
    """What came of rows, and of the blocks that became full.

    - `predictions`: methods × rows; SmoothFBO, then the references.
    - `scores`: rows × classes, the probabilities of SmoothFBO; the number in regression.
    - `weights`: blocks × rates, the w_k that were used for a block.
    - `effects`: blocks × features, of the linear fit that was used for a block; see `BlockResult`.
    - `finite`: per block, whether the round was finite.
    - `bands`: rows × levels × 2, where 50, 80 and 95 % of the targets lie; NaN before the first one is known, None for
      classes.
    """

    predictions: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    effects: np.ndarray
    finite: np.ndarray
    bands: np.ndarray | None = None


class Piece(NamedTuple):
    """What came of one call of the compiled program, which may still run, and how many rows it predicted."""

    result: BlockResult
    rows: int

    @property
    def predictions(self) -> np.ndarray:
        """Methods × rows."""
        found = np.asarray(self.result.predictions)
        return found.swapaxes(0, 1).reshape(found.shape[1], -1)[:, : self.rows]

    def until(self, row: int, other: "Piece") -> "Piece":
        """The first rows of this piece, of one block, and the others of another one, which may have more classes."""
        (earlier, before), (later, after) = self._of_block, other._of_block
        before = np.pad(before, ((0, 0), (0, after.shape[1] - before.shape[1])))
        predictions = np.concatenate([earlier[:, :row], later[:, row:]], axis=1)
        scores = np.concatenate([before[:row], after[row:]])
        return Piece(other.result._replace(predictions=predictions[None], scores=scores[None]), self.rows)

    @property
    def _of_block(self) -> tuple[np.ndarray, np.ndarray]:
        """Predictions (methods × rows) and scores (rows × classes) of the first block."""
        return np.asarray(self.result.predictions[0]), np.asarray(self.result.scores[0])


class Processed(NamedTuple):
    """What came of rows: pieces, of the first one the rows to skip, full blocks, and the targets of the others."""

    pieces: list[Piece]
    skip: int
    full: int
    targets: np.ndarray

    @property
    def numbers(self) -> Iterator[np.ndarray]:
        """The predictions of SmoothFBO, piece by piece."""
        return (piece.predictions[0, self.skip if i == 0 else 0 :] for i, piece in enumerate(self.pieces))


def outcome_of(spec: Specification, pieces: list[Piece], skip: int, full: int) -> Outcome:
    """What came of the pieces, without the first `skip` rows and all but the first `full` blocks."""
    methods = 1 + len(spec.reference_names)
    predictions: list[Any] = [np.zeros((methods, 0))]
    scores: list[Any] = []
    weights: list[Any] = [np.zeros((0, spec.rates))]
    effects: list[Any] = [np.zeros((0, 0 if spec.is_network else spec.features))]
    finite: list[Any] = []
    width = spec.outputs + 1 if spec.is_classification else 1
    for piece in pieces:
        rows, result = piece.rows, jax.tree.map(np.asarray, piece.result)
        predictions.append(piece.predictions)
        part = result.scores.reshape(-1, result.scores.shape[-1])[:rows]
        scores.append(np.pad(part, ((0, 0), (0, width - part.shape[1]))))
        blocks = rows // spec.rows
        weights.append(result.weights[:blocks])
        effects.append(result.effects[:blocks])
        finite.append(result.finite[:blocks])
    return Outcome(
        np.concatenate(predictions, axis=1)[:, skip:],
        np.concatenate([np.zeros((0, width)), *scores])[skip:],
        np.concatenate(weights)[:full],
        np.concatenate(effects)[:full],
        np.concatenate([np.zeros(0, bool), *finite])[:full],
    )
