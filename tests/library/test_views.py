"""Traces as tables and pictures."""

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import optax
import pytest

import smoothfbo as sf

mpl.use("Agg")


def gradient(outer, round, key):
    noise = jax.tree.map(lambda leaf: 0.1 * jax.random.normal(key, leaf.shape), outer)
    return jax.tree.map(lambda leaf, noise: jnp.where(round == 3, jnp.nan, leaf + noise), outer, noise)


ALGORITHM = sf.Online(
    estimator=sf.Oracle(gradient, lambda outer, round: jnp.sum(outer["weight"] ** 2)),
    optimiser=optax.chain(sf.window_average(2), optax.sgd(0.1)),
)
OUTER = {"weight": jnp.arange(6.0).reshape(2, 3), "rate": jnp.asarray(2.0)}


def run(key):
    return sf.run(ALGORITHM, lambda round, key: round, OUTER, rounds=5, key=key, record=lambda state, info: info)[1]


@pytest.fixture(scope="module")
def traces():
    keys = jax.random.split(jax.random.key(0), 4)
    return run(keys[0]), jax.jit(jax.vmap(run))(keys)


def test_a_trace_becomes_a_frame(traces):
    trace, lanes = traces
    frame = trace.to_pandas()
    assert frame.index.name == "round"
    assert frame.index.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(frame["outer.weight[1, 0]"], trace.outer["weight"][:, 1, 0])
    np.testing.assert_array_equal(frame["outer.rate"], trace.outer["rate"])
    np.testing.assert_array_equal(frame["gradient.weight[0, 2]"], trace.gradient["weight"][:, 0, 2])
    np.testing.assert_array_equal(frame["finite"], [True, True, True, False, True])
    assert "round" not in frame.columns
    table = lanes.to_pandas()
    assert table.index.names == ["lane", "round"]
    np.testing.assert_array_equal(table.loc[2, "outer_loss"], lanes.outer_loss[2])
    np.testing.assert_array_equal(table.loc[3, "outer.weight[0, 1]"], lanes.outer["weight"][3, :, 0, 1])
    np.testing.assert_array_equal(table.xs(4, level="round")["outer.rate"], lanes.outer["rate"][:, 4])
    with pytest.raises(ValueError, match="to_pandas needs a trace"):
        jax.tree.map(lambda leaf: leaf[0], trace).to_pandas()


def test_a_trace_becomes_a_picture(traces, tmp_path):
    trace, lanes = traces
    figure = sf.plot(trace)
    titles = [axis.get_title(loc="left") for axis in figure.axes]
    assert titles == ["losses", "norm of the hypergradient", "residuals (0 is solved)", "λ"]
    loss, norms, residuals, outer = figure.axes
    np.testing.assert_allclose(loss.lines[0].get_ydata(), trace.outer_loss)
    np.testing.assert_allclose(norms.lines[1].get_ydata(), trace.smoothed_norm)
    assert [line.get_label() for line in norms.lines] == ["raw", "smoothed"]
    assert residuals.lines[0].get_label() == "skipped rounds (1)"
    assert residuals.lines[0].get_xdata().tolist() == [3]
    assert len(outer.lines) == 7
    figure.savefig(tmp_path / "trace.png")
    of_lanes = sf.plot(lanes)
    np.testing.assert_allclose(of_lanes.axes[0].lines[0].get_ydata(), np.median(lanes.outer_loss, axis=0))
    with pytest.raises(TypeError, match=r"plot needs a trace as run returns it, .* got a dict"):
        sf.plot({"outer_loss": 1})
