"""The recommended SmoothFBO on the paper's regression, at its size, against FBO and the exact hypergradient.

Both kinds of weights, both drifts. The rivals have the best of several rates, chosen on the seeds that are reported;
smooth_fbo has its defaults. `python -m benchmarks.recommended_regression --out FILE`.
"""

import argparse
import json
from typing import Any

import numpy as np

ROUNDS, EVERY = 1_000, 10
SEEDS = tuple(range(60, 70))
RATES = {"fbo": (30.0, 100.0, 300.0, 1e3, 3e3), "exact": (10.0, 30.0, 100.0, 300.0, 1e3), "recommended": (0.01,)}
DRIFTS = ("smooth", "jumps")


def algorithm(testbed: Any, method: str, rate: Any) -> Any:
    import optax

    import smoothfbo as sf

    if method == "recommended":
        return sf.smooth_fbo(testbed.problem(), testbed.inner(), project=testbed.project, length=rate)
    estimator = sf.Functional(testbed.inner(), testbed.adjoint())
    if method == "exact":
        estimator = sf.Oracle(lambda outer, round, key: testbed.gradient(round, outer))  # noqa: ARG005
    problem = None if method == "exact" else testbed.problem()
    return sf.Online(problem, estimator, optax.sgd(rate), project=testbed.project)


def excesses(method: str, weighting: Any, drift: str) -> np.ndarray:
    """F_t(λ_t) − σ², its mean over the second half; axes (rate, seed)."""
    import jax
    import jax.numpy as jnp

    import smoothfbo as sf
    from smoothfbo.source import RoundNumbers
    from smoothfbo.testbeds import DriftingRegression

    def lane(rate: Any, seed: Any) -> Any:
        testbed = DriftingRegression(drift, weighting=weighting, seed=seed, key=jax.random.key(seed))
        source = RoundNumbers() if method == "exact" else testbed.source()
        _, outer = sf.run(
            algorithm(testbed, method, rate), source, testbed.initial(), rounds=ROUNDS, key=jax.random.key(seed + 1),
            record=lambda state, info: info.outer,  # noqa: ARG005
        )  # fmt: skip
        times = jnp.arange(ROUNDS // 2, ROUNDS, EVERY)
        values = jax.lax.map(lambda each: testbed.objective(*each), (times, outer[ROUNDS // 2 :: EVERY]))
        return jnp.mean(values) - testbed.noise**2

    lanes = jax.jit(jax.vmap(jax.vmap(lane, in_axes=(None, 0)), in_axes=(0, None)))
    return np.asarray(lanes(jnp.asarray(RATES[method]), jnp.asarray(SEEDS)), float)


def ratio(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    """Of the means over seeds, with a paired bootstrap interval of 95 %."""
    draws = np.random.default_rng(0).integers(0, len(ours), (10_000, len(ours)))
    ratios = ours[draws].mean(axis=1) / theirs[draws].mean(axis=1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return {"mean": float(ours.mean() / theirs.mean()), "low": float(low), "high": float(high)}


def case(weighting: Any, drift: str) -> dict[str, Any]:
    found = {}
    row: dict[str, Any] = {"weights": weighting.__name__, "drift": drift}
    for method, rates in RATES.items():
        values = excesses(method, weighting, drift)
        means = np.where(np.isfinite(values).all(axis=1), values.mean(axis=1), np.inf)
        best = int(means.argmin())
        found[method] = values[best]
        row[method] = {"excess": float(means[best]), "rate": rates[best], "seeds": values[best].tolist()}
    row["to_fbo"], row["to_exact"] = (ratio(found["recommended"], found[each]) for each in ("fbo", "exact"))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="the JSON file to write")
    out = parser.parse_args().out

    import jax

    from benchmarks import measure
    from smoothfbo.testbeds.regression import decay, per_lag

    commit, cases = measure.commit(), []  # of what runs now: files may change while it does
    for weighting in (per_lag, decay):
        for drift in DRIFTS:
            cases.append(case(weighting, drift))
            print(json.dumps({name: value for name, value in cases[-1].items() if name not in RATES}), flush=True)
    stored = {
        "command": "python -m benchmarks.recommended_regression", "commit": commit,
        "device": jax.devices()[0].device_kind, "seeds": SEEDS, "rounds": ROUNDS, "cases": cases,
    }  # fmt: skip
    with open(out, "w") as file:
        json.dump(stored, file, indent=1)


if __name__ == "__main__":
    main()
