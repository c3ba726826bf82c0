"""Lanes spread over all devices of one program: `run` under a mesh.

    python examples/lanes_on_devices.py
    XLA_FLAGS=--xla_force_host_platform_device_count=4 python examples/lanes_on_devices.py    # four devices of a CPU

Every device runs its share of the lanes, and no lane talks to another one. With several hosts, each starts this program
and calls `jax.distributed.initialize()` first; `jax.devices()` are then those of all hosts.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, PartitionSpec

import smoothfbo as sf

LANES, ROUNDS = 16, 200


def source(round, key):
    """A sine that drifts, with noise: one half to fit, one half to judge."""
    x = jax.random.normal(key, (2, 20))
    y = jnp.sin(x + 0.02 * round) + 0.3 * jax.random.normal(jax.random.fold_in(key, 1), x.shape)
    return sf.Data(inner=sf.Samples(x[0], y[0]), outer=sf.Samples(x[1], y[1]))


problem = sf.Problem(
    inner_loss=lambda outer, v, x, y: (v - y) ** 2 + jnp.exp(outer) * v**2,
    outer_loss=lambda outer, v, x, y: (v - y) ** 2,
)
linear = sf.Linear(lambda x: jnp.stack([jnp.sin(x), jnp.cos(x)]), ridge=1e-3)
algorithm = sf.Online(problem, sf.Functional(linear, linear), optax.chain(sf.window_average(10), optax.sgd(1.0)))


def lane(seed):
    """One lane: the loss over the second half of its rounds."""
    _, trace = sf.run(algorithm, source, jnp.zeros(()), rounds=ROUNDS, key=jax.random.key(seed))
    return trace.outer_loss[ROUNDS // 2 :].mean()


def spread(function, devices):
    """As `jax.vmap(function)`, with an equal share of the lanes on each device."""
    mesh = Mesh(np.array(devices), ("lanes",))
    spec = PartitionSpec("lanes")
    # check_vma: loops in a lane start from constants, which the check takes for values that all devices share.
    return jax.jit(jax.shard_map(jax.vmap(function), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))


if __name__ == "__main__":
    devices = jax.devices()
    losses = spread(lane, devices)(jnp.arange(LANES))
    print(f"{LANES} lanes on {len(devices)} devices, {losses.addressable_shards[0].data.size} on each")
    print(f"mean loss {losses.mean():.3f}, between {losses.min():.3f} and {losses.max():.3f}")
