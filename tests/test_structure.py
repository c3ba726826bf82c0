"""The house rules that a machine can check."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "smoothfbo"

# Imports point one way only: a room may import from itself and from the rooms named here.
LIBRARY = {"errors", "types", "checks", "algebra", "batching", "problem", "functions", "hypergradients", "sums",
           "smoothing", "source", "states", "online", "regret"}  # fmt: skip
ROOMS = {
    "testbeds": LIBRARY,
    "environments": LIBRARY,
    "harness": {"errors", "types"},
    "studies": LIBRARY | {"testbeds", "environments", "harness"},
    "stream": LIBRARY | {"harness"},
    "cli": {"errors", "harness"},
    "__main__": {"cli"},
}
CORE = {"jax", "optax", "equinox", "jaxtyping", "numpy"}
# Still to be turned round: the harness names studies.
INTERIM = {"harness/registry.py", "harness/stored.py", "cli.py"}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ([node.module] if node.module != "smoothfbo" else [f"smoothfbo.{a.name}" for a in node.names])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    if parts == ("__init__",) or str(path.relative_to(SOURCE)) in INTERIM:
        return
    room = parts[0]
    for module in imports(path):
        top, _, rest = module.partition(".")
        if top == "smoothfbo":
            target = rest.split(".")[0]
            allowed = LIBRARY if room in LIBRARY else ROOMS[room] | {room, "__version__"}
            assert target in allowed, f"{path} imports {module}"
        elif room in LIBRARY:
            assert top in CORE or top in sys.stdlib_module_names, f"{path} needs {top}, which is not core"


def test_every_module_has_a_place():
    for path in SOURCE.iterdir():
        if path.suffix == ".py" or path.is_dir():
            assert path.stem in LIBRARY | set(ROOMS) or path.stem in {"__init__", "py", "__pycache__"}


def test_core_dependencies_are_the_declared_ones():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {line.split(">")[0] for line in declared} == CORE


def test_public_names_are_sorted_and_exist():
    import smoothfbo

    assert list(smoothfbo.__all__) == sorted(smoothfbo.__all__, key=lambda name: (name[0].islower(), name))
    for name in smoothfbo.__all__:
        assert getattr(smoothfbo, name).__doc__ or name in {"Info", "State"}


@pytest.mark.parametrize("command", [("ruff", "check"), ("ruff", "format", "--check")])
def test_lint(command):
    result = subprocess.run(
        [sys.executable, "-m", *command, str(ROOT)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
