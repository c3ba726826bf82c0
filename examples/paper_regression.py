"""The paper's drifting regression: FBO against SmoothFBO, measured against the exact hypergradient.

A three-layer network is fitted to the last ten batches of a drifting regression; how much each of them counts
is the outer variable, tuned online. The exact answer is known here, so we can see how close each one comes.

    python examples/paper_regression.py --out out/demo
"""

import argparse
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import optax
from rich.console import Console
from rich.table import Table
from scipy import stats

import smoothfbo as sf
from smoothfbo.testbeds import DriftingRegression, Sinusoidal

mpl.use("Agg")
from matplotlib import pyplot as plt

LAGS = 10


def algorithm(testbed: DriftingRegression, window: int) -> sf.Online:
    """SmoothFBO; with a window of 1 it is FBO."""
    network = sf.Network(lambda key: eqx.nn.MLP(5, 1, 64, 2, jax.nn.gelu, key=key), optax.adam(1e-3), steps=5)
    return sf.Online(
        testbed.problem(),
        sf.Functional(inner=network, adjoint=network),
        optax.chain(sf.window_average(window), optax.sgd(10.0)),
        project=optax.projections.projection_non_negative,
    )


def measure(window: int, rounds: int, keys: jax.Array) -> dict[str, np.ndarray]:
    """Runs all seeds as lanes of one program; every array has axes (seed, round)."""
    testbed = DriftingRegression(Sinusoidal(amplitude=2.0, frequency=0.05), lags=LAGS, key=jax.random.key(0))

    def record(state: sf.State, info: sf.Info) -> dict[str, jax.Array]:
        objective, exact = jax.value_and_grad(testbed.objective, argnums=1)(info.round, info.outer)
        cosine = jnp.vdot(info.smoothed, exact) / (info.smoothed_norm * jnp.linalg.norm(exact) + 1e-30)
        return {
            "excess": objective - testbed.noise**2,
            "cosine": cosine,
            "proxy": info.smoothed_norm**2,
            "weights": info.outer,
        }

    def lane(key: jax.Array) -> dict[str, jax.Array]:
        return sf.run(
            algorithm(testbed, window), testbed.source(), jnp.ones(LAGS), rounds=rounds, key=key, record=record
        )[1]

    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lane))(keys))


def interval(values: np.ndarray) -> str:
    """Mean over seeds and the half-width of its 95 % interval (Student's t: seeds are few)."""
    return f"{values.mean():.3g} ± {half_width(values):.1g}"


def half_width(values: np.ndarray) -> np.ndarray:
    """Of the 95 % interval of the mean over the first axis."""
    seeds = len(values)
    return stats.t.ppf(0.975, seeds - 1) * values.std(axis=0, ddof=1) / np.sqrt(seeds)


def draw(results: dict[int, dict[str, np.ndarray]], path: Path) -> None:
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
    for window, result in results.items():
        name = "FBO (w = 1)" if window == 1 else f"SmoothFBO (w = {window})"
        for axis, values in (
            (axes[0], np.cumsum(result["proxy"], axis=1)),
            (axes[1], np.stack([np.convolve(row, np.ones(50) / 50, "valid") for row in result["cosine"]])),
        ):
            mean = values.mean(axis=0)
            half = half_width(values)
            (line,) = axis.plot(mean, label=name)
            axis.fill_between(np.arange(len(mean)), mean - half, mean + half, alpha=0.2, color=line.get_color())
    axes[0].set(yscale="log", xlabel="round", ylabel="Σ ‖smoothed gradient‖²", title="The paper's proxy")
    axes[0].legend(frameon=False)
    axes[1].set(xlabel="round", ylabel="cosine (running mean of 50)", title="Used against exact hypergradient")
    axes[1].axhline(0, color="grey", linewidth=0.8)
    largest = results[max(results)]
    image = axes[2].imshow(largest["weights"].mean(axis=0).T, aspect="auto", origin="lower", cmap="viridis")
    axes[2].set(xlabel="round", ylabel="lag (0 is the newest batch)", title=f"Learned weights (w = {max(results)})")
    figure.colorbar(image, ax=axes[2])
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--windows", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    options = parser.parse_args()
    if options.rounds < 51 or options.seeds < 2 or min(options.windows) < 1:
        parser.error("needs --rounds >= 51, --seeds >= 2 and --windows >= 1")

    console = Console()
    table = Table(title=f"Drifting regression: {options.seeds} seeds, {options.rounds} rounds, mean ± 95 % interval")
    for column in ("window", "cosine with the truth", "Σ‖smoothed gradient‖²", "excess of the exact objective", "time"):
        table.add_column(column, justify="right")
    results = {}
    keys = jax.random.split(jax.random.key(2), options.seeds)
    for window in options.windows:
        begin = time.perf_counter()
        with console.status(f"window {window}: compiling and running {options.seeds} seeds as lanes of one program"):
            result = results[window] = measure(window, options.rounds, keys)
        second_half = slice(options.rounds // 2, None)
        table.add_row(
            str(window),
            interval(result["cosine"][:, second_half].mean(axis=1)),
            interval(result["proxy"].sum(axis=1)),
            interval(result["excess"][:, second_half].mean(axis=1)),
            f"{time.perf_counter() - begin:.1f} s",
        )
    console.print(table)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "regression.png"
    draw(results, path)
    console.print(
        "Averaging brings the smoothed gradient closer to the exact one. The proxy Σ‖smoothed gradient‖² shrinks for "
        "any averaged noise, so judge by the cosine and by the exact objective, which does not improve at this step."
    )
    console.print(f"Figure: {path}")


if __name__ == "__main__":
    main()
