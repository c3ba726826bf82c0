"""What hands out the data of a round: a function, a recording, or something with a state of its own."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.problem import Data, Problem, check_data


class AbstractStream(eqx.Module):
    """A source of data with a state of its own: a data window, a replay buffer, an environment.

    A stream without state is simply a function `(round, key) -> Data`; a recorded one is a `Data` whose
    arrays have a leading axis over rounds. `run` takes all three.
    """

    @abstractmethod
    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        """The stream's first state, and an example of the data of one round."""

    @abstractmethod
    def __call__(
        self, state: PyTree, round: Int[Array, ""], key: PRNGKeyArray, learner: Any
    ) -> tuple[PyTree, Any, Problem | None]:
        """The next state, the data of this round, and the problem of this round (None: the usual one).

        `learner` is the `State` of the algorithm before the round, for streams that depend on what was learnt.
        """


class FunctionStream(AbstractStream):
    """A stream given by a function `(round, key) -> data`; `key` is fresh in every round."""

    function: Callable[[Int[Array, ""], PRNGKeyArray], Any]

    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        return (), self.function(jnp.zeros((), jnp.int32), jax.random.fold_in(key, 0))

    def __call__(
        self, state: PyTree, round: Int[Array, ""], key: PRNGKeyArray, learner: Any
    ) -> tuple[PyTree, Any, Problem | None]:
        del learner
        return state, self.function(round, key), None


class RecordedStream(AbstractStream):
    """A stream given by arrays whose first axis is the round."""

    data: Any

    def __init__(self, data: Any):
        self.data = checks.as_arrays(data)
        lengths = {path: jnp.shape(leaf)[:1] for path, leaf in checks.named_leaves(self.data, "data")}
        if len(set(lengths.values())) != 1 or () in lengths.values():
            raise ValueError(f"All arrays of a recorded stream need the same number of rounds, got {lengths}.")
        if isinstance(data, Data):
            check_data(jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), self.data))

    @property
    def rounds(self) -> int:
        return jax.tree.leaves(self.data)[0].shape[0]

    def init(self, key: PRNGKeyArray) -> tuple[PyTree, Any]:
        del key
        return (), jax.tree.map(lambda leaf: leaf[0], self.data)

    def __call__(
        self, state: PyTree, round: Int[Array, ""], key: PRNGKeyArray, learner: Any
    ) -> tuple[PyTree, Any, Problem | None]:
        del key, learner

        def row(leaf: Array) -> Array:
            value = jax.lax.dynamic_index_in_dim(leaf, round, keepdims=False)
            # Past the end (possible where the round is traced) there is nothing: not a number, so it is skipped.
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                return value
            return jnp.where(round < self.rounds, value, jnp.asarray(jnp.nan, leaf.dtype))

        return state, jax.tree.map(row, self.data), None


def as_stream(stream: Any) -> AbstractStream:
    if isinstance(stream, AbstractStream):
        return stream
    if callable(stream):
        return FunctionStream(stream)
    if jax.tree.leaves(stream) and all(hasattr(leaf, "shape") for leaf in jax.tree.leaves(stream)):
        return RecordedStream(stream)
    raise TypeError(
        "stream must be a function (round, key) -> Data, a Data whose arrays have a leading axis over rounds, "
        f"or an AbstractStream; got {stream!r}."
    )
