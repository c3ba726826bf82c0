"""What hands out the data of a round: a function, a recording, or something with a state of its own."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from smoothfbo import checks, traps
from smoothfbo.errors import renamed_attributes
from smoothfbo.problem import Problem
from smoothfbo.samples import Data, Samples, check_data, map_samples

_NEEDS_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


class Round(NamedTuple):
    """What a source hands out: the data of a round, and its problem where the losses change (None: the usual one)."""

    data: Any
    problem: Problem | None = None


class AbstractSource(eqx.Module):
    """A source of data with a state of its own: a data window, a replay buffer, an environment.

    A source without state is simply a function `(round, key)` that returns `Data`, or a `Round` of data and problem;
    a recorded one is a `Data` whose arrays have a leading axis over rounds. `run` takes all three.
    """

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        """The source's first state, and an example of the data of one round."""

    @abstractmethod
    def __call__(self, state: PyTree, round: Int[Array, ""], learner: Any, key: PRNGKeyArray) -> tuple[PyTree, Round]:
        """The next state, and the data and problem of this round; `key` is fresh in every round.

        `learner` is the `State` of the algorithm before the round, for sources that depend on what was learnt.
        """


class FunctionSource(AbstractSource):
    """A source given by a function `(round, key)` that returns data, or a `Round`; `key` is fresh in every round."""

    function: Callable[[Int[Array, ""], PRNGKeyArray], Any]

    def __check_init__(self) -> None:
        checks.require_arguments(self.function, "source", "round", "key")

    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        first = self._round(jnp.zeros((), jnp.int32), jax.random.fold_in(key, 0)).data
        traps.check_source(self.function, key)  # where it is traced: once for a source
        return (), first

    def __call__(self, state: PyTree, round: Int[Array, ""], learner: Any, key: PRNGKeyArray) -> tuple[PyTree, Round]:
        del learner
        return state, self._round(round, key)

    def _round(self, round: Int[Array, ""], key: PRNGKeyArray) -> Round:
        try:
            value = self.function(round, key)
        except _NEEDS_VALUES as error:
            raise TypeError(
                "source needs the value of the round or of the key, which are known only when the compiled run gets "
                "there: index JAX arrays, jnp.asarray(array)[round], in place of NumPy arrays and lists, and write "
                "jnp.where in place of if."
            ) from error
        checks.require_numbers(value, "data")
        return value if isinstance(value, Round) else Round(value)


class RepeatedSource(AbstractSource):
    """The same data in every round: a fixed data set, of which estimators draw mini-batches of their own."""

    data: Any

    def __init__(self, data: Any):
        self.data = checks.as_arrays(data)

    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        del key
        return (), self.data

    def __call__(self, state: PyTree, round: Int[Array, ""], learner: Any, key: PRNGKeyArray) -> tuple[PyTree, Round]:
        del round, learner, key
        return state, Round(self.data)


class RecordedSource(AbstractSource):
    """A source given by arrays whose first axis is the round.

    Memory maps stay on disk: `run` reads them piece by piece, and checks the first round instead of all.
    """

    data: Any

    def __init__(self, data: Any):
        is_mapped = any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(data))
        self.data = data if is_mapped else checks.as_arrays(data)
        if isinstance(data, Data):
            _require_rounds(self.data)
        lengths = {path: jnp.shape(leaf)[:1] for path, leaf in checks.named_leaves(self.data, "data")}
        if len(set(lengths.values())) != 1 or () in lengths.values():
            raise ValueError(f"All arrays of a recorded source need the same number of rounds, got {lengths}.")
        if isinstance(data, Data) and not is_mapped:
            check_data(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.data))

    @property
    def rounds(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def is_mapped(self) -> bool:
        """Whether the data stay on disk."""
        return any(isinstance(leaf, np.memmap) for leaf in jax.tree.leaves(self.data))

    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        del key
        first = checks.as_arrays(jax.tree.map(lambda leaf: leaf[0], self.data))
        return (), first if self.is_mapped else self._ending(first, True)

    def __call__(self, state: PyTree, round: Int[Array, ""], learner: Any, key: PRNGKeyArray) -> tuple[PyTree, Round]:
        del key, learner

        def row(leaf: Array) -> Array:
            value = jax.lax.dynamic_index_in_dim(leaf, round, keepdims=False)
            # Past the end (possible where the round is traced) there is nothing: not a number, so it is skipped.
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                return value
            return jnp.where(round < self.rounds, value, jnp.asarray(jnp.nan, leaf.dtype))

        return state, Round(self._ending(jax.tree.map(row, self.data), round < self.rounds))

    def _ending(self, data: Any, is_there: Any) -> Any:
        """Integers have no NaN: where a round has nothing else, its samples have weights, which are 0 past the end."""
        leaves = jax.tree.leaves(data)
        if not isinstance(data, Data) or any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
            return data

        def ending(samples: Samples) -> Samples:
            weight = jnp.ones(samples.size, bool) if samples.weight is None else samples.weight
            return samples._replace(weight=jnp.where(is_there, weight, jnp.zeros_like(weight)))

        return map_samples(ending, data)


def _require_rounds(data: Data, name: str = "data") -> None:
    """Raise if there is no axis over rounds before that over samples: one batch is easily taken for a recording."""
    for part, samples in {f"{name}.inner": data.inner, f"{name}.outer": data.outer}.items():
        forms = {path: jnp.shape(leaf) for path, leaf in checks.named_leaves(samples, part)}
        if len({form[1:2] for form in forms.values()}) > 1 or any(len(form) < 2 for form in forms.values()):
            raise ValueError(
                f"Arrays of a recorded source need an axis over rounds and then one over samples, got {forms}; "
                "for the same batch in every round pass smoothfbo.RepeatedSource(data)."
            )
    if data.final is not None:
        _require_rounds(data.final, f"{name}.final")


class IterableSource:
    """Rounds that come from outside, one by one: `Data` or `Round`s of an iterable. Each is fetched when it is due.

    Arrays are copied to the device: what a generator writes into its buffer afterwards changes nothing.
    """

    def __init__(self, rounds: Iterable[Any]):
        self._rounds = iter(rounds)

    def first(self) -> Round:
        """The next round, which must exist."""
        found = self.next()
        if found is None:
            raise ValueError("the iterable of rounds is empty, or used up; at least one round is needed.")
        return found

    def next(self) -> Round | None:
        """None at the end."""
        for value in self._rounds:
            data, problem = value if isinstance(value, Round) else Round(value)
            checks.require_numbers(data, "data")
            return Round(jax.device_put(jax.tree.map(_copied, data)), problem)  # all arrays at once
        return None


def _copied(leaf: Any) -> Any:
    """A copy of an array, a number, or a tensor of another library (through DLPack), in a dtype that JAX has."""
    if isinstance(leaf, jax.Array):
        return leaf
    if hasattr(leaf, "__dlpack__") and not isinstance(leaf, np.ndarray):
        if leaf.__dlpack_device__()[0] != 1:  # not kDLCPU: it is on a device
            return jnp.array(jnp.from_dlpack(leaf))
        leaf = np.from_dlpack(leaf)
        checks.require_numbers(leaf, "data")
    return np.array(leaf, jnp.result_type(leaf))


class RoundNumbers(AbstractSource):
    """The data of a round are its number: all that a hypergradient needs that is known exactly."""

    def init(self, key: PRNGKeyArray) -> tuple[tuple[()], Int[Array, ""]]:
        del key
        return (), jnp.zeros((), jnp.int32)

    def __call__(
        self, state: tuple[()], round: Int[Array, ""], learner: Any, key: PRNGKeyArray
    ) -> tuple[tuple[()], Round]:
        del learner, key
        return state, Round(round)


def as_source(source: Any) -> AbstractSource | IterableSource:
    """What `run` takes, as a source."""
    if isinstance(source, (AbstractSource, IterableSource)):
        return source
    if callable(source):
        return FunctionSource(source)
    if isinstance(source, (list, Iterator)) or _is_loader(source):
        return IterableSource(source)
    if jax.tree.leaves(source) and all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(source)):
        return RecordedSource(source)
    raise TypeError(
        "source must be a function (round, key) -> Data, a Data whose arrays have a leading axis over rounds, "
        f"an iterable of Data, or an AbstractSource; got {source!r}."
    )


def _is_loader(source: Any) -> bool:
    """Whether it is an iterable and not a pytree of arrays, such as a PyTorch DataLoader."""
    if isinstance(source, (str, bytes)) or hasattr(source, "shape") or not isinstance(source, Iterable):
        return False
    return [id(leaf) for leaf in jax.tree.leaves(source)] == [id(source)]


def next_round(
    source: AbstractSource, state: PyTree, round: Int[Array, ""], learner: Any, key: PRNGKeyArray
) -> tuple[PyTree, Round]:
    """Call a source, and say so if it does not return what it should."""
    result = source(state, round, learner, key)
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Round)):
        got = tuple(type(part).__name__ for part in result) if isinstance(result, tuple) else type(result).__name__
        raise TypeError(
            f"{type(source).__name__}(state, round, learner, key) must return (state, Round(data, problem)), got {got}."
        )
    return result


__getattr__ = renamed_attributes(
    __name__,
    {
        "AbstractStream": "AbstractSource",
        "FunctionStream": "FunctionSource",
        "RecordedStream": "RecordedSource",
        "as_stream": "as_source",
    },
)
