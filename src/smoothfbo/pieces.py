"""Many rounds: in one compiled scan, in pieces of one compiled program, or over data that come from outside."""

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.compiled import one_step, split
from smoothfbo.source import AbstractSource, IterableSource, RecordedSource, Round, next_round
from smoothfbo.states import RunState
from smoothfbo.views.progress import progress_bar

Record = Callable[[Any, Any], Any]
Pieces = Iterator[tuple[RunState, Any]]  # the state after each piece, and its trace in NumPy

PIECES = 100  # of a run whose pieces have no given size
MAPPED_BYTES = 2**26  # that are read from a memory map at once
AHEAD = 2  # live rounds that may wait for the device


@dataclass(frozen=True)
class Plan:
    """How many rounds to run, and what happens between pieces of them."""

    rounds: int | None
    every: int | None
    callback: Callable[[RunState, Any], Any] | None
    progress: bool

    def __post_init__(self) -> None:
        if self.every is not None:
            checks.require_integer(self.every, "every", 1)
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback must be a function of state and trace, got {self.callback!r}.")

    @property
    def is_whole(self) -> bool:
        """Whether nothing happens before the end."""
        return self.every is None and self.callback is None and not self.progress

    @property
    def size(self) -> int:
        """Rounds of a piece."""
        return self.every or (PIECES if self.rounds is None else -(-self.rounds // PIECES))

    def counts(self) -> Iterator[int]:
        """Rounds of each piece."""
        for done in range(0, self.rounds or 0, self.size):
            yield min(self.size, (self.rounds or 0) - done)

    def carry_out(self, pieces: Pieces) -> tuple[RunState, Any]:
        """All pieces, or as many as the callback wants: the state after the last one, and their traces as one."""
        state, traces = None, []
        with progress_bar(self.rounds, shown=self.progress) as advance:
            for state, trace in pieces:
                traces.append(trace)
                advance(len(jax.tree.leaves(trace)[0]) if jax.tree.leaves(trace) else self.size)
                stop = None if self.callback is None else self.callback(state, trace)
                if stop is not None and bool(stop):
                    break
        if state is None:
            raise ValueError("the iterable of rounds is empty, or used up; at least one round is needed.")
        return state, jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), *traces)


@eqx.filter_jit
def scan(algorithm: Any, source: AbstractSource, state: RunState, rounds: int, record: Record) -> tuple[RunState, Any]:
    """All rounds at once."""
    return jax.lax.scan(lambda state, _: _one_round(algorithm, source, state, record), state, length=rounds)


def in_pieces(
    algorithm: Any,
    source: AbstractSource | IterableSource,
    first: Round | None,
    state: RunState,
    plan: Plan,
    record: Record,
) -> tuple[RunState, Any]:
    """Piece by piece, in the way that the source needs; `first` is a round of an iterable that was fetched already."""
    if not checks.is_concrete((algorithm, source, state)):
        raise TypeError(
            "every, callback, progress, iterables and memory maps work on values, so such a run cannot be traced by "
            "jit or vmap; there, run all rounds of a function or of recorded data at once."
        )
    if isinstance(source, IterableSource):
        return plan.carry_out(_live(algorithm, source, first, state, plan, record))
    if isinstance(source, RecordedSource) and source.is_mapped:
        return plan.carry_out(_mapped(algorithm, source, state, plan, record))
    return plan.carry_out(_compiled(algorithm, source, state, plan, record))


def _compiled(algorithm: Any, source: AbstractSource, state: RunState, plan: Plan, record: Record) -> Pieces:
    """The rounds of a source that JAX can call, piece by piece."""
    for count in plan.counts():
        state, trace = _piece(algorithm, source, state, jnp.asarray(count, jnp.int32), plan.size, record)
        yield state, _first_rows(trace, count)


def _mapped(algorithm: Any, source: RecordedSource, state: RunState, plan: Plan, record: Record) -> Pieces:
    """The rounds of a memory map; only those of a piece are read, when it is its turn."""
    if plan.is_whole:
        of_a_round = sum(leaf.nbytes for leaf in jax.tree.leaves(source.data)) // source.rounds
        plan = replace(plan, every=min(plan.rounds or 1, max(1, MAPPED_BYTES // max(1, of_a_round))))
    for count in plan.counts():
        first = int(state.learner.round)
        window = _Window(_read(source.data, first, count, plan.size), jnp.asarray(first, jnp.int32))
        state, trace = _piece(algorithm, window, state, jnp.asarray(count, jnp.int32), plan.size, record)
        yield state, _first_rows(trace, count)


def _live(
    algorithm: Any, source: IterableSource, first: Round | None, state: RunState, plan: Plan, record: Record
) -> Generator[tuple[RunState, Any], None, None]:
    """The rounds of an iterable, each by the same compiled step.

    A call of the step returns before the device is done, so the next round is fetched meanwhile. Where a round or the
    iterable fails, or the user interrupts it, a callback gets the rounds before that.
    """
    parts = split((algorithm, None, record))
    learner, records, done = state.learner, [], 0
    current = source.next() if first is None else first
    while current is not None:
        static, arrays = parts if current.problem is None else split((algorithm, current.problem, record))
        failure = None
        try:
            learner, kept = one_step(static, arrays, learner, current.data)
            records.append(kept)
            done += 1
            if len(records) > AHEAD:  # one number of that round is enough to wait for
                jax.block_until_ready(jax.tree.leaves(records[-1 - AHEAD])[:1])
            ends = done == plan.rounds
            current = None if ends or len(records) == plan.size else source.next()
        except BaseException as error:  # what was learnt up to here is handed on first
            failure, ends, current = error, True, None
        if current is None:
            if records:
                yield state._replace(learner=learner), _stacked(records)
            if failure is not None:
                raise failure
            records = []
            current = None if ends else source.next()
    if plan.rounds is not None and done < plan.rounds:
        warnings.warn(f"the iterable ended after {done} of rounds={plan.rounds} rounds.", stacklevel=4)


def _one_round(algorithm: Any, source: AbstractSource, state: RunState, record: Record) -> tuple[RunState, Any]:
    index = state.learner.round
    key = jax.random.fold_in(jax.random.wrap_key_data(state.key), index)
    source_state, (data, problem) = next_round(source, state.source, index, state.learner, key)
    learner, info = algorithm.step(state.learner, data, problem)
    return RunState(learner, source_state, state.key), record(learner, info)


@eqx.filter_jit
def _piece(
    algorithm: Any, source: AbstractSource, state: RunState, count: Int[Array, ""], size: int, record: Record
) -> tuple[RunState, Any]:
    """`count` rounds, and a trace with room for `size` of them: one program for full pieces and for the last one."""
    shapes = jax.eval_shape(lambda state: _one_round(algorithm, source, state, record)[1], state)
    rows = jax.tree.map(lambda leaf: jnp.zeros((size, *leaf.shape), leaf.dtype), shapes)

    def one(index: Int[Array, ""], carry: tuple[RunState, Any]) -> tuple[RunState, Any]:
        state, rows = carry
        state, kept = _one_round(algorithm, source, state, record)
        write = jax.lax.dynamic_update_index_in_dim
        return state, jax.tree.map(lambda rows, row: write(rows, jnp.asarray(row), index, 0), rows, kept)

    return jax.lax.fori_loop(0, count, one, (state, rows))


class _Window(AbstractSource):
    """Some rounds of a recording, from `first` on."""

    data: Any
    first: Int[Array, ""]

    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        del key
        return (), jax.tree.map(lambda leaf: leaf[0], self.data)

    def __call__(self, state: PyTree, round: Int[Array, ""], learner: Any, key: PRNGKeyArray) -> tuple[PyTree, Round]:
        del learner, key
        index = round - self.first
        row = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), self.data)
        return state, Round(row)


def _read(data: PyTree, first: int, count: int, size: int) -> PyTree[Array]:
    """`count` rounds from `first` on, with repetitions of the last one up to `size`."""

    def rows(leaf: Any) -> np.ndarray:
        part = np.array(leaf[first : first + count])
        return np.concatenate([part, np.repeat(part[-1:], size - count, axis=0)])

    return checks.as_arrays(jax.tree.map(rows, data))


def _first_rows(trace: PyTree, count: int) -> PyTree[np.ndarray]:
    return jax.tree.map(lambda leaf: leaf[:count], jax.device_get(trace))


def _stacked(records: Sequence[PyTree]) -> PyTree[np.ndarray]:
    return jax.tree.map(lambda *rows: np.stack(rows), *jax.device_get(list(records)))
