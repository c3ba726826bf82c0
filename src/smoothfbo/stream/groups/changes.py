"""Where did the data of each series change? `ChangeDetector`, for many series at once."""

import math

import numpy as np

from smoothfbo.stream.learner.changes import LOOK_BACK, RECENT, SURPRISE

BLOCKS_BEFORE = 8  # blocks before one, whose mean loss it is compared with
FIELDS = ("block", "highest", "highest_at", "lowest", "quiet", "losses")


class ChangeDetectors:
    """One detector for each series, in arrays; `lowest` is NaN while a change is looked for."""

    def __init__(self) -> None:
        self.block, self.highest, self.highest_at = np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64)
        self.lowest, self.quiet = np.zeros(0), np.zeros(0, np.int64)
        self.losses = np.zeros((0, LOOK_BACK))  # of the last blocks, newest last

    def make_room(self, series: int) -> None:
        more = series - len(self.block)
        start = {"lowest": 1.0, "quiet": LOOK_BACK, "losses": np.nan}
        for name in FIELDS if more > 0 else ():
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full((more, *old.shape[1:]), start.get(name, 0), old.dtype)]))

    def update(self, slots: np.ndarray, memory: np.ndarray, loss: np.ndarray) -> np.ndarray:
        """One block more of each of these series, all different; the block of a change that now shows, or −1."""
        block = self.block[slots]
        self.block[slots] += 1
        losses = np.concatenate([self.losses[slots, 1:], loss[:, None]], axis=1)
        self.losses[slots] = losses
        quiet = np.maximum(self.quiet[slots] - 1, 0)
        lowest, highest, highest_at = self.lowest[slots], self.highest[slots], self.highest_at[slots]

        surprised = quiet == 0
        surprised[surprised] = _surprise(losses[surprised]) > SURPRISE
        is_low = ~surprised & ~np.isnan(lowest)
        lowest[is_low] = np.minimum(lowest, memory)[is_low]
        still_low = is_low & (memory < 4 * np.where(is_low, lowest, np.inf))
        rises = is_low & ~still_low
        lowest[rises], highest[rises] = np.nan, 0.0
        looking = ~surprised & ~still_low
        higher = looking & (memory > highest)
        highest[higher], highest_at[higher] = memory[higher], block[higher]
        fallen = looking & (memory <= highest / 4)
        highest_at[surprised] = block[surprised] - RECENT
        found = surprised | fallen
        lowest[found], quiet[found] = memory[found], LOOK_BACK

        self.quiet[slots], self.lowest[slots] = quiet, lowest
        self.highest[slots], self.highest_at[slots] = highest, highest_at
        places = np.full(len(slots), -1)
        places[found] = _steepest(losses[found], block[found], highest_at[found])
        return places


def _surprise(losses: np.ndarray) -> np.ndarray:
    """How far the newest losses are above the ones before, in standard deviations of a mean of as many."""
    offset = losses[:, :-RECENT].mean(axis=1, keepdims=True)
    values = np.log(losses + np.where(offset > 0, offset, 1))
    before, now = values[:, :-RECENT], values[:, -RECENT:]
    spread = np.maximum(before.std(axis=1) / math.sqrt(RECENT), 1e-3)
    return np.where(offset[:, 0] > 0, (now.mean(axis=1) - before.mean(axis=1)) / spread, 0.0)


def _steepest(losses: np.ndarray, block: np.ndarray, highest_at: np.ndarray) -> np.ndarray:
    """The block, since the memory was highest, whose loss rose most above the mean of the eight before it."""
    floor = np.maximum(losses, 1e-300)  # NaN where there was no block yet
    numbers = block[:, None] - np.arange(LOOK_BACK)[::-1]
    before = np.pad(floor, ((0, 0), (BLOCKS_BEFORE, 0)), constant_values=np.nan)[:, :-1]
    windows = np.lib.stride_tricks.sliding_window_view(before, BLOCKS_BEFORE, axis=1)
    rows, past = np.sum(~np.isnan(windows), axis=2), np.nansum(windows, axis=2)
    is_candidate = (numbers >= highest_at[:, None] - 1) & (rows > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rises = np.where(is_candidate, np.log(floor * rows / past), -np.inf)
    return np.where(is_candidate.any(axis=1), numbers[np.arange(len(block)), np.argmax(rises, axis=1)], block)
