"""Where did the data change? Read off the learned memory: it collapses when the past no longer helps."""

import math
from collections import deque
from typing import Any

import numpy as np

LOOK_BACK = 64  # blocks


def effective_memory(weights: np.ndarray, blocks: int) -> float:
    """Blocks that the weights look back: the geometric mean exp(Σ_k w_k log m_k), m_k = min(2^k, blocks so far)."""
    available = max(blocks, 1)
    memories = [min(2.0**k, available) for k in range(len(weights) - 1)] + [available]
    return float(np.exp(weights @ np.log(memories)))


class ChangeDetector:
    """A change is reported when the memory has fallen to a quarter of the highest value it had since the last change.

    The next one is looked for once the memory has grown again to four times the lowest value after this one. The place
    of a change is the block whose loss rose most above the mean of the eight before it, among the blocks since the
    memory was highest.
    """

    def __init__(self) -> None:
        self.block = 0
        self.highest, self.highest_at = 0.0, 0
        self.lowest: float | None = 1.0  # since the last change; None while a change is looked for
        self.losses: deque[float] = deque(maxlen=LOOK_BACK)

    def update(self, memory: float, loss: float) -> int | None:
        """One block more: the memory used for it and its mean loss; returns the block of a change that now shows."""
        block, self.block = self.block, self.block + 1
        self.losses.append(loss)
        if self.lowest is not None:
            self.lowest = min(self.lowest, memory)
            if memory < 4 * self.lowest:
                return None
            self.lowest, self.highest = None, 0.0
        if memory > self.highest:
            self.highest, self.highest_at = memory, block
        if memory > self.highest / 4:
            return None
        self.lowest = memory
        return self._steepest(block)

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
        self.highest, self.highest_at = state["highest"], state["highest_at"]
        self.losses = deque(state["losses"], maxlen=LOOK_BACK)
