"""Bands around the predictions of many series, row by row in each: `intervals.add_row` under `vmap`."""

import functools
from concurrent.futures import Executor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from smoothfbo.stream.groups.packing import Packing, packed
from smoothfbo.stream.learner.intervals import EDGES, add_row, empty_intervals, nested_bands
from smoothfbo.stream.learner.precision import double_precision
from smoothfbo.stream.segments import Segments

LANES = 256  # series of a batch; always as many, so that a series has the same bits in whatever batch it is
ROWS = 32  # of each series, at most, in one call


class BandProgram:
    """What the next rows of `LANES` series make of the states of their bands."""

    def __init__(self, horizon: int):
        self.packing = Packing(lambda: empty_intervals(horizon))
        self.advance = jax.jit(self._advance, donate_argnums=0)

    def _advance(
        self,
        states: Float[Array, "lanes numbers"],
        predictions: Float[Array, "rows lanes"],
        targets: Float[Array, "rows lanes"],
        counts: Int[Array, " lanes"],
        longest: Int[Array, ""],
    ) -> tuple[Float[Array, "lanes numbers"], Float[Array, "rows lanes edges"]]:
        """The first rows of each lane, as many as `counts` says, one after the other."""

        def one(row: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
            old, edges = carry
            new, here = jax.vmap(add_row)(old, predictions[row], targets[row])

            def chosen(new: Array, old: Array) -> Array:
                return jnp.where(jnp.expand_dims(row < counts, tuple(range(1, new.ndim))), new, old)

            return jax.tree.map(chosen, new, old), edges.at[row].set(here)

        start = jax.vmap(self.packing.unpacked)(states), jnp.zeros((*targets.shape, len(EDGES)))
        intervals, edges = jax.lax.fori_loop(0, longest, one, start)
        return jax.vmap(packed)(intervals), edges


@functools.lru_cache(maxsize=8)
def band_program(horizon: int) -> BandProgram:
    return BandProgram(horizon)


class SeriesBands:
    """The state of the bands of every series."""

    def __init__(self, horizon: int):
        self.horizon = horizon
        self.states = np.zeros((0, len(self.program.packing.initial)))

    @property
    def program(self) -> BandProgram:
        """Not kept here, because a compiled program can be neither copied nor pickled."""
        return band_program(self.horizon)

    def add(
        self, predictions: np.ndarray, targets: np.ndarray, segments: Segments, workers: Executor, keep: bool = True
    ) -> np.ndarray:
        """Bands of rows, series by series: rows × levels × 2. They are kept unless the rows were only predicted."""
        if segments.slots[-1] >= len(self.states):
            self.states = self.program.packing.with_room(self.states, int(segments.slots[-1]) + 1)
        edges = np.empty((len(targets), len(EDGES)))
        longest_first = np.argsort(-segments.lengths, kind="stable")
        batches = [longest_first[at : at + LANES] for at in range(0, len(longest_first), LANES)]

        def run(lanes: np.ndarray) -> None:
            slots, lengths = segments.slots[lanes], segments.lengths[lanes]
            states: Any = self.program.packing.gathered(self.states, slots, LANES)
            for done in range(0, int(lengths[0]), ROWS):
                counts = np.zeros(LANES, np.int32)
                counts[: len(lanes)] = np.clip(lengths - done, 0, ROWS)
                within = np.arange(ROWS)[:, None]
                is_row = within < counts
                places = np.where(is_row, np.resize(segments.starts[lanes], LANES) + done + within, 0)
                with double_precision():
                    called = predictions[places], targets[places], counts, np.int32(counts.max())
                    states, found = self.program.advance(states, *called)
                edges[places[is_row]] = np.asarray(found)[is_row]
            if keep:
                self.states[slots] = np.asarray(states)[: len(lanes)]

        list(workers.map(run, batches))
        return nested_bands(edges)
