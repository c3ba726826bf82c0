"""What the examples promise: they run as they stand. (The documents have tests of their own.)"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

ROOT = Path(__file__).parent.parent


def python(*arguments, cwd, env=None):
    """In a process of its own, as a user would, with warnings as errors."""
    result = subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)],
        cwd=cwd, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def script(tmp_path, monkeypatch, capsys, as_users_call):
    """Runs a script in this process, with the usual settings of JAX; returns what it printed."""

    def run(name, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_paper_regression_writes_a_table_and_a_figure(script, tmp_path):
    printed = script("paper_regression.py", "--rounds", 80, "--seeds", 2, "--windows", 20, "--out", tmp_path)
    assert "cosine with the" in printed
    assert (tmp_path / "regression.png").stat().st_size > 10_000


def test_regularisation_is_learnt_where_it_belongs(script):
    printed = script("regularisation_under_drift.py")
    losses = [float(number) for number in re.findall(r"second half: ([\d.]+)", printed)]
    assert losses[1] < 0.95 * losses[0]
    useful, useless = (np.fromstring(text, sep=" ") for text in re.findall(r"\[([^\]]+)\]", printed))
    assert useful.max() < 0.1 < 0.5 < useless.min()


ON_FOUR = """
import jax, jax.numpy as jnp, numpy as np
from lanes_on_devices import lane, spread
devices, seeds = jax.devices(), jnp.arange(8)
assert len(devices) == 4
losses = spread(lane, devices)(seeds)
assert sorted(shard.device.id for shard in losses.addressable_shards) == [0, 1, 2, 3]
assert [shard.data.shape for shard in losses.addressable_shards] == [(2,)] * 4
np.testing.assert_allclose(losses, jax.jit(jax.vmap(lane))(seeds), rtol=1e-5)
assert len(set(np.asarray(losses).tolist())) == 8
"""


def test_lanes_spread_over_four_devices_are_the_same_lanes(tmp_path):
    environment = os.environ | {
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "examples"), os.environ.get("PYTHONPATH", "")]),
    }
    python("-c", ON_FOUR, cwd=tmp_path, env=environment)
