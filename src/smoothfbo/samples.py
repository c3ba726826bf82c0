"""The data of a round: samples for the inner and the outer problem, their weights, and padding that never counts."""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from smoothfbo import checks


class Samples(NamedTuple):
    """Inputs and targets: two pytrees whose arrays share their first axis, one entry a sample.

    `weight` optionally holds one number w_i ≥ 0 per sample. Every mean is then Σ w_i ℓ_i / Σ w_i, and mini-batches are
    drawn with probability w_i / Σ w. A sample of weight 0 counts nowhere, whatever it holds: a mask of booleans marks
    padding (see `smoothfbo.pad`), and draws the same mini-batches as the samples without it.
    """

    x: PyTree
    y: PyTree
    weight: Any = None

    @property
    def size(self) -> int:
        return jax.tree.leaves((self.x, self.y))[0].shape[0]

    def mean(self, values: Float[Array, " samples"]) -> Float[Array, ""]:
        """Σ w_i v_i / Σ w_i; NaN where all weights are zero."""
        if self.weight is None:
            return jnp.mean(values)
        return jnp.sum(self.weighted(values)) / self.total(values.dtype)

    def weighted(self, values: PyTree) -> PyTree:
        """w_i v_i for arrays with one entry a sample; NaN where all weights are zero: nothing to learn from."""
        if self.weight is None:
            return values
        weight = self.weight

        def times(leaf: Array) -> Array:
            number = jnp.where(jnp.any(weight.astype(bool)), weight.astype(leaf.dtype), jnp.nan)
            return leaf * _broadcastable(number, leaf)

        return jax.tree.map(times, values)

    def total(self, dtype: Any) -> Float[Array, ""] | int:
        """Σ w_i, or the number of samples."""
        return self.size if self.weight is None else jnp.sum(self.weight.astype(dtype))

    def minibatch(self, size: int | None, key: PRNGKeyArray) -> "Samples":
        """`size` samples drawn independently with replacement; all of them if `size` is None.

        Row i has probability w_i / Σ w, so the plain mean of a mini-batch has the weighted mean as its expectation.
        """
        if size is None:
            return self
        if self.weight is None:
            rows = jax.random.randint(key, (size,), 0, self.size)
            return jax.tree.map(lambda leaf: leaf[rows], self)
        rows = _draw(self.weight, size, key)
        batch = jax.tree.map(lambda leaf: leaf[rows], self)
        # All True, unless there is nothing to draw from.
        return batch._replace(weight=batch.weight.astype(bool) & jnp.all(jnp.isfinite(self.weight)))

    def without_padding(self) -> "Samples":
        """The same with every row of weight 0 replaced by one that counts.

        A padded row may hold anything, also NaN, and 0 · NaN is NaN, also in derivatives. This makes it harmless.
        Weights below 0 are none, so then nothing counts, and the round is skipped.
        """
        if self.weight is None or jnp.shape(self.weight) != (self.size,):
            return self  # what is no weight is refused by `check_data`
        counts = self.weight.astype(bool)
        first = jnp.argmax(counts)

        def clean(leaf: Array) -> Array:
            return jnp.where(_broadcastable(counts, leaf), leaf, leaf[first])

        x, y = jax.tree.map(clean, (self.x, self.y))
        if self.weight.dtype == bool or checks.is_concrete(self.weight):  # known ones are refused by `check_data`
            return Samples(x, y, self.weight)
        nothing = jnp.nan if jnp.issubdtype(self.weight.dtype, jnp.floating) else 0
        return Samples(x, y, jnp.where(jnp.any(self.weight < 0), nothing, self.weight))


class Data(NamedTuple):
    """What arrives in one round: D_in ~ Q_t for the inner problem and D_out ~ P_t for the outer one.

    `final` optionally holds a second, fresh draw of both. Estimators then form the hypergradient on it, so
    that it is independent of everything the fits have seen (the assumption behind the paper's bounds).
    Without it the final mini-batch is drawn from `inner` and `outer` again, as in Algorithm FuncGrad.
    """

    inner: Samples
    outer: Samples
    final: "Data | None" = None


Batch = TypeVar("Batch", Samples, Data)


def pad(batch: Batch, size: int | Sequence[int]) -> Batch:
    """`batch` with `size` rows: the rows that are added have weight 0, so nothing ever counts them.

    Batches of many sizes then compile once: give one `size`, or several (32, 64, 128), of which the smallest that is
    large enough is taken, and there is one compilation for each. A `Data` is padded part by part. The rounds of a run
    must be padded all or none, also those that fit exactly. An empty batch is allowed: its round is skipped.

    It works on the host, in NumPy: no program is compiled for the sizes that come in.
    """
    sizes = sorted(size) if isinstance(size, Sequence) else [size]
    if not sizes:
        raise ValueError("size must be an integer or several, got none.")
    for each in sizes:
        checks.require_integer(each, "size", 1)
    if not isinstance(batch, (Samples, Data)):
        raise TypeError(f"pad takes a smoothfbo.Samples or a smoothfbo.Data, got a {type(batch).__name__}.")
    return map_samples(lambda samples: _pad(samples, sizes), batch)


def _pad(samples: Samples, sizes: list[int]) -> Samples:
    for path, leaf in checks.named_leaves(samples, "samples"):
        if not np.shape(leaf) or np.shape(leaf)[0] != samples.size:
            raise ValueError(f"{path} has shape {np.shape(leaf)}; its first axis must be the {samples.size} samples.")
    enough = [each for each in sizes if each >= samples.size]
    if not enough:
        raise ValueError(f"size must be at least the number of samples, {samples.size}, got {sizes[-1]}.")
    missing = enough[0] - samples.size
    on_host = checks.is_concrete(samples)

    def extended(leaf: Any) -> Any:
        array = np.asarray(leaf) if on_host else jnp.asarray(leaf)
        last = array[-1:] if samples.size else np.zeros((1, *array.shape[1:]), array.dtype)
        module = np if on_host else jnp
        return module.concatenate([array, module.repeat(last, missing, axis=0)])

    x, y = jax.tree.map(extended, (samples.x, samples.y))
    counts = np.arange(enough[0]) < samples.size
    if samples.weight is None:
        return Samples(x, y, counts)
    weight = extended(samples.weight)
    return Samples(x, y, weight * counts.astype(weight.dtype))


def without_padding(data: PyTree) -> PyTree:
    """Every `Samples` of a round's data with harmless rows where they do not count."""
    return map_samples(Samples.without_padding, data)


def map_samples(function: Any, data: Any) -> Any:
    def is_samples(node: Any) -> bool:
        return isinstance(node, Samples)

    return jax.tree.map(lambda node: function(node) if is_samples(node) else node, data, is_leaf=is_samples)


def _broadcastable(vector: Array, leaf: Array) -> Array:
    """A number per sample, in a shape that broadcasts against an array with one entry a sample."""
    return vector.reshape(-1, *(1,) * (leaf.ndim - 1))


def _draw(weight: Array, size: int, key: PRNGKeyArray) -> Int[Array, " size"]:
    """Rows with probability proportional to their weight, by the inverse of the distribution function."""
    if weight.dtype == bool:  # exactly the draws that the samples without padding would give
        below = jnp.cumsum(weight)
        points = jax.random.randint(key, (size,), 0, below[-1])
    else:
        below = jnp.cumsum(weight.astype(jnp.result_type(float)))
        points = jax.random.uniform(key, (size,), below.dtype) * below[-1]
    rows = jnp.searchsorted(below, points, side="right")
    # Rounding may reach the total, beyond the last row that counts; so does every draw where nothing counts.
    last = weight.size - 1 - jnp.argmax(weight[::-1].astype(bool))
    return jnp.minimum(rows, last.astype(rows.dtype))


def check_data(data: Data) -> None:
    """Raise if the samples of a round are empty, ragged or not finite, or their weights are invalid."""
    parts = [("data.inner", data.inner), ("data.outer", data.outer)]
    if data.final is not None:
        parts += [("data.final.inner", data.final.inner), ("data.final.outer", data.final.outer)]
    for name, samples in parts:
        lengths = {}
        for path, leaf in checks.named_leaves(samples, name):
            if not jnp.shape(leaf):
                raise ValueError(f"{path} is a scalar; its first axis must be the samples (make lists arrays first).")
            lengths[path] = jnp.shape(leaf)[0]
        if len(set(lengths.values())) != 1:
            raise ValueError(f"All arrays of {name} must have the same number of samples, got {lengths}.")
        if 0 in lengths.values():
            raise ValueError(f"{name} is an empty batch; at least one sample is needed.")
        _check_weight(samples, name)
        checks.require_finite(samples.without_padding(), name)


def _check_weight(samples: Samples, name: str) -> None:
    weight = samples.weight
    if weight is None:
        return
    if jnp.ndim(weight) != 1:
        raise ValueError(f"{name}.weight must hold one number per sample, got shape {jnp.shape(weight)}.")
    if checks.is_concrete(weight):
        checks.require_range(np.asarray(weight, np.float64), f"{name}.weight", 0.0)
        if not np.any(np.asarray(weight)):  # NumPy would hand a JAX array back to JAX, which may be tracing
            raise ValueError(f"{name}.weight is zero for all {samples.size} samples; at least one must count.")
