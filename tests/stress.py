"""Twenty fresh processes, each running a vmapped program of every estimator under a time limit.

XLA's CPU back end can deadlock when batched LAPACK calls (orthogonal initialisation, Cholesky) run inside a
vmapped program. This runs the real programs often enough to see it: `make stress`.
"""

import os
import subprocess
import sys
import tempfile
import time

RUNS, LIMIT, FIRST = 20, 180, 600  # seconds; the first run compiles

PROGRAM = """
import equinox as eqx, jax, jax.numpy as jnp, optax, smoothfbo as sf
from smoothfbo.testbeds import DriftingRegression, Sinusoidal

def orthogonal_mlp(key):
    mlp = eqx.nn.MLP(5, 1, 32, 2, jax.nn.gelu, key=key)
    make = jax.nn.initializers.orthogonal()
    keys = jax.random.split(key, len(mlp.layers))
    weights = [make(k, layer.weight.shape) for k, layer in zip(keys, mlp.layers)]
    return eqx.tree_at(lambda m: [layer.weight for layer in m.layers], mlp, weights)

testbed = DriftingRegression(Sinusoidal(), key=jax.random.key(0))
network = sf.Network(orthogonal_mlp, optax.adam(1e-3), 5, batch_size=32)
linear = sf.Linear(lambda x: x, prediction=jnp.zeros(1), ridge=1e-2, bias=True)
estimators = [
    sf.Functional(network, network, batch_size=32),
    sf.Functional(network, lambda module: sf.Linear(sf.last_hidden(module), ridge=1e-2)),
    sf.Functional(linear, linear),
    sf.Implicit(network, sf.ConjugateGradient(ridge=1e-2)),
    sf.Implicit(network, sf.NeumannSeries(terms=5, step=0.1)),
    sf.Implicit(network, sf.IdentityInverse()),
    sf.Unrolled(network),
    sf.Explicit(network),
    sf.SingleLoop(network, 1e-2),
    sf.Storm(sf.Network(orthogonal_mlp, optax.adam(1e-3), 1, batch_size=32), 1e-2, 0.5, batch_size=32),
    sf.FirstOrder(network, 10.0, batch_size=32),
    sf.Reevaluated(sf.Functional(linear, linear), 5),
]
paired = sf.Problem(
    lambda outer, v, x, y: 0.5 * jnp.sum((v - y - jnp.sum(outer)) ** 2),
    lambda outer, v, x, y: 0.5 * jnp.sum((v - y) ** 2),
)

def same_samples(round, key):
    samples = sf.Samples(jax.random.normal(key, (32, 5)), jax.random.normal(key, (32, 1)))
    return sf.Data(samples, samples)

settings = [(testbed.problem(), estimator, testbed.source()) for estimator in estimators]
settings.append((paired, sf.Functional(network, sf.PointwiseAdjoint()), same_samples))
settings.append((None, sf.Oracle(lambda outer, data, key: outer + jax.random.normal(key, outer.shape)), lambda t, k: t))
for problem, estimator, source in settings:
    optimiser = optax.chain(sf.window_average(10), optax.sgd(1e-1))
    algorithm = sf.Online(problem, estimator, optimiser, optax.projections.projection_non_negative)
    run = jax.jit(jax.vmap(lambda key: sf.run(algorithm, source, jnp.ones(10), rounds=20, key=key)))
    _, trace = run(jax.random.split(jax.random.key(1), 8))
    assert bool(trace.finite.all()), estimator

from smoothfbo.studies.cartpole import program as cartpole
from smoothfbo.studies.cartpole.config import CartPoleConfig

config = CartPoleConfig(
    methods=("omd", "smooth-fbo"), steps=20, evaluate_every=20, seeds=4, window=(10,), random_steps=50, capacity=1000
)
for program in cartpole.programs(config):
    state = jax.jit(jax.vmap(program.start))(program.numbers)
    _, records = jax.jit(jax.vmap(program.advance))(program.numbers, state)
    assert bool(records["finite"].all()), program.name
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:  # the first run compiles for all: what could hang is the running
        environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        for index in range(RUNS):
            begin, limit = time.perf_counter(), LIMIT if index else FIRST
            try:
                subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=limit, env=environment)
            except subprocess.TimeoutExpired:
                sys.exit(f"run {index + 1} of {RUNS} hung: no result after {limit} s")
            print(f"run {index + 1:2d} of {RUNS}: {time.perf_counter() - begin:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
