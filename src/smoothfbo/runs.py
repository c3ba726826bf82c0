"""Many rounds: start a run, continue it, and say at its end what went wrong."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from smoothfbo import checks, pieces, traps
from smoothfbo.compiled import Static, run_once, split
from smoothfbo.errors import refuse_keywords
from smoothfbo.online import Online, key_data
from smoothfbo.source import AbstractSource, IterableSource, RecordedSource, as_source
from smoothfbo.states import Info, RunState, State


def without_vectors(state: State, info: Info) -> Info:
    """What `run` records of a round by default: everything but the two gradient vectors."""
    del state
    return info._replace(gradient=None, smoothed=None)


def start(algorithm: Online, source: Any, outer: PyTree, key: PRNGKeyArray) -> RunState:
    """The state of a run before its first round."""
    source = as_source(source)
    if isinstance(source, IterableSource):
        raise TypeError("start would use up the first round of an iterable; give run outer and key instead.")
    init = source.init if _is_mapped(source) else lambda key: _init_source(*split(source), key)
    return _start(algorithm, init, outer, key)


def run(
    algorithm: Online,
    source: Any = None,
    outer: PyTree = None,
    *,
    rounds: int | None = None,
    key: PRNGKeyArray | None = None,
    state: RunState | None = None,
    record: Callable[[State, Info], Any] = without_vectors,
    every: int | None = None,
    callback: Callable[[RunState, Any], Any] | None = None,
    progress: bool = False,
    **old: Any,
) -> tuple[RunState, Any]:
    """Take the algorithm through `rounds` rounds. Returns the final state, whose λ is `state.learner.outer`, and the
    trace (records stacked over rounds).

    Start with `outer` and `key`, or continue with the `state` that an earlier call returned: a run in pieces
    gives the same bits as one run, and a short run is a prefix of a long one. `record` takes the state after the
    round and its `Info` and returns what to keep of them; what it leaves out is not computed.

    The source is a function `(round, key)`, a `Data` whose arrays have a leading axis over rounds, or an
    `AbstractSource`: all rounds are then one compiled scan, and `run` can be vmapped over keys and over every number of
    the algorithm, the source and `outer`. Without `rounds`, a recorded source is run to its end.

    **Long runs.** With `every`, `callback` or `progress` the rounds are called in pieces of `every` rounds (about a
    hundred pieces by default), all by one compiled program, also the last, shorter one. After each piece
    `callback(state, trace)` gets the state and the trace of that piece; a true value ends the run. `progress` shows a
    bar with speed and remaining time. Pieces cannot be traced by `jit` or `vmap`.

    **Live data.** The source may also be an iterable of rounds: a generator, a list of `Data`, a PyTorch DataLoader.
    Every round then calls the same compiled step, and while the device computes it the next round is fetched. A round
    is fetched when it is its turn, so nothing is lost when the run ends. It runs to the end of the iterable, or for
    `rounds` rounds; if it ends earlier there is a warning. Arrays of NumPy, and tensors that support DLPack, are copied
    to the device. Where the iterable or a round fails, or Ctrl-C ends the wait for one, `callback` gets the state and
    the trace of the rounds before, and then the error is raised. Recorded arrays that are memory maps are read piece by
    piece.
    """
    refuse_keywords("run", old, {"stream": "source"})
    source = as_source(source)
    if state is not None and not isinstance(state, RunState):
        raise TypeError(f"state must be the RunState that run or start returned, got a {type(state).__name__}.")
    if not callable(record):
        raise TypeError(f"record must be a function of state and info, got {record!r}.")
    if (state is None) == (key is None):
        raise ValueError("run needs either outer and key, to start, or state, to continue.")
    if state is None and outer is None:
        raise ValueError("run needs outer, the initial outer variable, to start.")
    rounds = _rounds_left(source, 0 if state is None else state.learner.round, rounds)
    first = None
    if state is None and isinstance(source, IterableSource):
        first = source.first()
        state = _start(algorithm, lambda _: ((), first.data), outer, key)  # pyright: ignore[reportOptionalMemberAccess]
    elif state is None:
        state = start(algorithm, source, outer, key)  # pyright: ignore[reportArgumentType]
    plan = pieces.Plan(rounds, every, callback, progress)
    if plan.is_whole and rounds is not None and isinstance(source, AbstractSource) and not _is_mapped(source):
        final, trace = pieces.scan(algorithm, source, state, rounds, record)
    else:
        final, trace = pieces.in_pieces(algorithm, source, first, state, plan, record)
    _warn_after_run(state.learner, final.learner, trace)
    return final, trace


def _rounds_left(source: AbstractSource | IterableSource, done: Any, rounds: int | None) -> int | None:
    """How many rounds to run: what was asked for, or what a recorded source has left."""
    if rounds is not None:
        checks.require_integer(rounds, "rounds", 1)
    if isinstance(source, RecordedSource) and checks.is_concrete(done):
        left = source.rounds - int(done)
        if rounds is None and left > 0:
            return left
        if left < (rounds or 1):
            raise ValueError(f"rounds={rounds} after {done} rounds done, but the recorded source has {source.rounds}.")
    if rounds is None and not isinstance(source, IterableSource):
        raise ValueError(f"run needs rounds: a {type(source).__name__} has no end.")
    return rounds


def _start(algorithm: Online, init: Callable[[Any], tuple[Any, Any]], outer: PyTree, key: Any) -> RunState:
    checks.require_key(key, "key")
    key_learner, key_source, key_first = jax.random.split(key, 3)
    source_state, example = init(key_first)
    return RunState(algorithm.init(outer, example, key_learner), source_state, key_data(key_source))


def _warn_after_run(before: State, after: State, trace: Any) -> None:
    """What deserves a sentence at the end of a run."""
    oscillating = jnp.zeros((), jnp.int32)
    if before.monitor is not None and after.monitor is not None:
        oscillating = after.monitor.oscillating - before.monitor.oscillating
    norms = (trace.gradient_norm, trace.implicit_norm) if isinstance(trace, Info) else (None, None)
    are_known = all(norm is not None for norm in norms)
    traps.warn_after_run(
        after.round - before.round, after.skipped - before.skipped, oscillating, norms if are_known else None
    )


def _is_mapped(source: AbstractSource) -> bool:
    return isinstance(source, RecordedSource) and source.is_mapped


@partial(run_once, static_argnums=0)  # one program in place of one for each operation
def _init_source(static: Static, arrays: list[Any], key: PRNGKeyArray) -> tuple[PyTree, Any]:
    return static.join(arrays).init(key)
