"""What the README and the examples promise: they run as they stand."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent


def python(*arguments, cwd):
    """In a process of its own, as a user would, with warnings as errors."""
    result = subprocess.run(
        [sys.executable, "-W", "error", *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def readme_code(start):
    """The block of the README that starts with these words."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (code,) = (block for block in blocks if block.startswith(start))
    return code


def test_readme_table_gives_the_errors_it_says(tmp_path):
    (tmp_path / "table.py").write_text(readme_code("import numpy as np, pandas as pd"))
    python("table.py", cwd=tmp_path)
    printed = python("-m", "smoothfbo", "stream", "demand.csv", "--target", "demand", cwd=tmp_path)
    assert "out/stream-demand/report.html" in printed
    errors = json.loads((tmp_path / "out" / "stream-demand" / "summary.json").read_text())["errors"]
    assert [round(errors[name], 1) for name in ("smoothfbo", "forgetting_16", "all_past")] == [113.7, 113.4, 143.6]


def test_readme_example_runs_and_does_what_it_says(tmp_path):
    code = readme_code("import equinox as eqx")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 25
    (tmp_path / "readme.py").write_text(code)
    stale, fresh = np.fromstring(python("readme.py", cwd=tmp_path).strip(" []\n"), sep=" ")
    assert stale < 0.5 < fresh


def test_paper_regression_writes_a_table_and_a_figure(tmp_path):
    script = ROOT / "examples" / "paper_regression.py"
    printed = python(script, "--rounds", 80, "--seeds", 2, "--windows", 20, "--out", tmp_path, cwd=tmp_path)
    assert "cosine with the" in printed
    assert (tmp_path / "regression.png").stat().st_size > 10_000


def test_regularisation_is_learnt_where_it_belongs(tmp_path):
    printed = python(ROOT / "examples" / "regularisation_under_drift.py", cwd=tmp_path)
    losses = [float(number) for number in re.findall(r"second half: ([\d.]+)", printed)]
    assert losses[1] < 0.95 * losses[0]
    useful, useless = (np.fromstring(text, sep=" ") for text in re.findall(r"\[([^\]]+)\]", printed))
    assert useful.max() < 0.1 < 0.5 < useless.min()
