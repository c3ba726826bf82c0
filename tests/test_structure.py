"""The house rules that a machine can check."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "smoothfbo"

# Imports point one way only: a module may import from its own layer and from earlier ones.
LAYERS = [
    {"__version__", "errors", "types", "checks", "algebra"},
    {"problem"},
    {"functions"},
    {"hypergradients"},
    {"smoothing"},
    {"stream"},
    {"online"},
    {"regret"},
    {"streams", "environments"},
    {"forgetting"},
    {"estimator_plain", "estimator_sklearn", "estimator"},
    {"experiments"},
    {"runs"},
    {"report"},
    {"commands"},
    {"cli", "__main__"},
]
CORE = {"jax", "optax", "equinox", "jaxtyping", "numpy"}
LAYER = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ([node.module] if node.module != "smoothfbo" else [f"smoothfbo.{a.name}" for a in node.names])
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    if parts == ("__init__",):
        return
    here = LAYER[parts[0]]
    for module in imports(path):
        if module.split(".")[0] == "smoothfbo":
            assert LAYER[module.split(".")[1]] <= here, f"{path} imports {module}"
        elif here <= LAYER["regret"]:
            top = module.split(".")[0]
            assert top in CORE or top in sys.stdlib_module_names, f"{path} needs {top}, which is not core"


def test_every_module_has_a_place():
    for path in SOURCE.iterdir():
        if path.suffix == ".py" or path.is_dir():
            assert path.stem in LAYER or path.stem in {"__init__", "py", "__pycache__"}


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
