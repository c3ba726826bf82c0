"""Lanes on devices: one compiled program, vmapped over its lanes and spread over all devices."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from smoothfbo.harness.study import Program

AXIS = "lanes"
# Lanes that a CPU core runs side by side. More do not fill its vector units any better, and leave its caches: a chunk
# of all rounds is done for one block of lanes after the other.
BLOCK = 16
OPTIMISATION_LEVEL = "xla_backend_optimization_level"  # lowered for what runs once


def use_compilation_cache() -> None:
    """Keep compiled programs between processes, where the user has not chosen a folder already."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        jax.config.update("jax_compilation_cache_dir", str(base / "smoothfbo" / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def in_blocks(function: Callable[..., PyTree], block: int) -> Callable[..., PyTree]:
    """Like `jax.vmap(function)`, but `block` lanes at a time."""
    return lambda *arguments: jax.lax.map(lambda each: function(*each), arguments, batch_size=block)


@functools.lru_cache(maxsize=8)  # a study that is run again in the same process need not be compiled again
def spread(
    function: Callable[..., PyTree],
    mesh: Mesh,
    block: int | None,
    arguments: int,
    options: tuple[tuple[str, Any], ...],
    donate: tuple[int, ...] = (),
) -> Any:
    """`function` of a lane, compiled for all of them: on the devices of `mesh`, and for `block` of them at a time."""
    spec = PartitionSpec(AXIS)
    # check_vma: the lanes' own loops start from constants, which the check takes for replicated values.
    over_lanes = jax.shard_map(
        jax.vmap(function) if block is None else in_blocks(function, block),
        mesh=mesh, in_specs=(spec,) * arguments, out_specs=spec, check_vma=False,
    )  # fmt: skip
    return jax.jit(over_lanes, donate_argnums=donate, compiler_options=dict(options) or None)


class SpreadProgram:
    """A program whose lanes are divided among the devices; a lane never talks to another one.

    Lanes are padded to what the devices can share equally; what the padding computes is dropped. Where there are more
    devices than lanes, the rest stay idle. On CPUs a program with a `width` is called for so many lanes at a time: its
    state, and its numbers, are lists with an entry for each call.
    """

    def __init__(self, program: Program):
        self.lanes = len(program.lanes)
        platform = jax.devices()[0].platform
        is_cpu = platform == "cpu"
        width = program.width if is_cpu and program.width is not None else self.lanes
        devices = np.array(jax.devices()[:width])
        share = -(-width // len(devices))
        blocks = -(-share // BLOCK) if is_cpu else 1
        block = -(-share // blocks)
        self._width = len(devices) * blocks * block
        options = dict({"cpu": program.cpu_options, "gpu": program.gpu_options}.get(platform, {}))
        mesh = Mesh(devices, (AXIS,))
        self._sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        self._numbers = self.put(program.numbers)

        size = None if blocks == 1 else block
        # The start runs once: where a study saves on compiling, it need not be fast at all.
        once = options | ({OPTIMISATION_LEVEL: 0} if OPTIMISATION_LEVEL in options else {})
        self._start = spread(program.start, mesh, size, 1, tuple(once.items()))
        self._advance = spread(program.advance, mesh, size, 2, tuple(options.items()), donate=(1,))

    def start(self) -> list[PyTree]:
        """The state of every lane before its first round."""
        return [self._start(numbers) for numbers in self._numbers]

    def advance(self, state: list[PyTree]) -> tuple[list[PyTree], dict[str, np.ndarray]]:
        """One chunk of every lane. `state` is used up. The records are of real lanes only."""
        done = [self._advance(numbers, part) for numbers, part in zip(self._numbers, state, strict=True)]
        return [state for state, _ in done], self.fetch([records for _, records in done])

    def fetch(self, parts: list[PyTree]) -> PyTree:
        """What the real lanes have, as NumPy arrays."""
        return jax.tree.map(lambda *leaves: np.concatenate(list(map(np.asarray, leaves)))[: self.lanes], *parts)

    def shapes(self) -> PyTree:
        """What `fetch` returns of a state, as shapes and dtypes."""
        state = jax.eval_shape(self._start, self._numbers[0])
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((self.lanes, *leaf.shape[1:]), leaf.dtype), state)

    def put(self, tree: PyTree) -> list[PyTree]:
        """Lanes from the host to their devices, with padding."""

        def one(leaf: Any, first: int) -> Array:
            values = np.asarray(leaf)[first : first + self._width]
            filler = np.repeat(values[-1:], self._width - len(values), axis=0)
            return jax.device_put(jnp.asarray(np.concatenate([values, filler])), self._sharding)

        firsts = range(0, self.lanes, self._width)
        return [jax.tree.map(lambda leaf: one(leaf, first), tree) for first in firsts]  # noqa: B023
