"""What the learners of many series have learnt: a row of numbers for each, with room for the classes it has had."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

from smoothfbo.stream.groups.batch import LANES, batch_of
from smoothfbo.stream.learner.packing import packed
from smoothfbo.stream.learner.precision import double_precision
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import with_more_outputs


class SeriesStates:
    """The states of all series, in slots 0, 1, …; `spec` is that of a series that has learnt nothing.

    - `outputs`: of every series. It has more of them once a further class has come in this series, whatever comes in
      others.
    - `numbers`: a row for each series, packed; a series with fewer outputs than others uses only the first of them.
    """

    def __init__(self, spec: Specification):
        self.spec = spec
        self.outputs = np.zeros(0, np.int64)
        self.numbers = np.zeros((0, _length(spec)))
        self.classes = spec.outputs + 1  # that the longest rows have room for; see `make_room_for_classes`

    def spec_of(self, outputs: int) -> Specification:
        """That of a series with so many outputs."""
        return dataclasses.replace(self.spec, outputs=outputs)

    def make_room(self, series: int) -> None:
        """States that have learnt nothing, for at least so many series; room doubles, so that it is rarely made."""
        self.numbers = batch_of(self.spec).packing.with_room(self.numbers, series)
        more = len(self.numbers) - len(self.outputs)
        self.outputs = np.concatenate([self.outputs, np.full(more, self.spec.outputs)])

    def make_room_for_classes(self, classes: int) -> None:
        """Longer rows, if they are needed. No series has more outputs by that, so no prediction changes."""
        spec = self.spec.with_classes(classes)
        if spec.outputs >= self.classes:
            more = _length(spec) - self.numbers.shape[1]
            self.numbers, self.classes = np.pad(self.numbers, ((0, 0), (0, more))), spec.outputs + 1

    def of(self, slots: np.ndarray, outputs: int) -> np.ndarray:
        """A batch: the states of these series, which all have so many outputs; lanes that are left are new ones."""
        return batch_of(self.spec_of(outputs)).packing.gathered(self.numbers, slots, LANES)

    def put(self, slots: np.ndarray, batch: np.ndarray) -> None:
        self.numbers[slots, : batch.shape[1]] = batch[: len(slots)]

    def widen(self, slots: np.ndarray, classes: np.ndarray) -> None:
        """Outputs for so many classes of each of these series, which fit into a batch; what was learnt stays."""
        before = self.outputs[slots]
        after = np.array([self.spec.with_classes(count).outputs for count in classes.tolist()])
        for old, new in np.unique(np.stack([before, after]), axis=1).T.tolist():
            here = slots[(before == old) & (after == new)]
            self.put(here, _widening(self.spec_of(old), self.spec_of(new))(self.of(here, old)))
            self.outputs[here] = new


def _length(spec: Specification) -> int:
    return len(batch_of(spec).packing.initial)


@functools.lru_cache(maxsize=32)
def _widening(old: Specification, new: Specification) -> Callable[[np.ndarray], np.ndarray]:
    """A compiled function from a batch of states of one specification to states of one with more outputs."""
    packing, rounds = batch_of(old).packing, batch_of(new).rounds
    call = jax.jit(jax.vmap(lambda numbers: packed(with_more_outputs(packing.unpacked(numbers), rounds.init()))))

    def widen(batch: np.ndarray) -> np.ndarray:
        with double_precision():
            return np.asarray(call(batch))

    return widen
