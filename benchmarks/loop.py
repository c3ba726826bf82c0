"""A round called from a Python loop over the same round inside `run`, and what pieces and live data cost.

The network has 5,000 parameters; a round takes five inner and five adjoint steps on 32 samples. All ways compute the
same bits, on the same recorded rounds.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import smoothfbo as sf
from benchmarks import measure

ROUNDS = 200


def make(key: Any) -> eqx.nn.MLP:
    return eqx.nn.MLP(4, "scalar", 66, 2, key=key)  # 4,819 parameters


def problem() -> tuple[sf.Online, sf.Data]:
    network = sf.Network(make, optax.adam(1e-3), steps=5)
    algorithm = sf.Online(
        sf.Problem(
            inner_loss=lambda outer, v, x, y: jnp.exp(outer) * (v - y) ** 2,  # noqa: ARG005
            outer_loss=lambda outer, v, x, y: (v - y) ** 2,  # noqa: ARG005
        ),
        sf.Functional(network, network),
        optax.chain(sf.window_average(10), optax.sgd(1e-2)),
    )
    random = np.random.default_rng(0)
    x = random.normal(size=(2, ROUNDS, 32, 4)).astype(np.float32)
    y = np.sin(x[..., 0])
    return algorithm, sf.Data(sf.Samples(x[0], y[0]), sf.Samples(x[1], y[1]))


def ways() -> dict[str, Callable[[], Any]]:
    """Each goes through all rounds from the same start, and returns when the last one is done."""
    algorithm, data = problem()
    recorded = sf.RecordedSource(data)
    start = sf.start(algorithm, recorded, jnp.zeros(()), jax.random.key(0))
    on_device = [jax.tree.map(lambda leaf, t=t: jnp.asarray(leaf[t]), data) for t in range(ROUNDS)]

    def in_run() -> Any:
        return jax.block_until_ready(sf.run(algorithm, recorded, rounds=ROUNDS, state=start)[0].learner)

    def in_python() -> Any:
        state = start.learner
        for each in on_device:
            state, _ = algorithm.step(state, each)
        return jax.block_until_ready(state)

    def in_pieces() -> Any:
        return jax.block_until_ready(sf.run(algorithm, recorded, rounds=ROUNDS, state=start, every=50)[0].learner)

    def live() -> Any:
        rounds = (jax.tree.map(lambda leaf, t=t: leaf[t], data) for t in range(ROUNDS))
        return jax.block_until_ready(sf.run(algorithm, rounds, state=start)[0].learner)

    return {"run": in_run, "step": in_python, "pieces of 50": in_pieces, "an iterable": live}


def run(quick: bool) -> measure.Result:
    candidates = ways()
    seconds = measure.in_turns(candidates, 5 if quick else 21)
    goals = {"step": "≤ 2"}
    lines = [
        measure.ratio("time of a round", name, "inside run", seconds[name], seconds["run"], goals.get(name, ""))
        for name in candidates
        if name != "run"
    ]
    cases = [{"way": name, "rounds": ROUNDS, **measure.summary(values)} for name, values in seconds.items()]
    return measure.Result(lines, cases)


def charts(result: measure.Result) -> list[Any]:
    del result
    return []
