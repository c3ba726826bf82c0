"""Where did the data change? Read off the learned memory: it collapses when the past no longer helps."""

import math
from collections import deque
from typing import Any

import numpy as np

LOOK_BACK = 64  # blocks
RECENT = 3  # blocks whose error is compared with that of the ones before
SURPRISE = 6.0


def effective_memory(weights: np.ndarray, blocks: int) -> float:
    """Blocks that the weights look back: the geometric mean exp(Σ_k w_k log m_k), m_k = min(2^k, blocks so far)."""
    available = max(blocks, 1)
    memories = [min(2.0**k, available) for k in range(len(weights) - 1)] + [available]
    return float(np.exp(weights @ np.log(memories)))


def effective_memories(weights: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """`effective_memory` of many blocks; `blocks` says how many came before each."""
    available = np.maximum(blocks, 1.0)[:, None]
    longest = np.append(2.0 ** np.arange(weights.shape[1] - 1), np.inf)
    return np.exp(np.sum(weights * np.log(np.minimum(longest, available)), axis=1))


class ChangeDetector:
    """A change is reported when the past no longer helps, or when the error jumps.

    - The memory has fallen to a quarter of the highest value it had since the last change. The next one of this kind is
      looked for once the memory has grown again to four times the lowest value after this one.
    - The error of the last three blocks is `SURPRISE` standard deviations above that of the blocks before them; a short
      memory need not fall when the data jump. Then there is quiet for `LOOK_BACK` blocks.

    The place of a change is the block whose loss rose most above the mean of the eight before it.
    """

    def __init__(self) -> None:
        self.block = 0
        self.highest, self.highest_at = 0.0, 0
        self.lowest: float | None = 1.0  # since the last change; None while a change is looked for
        self.quiet = LOOK_BACK  # blocks until a surprise may count again
        self.losses: deque[float] = deque(maxlen=LOOK_BACK)

    def update(self, memory: float, loss: float) -> int | None:
        """One block more: the memory used for it and its mean loss; returns the block of a change that now shows."""
        block, self.block = self.block, self.block + 1
        self.losses.append(loss)
        self.quiet = max(self.quiet - 1, 0)
        if self.quiet == 0 and self._surprise() > SURPRISE:
            self.quiet, self.lowest, self.highest_at = LOOK_BACK, memory, block - RECENT
            return self._steepest(block)
        if self.lowest is not None:
            self.lowest = min(self.lowest, memory)
            if memory < 4 * self.lowest:
                return None
            self.lowest, self.highest = None, 0.0
        if memory > self.highest:
            self.highest, self.highest_at = memory, block
        if memory > self.highest / 4:
            return None
        self.lowest, self.quiet = memory, LOOK_BACK
        return self._steepest(block)

    def _surprise(self) -> float:
        """How far the newest losses are above the ones before, in standard deviations of a mean of as many.

        Of log(loss + mean): a block without an error has a loss of zero, and one bad block is not a change.
        """
        losses, count = np.array(self.losses), len(self.losses) - RECENT
        offset = losses[:count].sum() / count
        if not offset > 0:
            return 0.0
        values = np.log(losses + offset)
        before = values[:count]
        mean = before.sum() / count
        away = before - mean
        spread = max(math.sqrt(away @ away / (count * RECENT)), 1e-3)
        return float((values[count:].sum() / RECENT - mean) / spread)

    def _steepest(self, block: int) -> int:
        first = block - len(self.losses) + 1
        losses = np.maximum(np.array(self.losses), 1e-300)
        rises = {}
        for at in range(max(self.highest_at - 1, first + 1), block + 1):
            before = losses[max(at - first - 8, 0) : at - first]
            rises[at] = math.log(losses[at - first] / before.mean())
        return max(rises, key=rises.__getitem__) if rises else block

    def state(self) -> dict[str, Any]:
        return {**vars(self), "losses": list(self.losses)}

    def restore(self, state: dict[str, Any]) -> None:
        self.block, self.lowest = state["block"], state["lowest"]
        self.highest, self.highest_at, self.quiet = state["highest"], state["highest_at"], state["quiet"]
        self.losses = deque(state["losses"], maxlen=LOOK_BACK)
