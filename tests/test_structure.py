"""The house rules that a machine can check: who imports whom, what needs jax, and that a study is one folder."""

import ast
import io
import os
import shutil
import subprocess
import sys
import tokenize
import tomllib
from functools import cache
from pathlib import Path

import pytest
from mutants import MUTATIONS, misfits

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "smoothfbo"

LIBRARY = {
    "adaptive",
    "algebra",
    "batching",
    "checks",
    "compiled",
    "errors",
    "flow",
    "functions",
    "hypergradients",
    "monitor",
    "online",
    "optimiser",
    "pieces",
    "problem",
    "recommended",
    "regret",
    "runs",
    "samples",
    "saving",
    "smoothing",
    "source",
    "states",
    "steps",
    "streams",
    "sums",
    "traps",
    "types",
    "views",
}
# A room may import from itself and from the rooms named here. The root is `smoothfbo` itself: its version.
ROOMS = {
    **dict.fromkeys(LIBRARY, LIBRARY),
    "testbeds": LIBRARY,
    "environments": LIBRARY,
    "harness": {"", "errors", "types"},
    "studies": LIBRARY | {"testbeds", "environments", "harness"},
    "stream": LIBRARY | {"harness"},
    "cli": {"", "errors", "harness"},
    "__main__": {"cli"},
}
CORE = {"jax", "optax", "equinox", "jaxtyping", "numpy"}
OPTIONAL = {"views": {"pandas", "matplotlib", "rich"}}  # inside functions, where they are used
HEAVY = ("jax", "smoothfbo.online")  # what --help and report must not load


def modules():
    """Every module of the package by its dotted name."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(("smoothfbo", *parts)).removesuffix(".__init__"), path


MODULES = dict(modules())


def imported(tree):
    """All modules that are named in import statements, wherever they stand; `from a import b` may name a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def only_types(tree):
    """Without what stands under `if TYPE_CHECKING:`, which never runs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    return tree


@cache
def imports(name):
    return tuple(imported(only_types(ast.parse(MODULES[name].read_text()))))


def room(name):
    return name.split(".")[1] if "." in name else ""


def forbidden(name, others):
    """What is wrong with a module of this name that imports these others, a sentence each."""
    here = room(name)
    for other in others:
        top = other.split(".")[0]
        if top == "smoothfbo":
            if room(other) not in ROOMS[here] | {here}:
                yield f"{name} imports {other}"
            same_study = name.split(".")[:3] == other.split(".")[:3] or len(other.split(".")) < 3
            if room(other) == "studies" and not same_study:
                yield f"{name} imports another study, {other}"
        elif here in LIBRARY:
            allowed = CORE | OPTIONAL.get(here, set())
            if top not in allowed and top not in sys.stdlib_module_names:
                yield f"{name} needs {top}, which is not core"


def circle(graph):
    """Modules that import each other in a circle, if any do; `graph` says whom each one imports."""
    finished, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name) :], name]
        if name in finished or name == "smoothfbo":  # the root imports nothing by itself
            return None
        path.append(name)
        found = next(filter(None, (visit(other) for other in graph[name] if other in graph)), None)
        path.pop()
        finished.add(name)
        return found

    return next(filter(None, map(visit, graph)), None)


@pytest.mark.parametrize("name", [name for name in MODULES if name != "smoothfbo"])
def test_imports_point_one_way(name):
    assert list(forbidden(name, imports(name))) == []


def test_optional_packages_are_imported_where_they_are_used():
    for name, path in MODULES.items():
        if room(name) in OPTIONAL:
            top_level = imported(ast.Module([node for node in ast.parse(path.read_text()).body
                                             if isinstance(node, (ast.Import, ast.ImportFrom))], []))  # fmt: skip
            assert not {other.split(".")[0] for other in top_level} & OPTIONAL[room(name)], name


def test_no_imports_go_round_in_a_circle():
    """Also where an import stands in a function, which would hide it from Python."""
    assert circle({name: imports(name) for name in MODULES}) is None


def test_the_rules_find_what_they_forbid():
    hidden = ast.parse("def f():\n    from smoothfbo.studies.theory import config\n    import smoothfbo.cli\n")
    assert set(imported(hidden)) == {"smoothfbo.studies.theory.config", "smoothfbo.cli"}
    guarded = ast.parse("if TYPE_CHECKING:\n    import jax\nimport numpy\n")
    assert set(imported(only_types(guarded))) == {"numpy"}
    for name, other in {
        "smoothfbo.online": "smoothfbo.testbeds.base",
        "smoothfbo.regret": "pandas",
        "smoothfbo.views.plots": "scipy",
        "smoothfbo.harness.page": "smoothfbo.online",
        "smoothfbo.testbeds.base": "smoothfbo.harness.store",
        "smoothfbo.studies.arena.program": "smoothfbo.studies.theory.program",
        "smoothfbo.stream.run": "smoothfbo.testbeds.base",
        "smoothfbo.cli": "smoothfbo.studies.theory.command",
        "smoothfbo.source": "smoothfbo",
    }.items():
        assert list(forbidden(name, [other])), (name, other)
    assert list(forbidden("smoothfbo.studies.arena.program", ["smoothfbo.online", "smoothfbo.studies", "pandas"])) == []
    assert circle({"a": ["b"], "b": ["c", "smoothfbo"], "c": ["a"], "smoothfbo": ["a"]}) == ["a", "b", "c", "a"]
    assert circle({"a": ["b", "c"], "b": ["c"], "c": ["jax"]}) is None


def test_every_module_has_a_room():
    assert {room(name) for name in MODULES} == {"", *ROOMS}


def identifiers(text):
    """All names in a module's code, without those in strings and comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def test_stream_is_the_product_for_tables():
    """What hands out the data of rounds is a source, and a problem whose answer is known is a testbed."""
    assert identifiers("a = stream_of(b)  # stream\n'stream'\n") == {"a", "stream_of", "b"}
    allowed = {"", "stream", "streams", "states", "harness", "cli"}  # they name the product, or an old name
    for name, path in MODULES.items():
        if room(name) not in allowed:
            assert not [each for each in identifiers(path.read_text()) if "stream" in each.lower()], name


def test_core_dependencies_are_the_declared_ones():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {line.split(">")[0] for line in declared} == CORE


def test_public_names_are_sorted_and_documented():
    import smoothfbo

    assert list(smoothfbo.__all__) == sorted(smoothfbo.__all__, key=lambda name: (name[0].islower(), name))
    for name in smoothfbo.__all__:
        assert len(getattr(smoothfbo, name).__doc__ or "") > 20, name


def test_the_mutations_fit_the_code():
    """What `make mutants` breaks is there, once; and the tests that must notice exist."""
    assert misfits(MUTATIONS) == []


def test_mutations_that_do_not_fit_are_all_named():
    found = misfits([("online.py", "no such line", "", "library/none.py"), ("gone.py", "a", "a", "test_structure.py")])
    assert [line.split(":")[0] for line in found] == [
        "online.py must contain this text once, found 0 times",
        "online.py",
        "gone.py must contain this text once, found 0 times",
        "gone.py",
    ]


@pytest.mark.parametrize("command", [("ruff", "check"), ("ruff", "format", "--check")])
def test_lint(command):
    result = subprocess.run(
        [sys.executable, "-m", *command, str(ROOT)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def loaded_by(*arguments, cwd, **environment):
    """Modules that a command loads, what it prints, and its status."""
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "smoothfbo", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, env=os.environ | environment, check=False,
    )  # fmt: skip
    lines = result.stderr.splitlines()
    loaded = {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:")}
    return loaded, result.stdout + "\n".join(line for line in lines if not line.startswith("import time:")), result


TOY = '''
"""A study of one number."""

from dataclasses import dataclass
from pathlib import Path

from smoothfbo.harness import store
from smoothfbo.harness.page import Page, Section, write_page
from smoothfbo.harness.requirements import require
from smoothfbo.harness.study import Entry, Measured, Program, Report, Run, Study


@dataclass(frozen=True)
class ToyConfig:
    """Walk at random."""

    steps: int = 6
    """Steps of the walk."""

    def __post_init__(self):
        require(self.steps >= 1, "steps", self.steps, "an integer of at least 1")


def execute(run: Run) -> None:
    import jax
    import jax.numpy as jnp
    import pandas as pd

    from smoothfbo.harness import runner

    def advance(numbers, state):
        place = state + jax.random.normal(jax.random.fold_in(jax.random.key(numbers), state.astype(int)))
        if (Path.cwd() / "crash").exists():
            raise KeyboardInterrupt
        return place, {"round": jnp.zeros(1, jnp.int32), "place": place[None]}

    def measure(program, records):
        return Measured({"metrics": pd.DataFrame({"seed": [0, 1], "place": records["place"][:, -1]})})

    program = Program("walk", ({"seed": 0}, {"seed": 1}), jnp.arange(2), lambda numbers: jnp.zeros(()), advance, 1, 1)
    summarise = lambda tables: {"summary": {"mean": float(tables["metrics"]["place"].mean())}}
    runner.execute(Study("toy", run.config, [program], measure, summarise), run)


def build(folder: Path) -> Path:
    mean = store.read_json(folder / "summary.json")["mean"]
    write_page(folder / "report.html", Page("Toy", f"mean {mean}", "", [], [Section("Nothing")]))
    return folder / "report.html"


ENTRY = Entry(
    name="toy",
    config=ToyConfig,
    execute=execute,
    report=lambda: Report(build, lambda folder: ["the toy is done"]),
    presets={"short": ToyConfig(), "long": ToyConfig(steps=9)},
    preset_help="short or long.",
)
'''


TOY_COMMANDS = """
import contextlib
from pathlib import Path
from smoothfbo import cli

with contextlib.suppress(SystemExit):
    cli.main(["toy", "--preset", "long", "--help"])
assert cli.main(["toy", "--steps", "0"]) == 2
Path("crash").touch()
assert cli.main(["toy"]) == 130
Path("crash").unlink()
assert cli.main(["resume", "out/toy-short"]) == 0
"""


def test_a_study_is_one_folder(tmp_path):
    """`--help`, run, resume and report know it without another line changed; help and report load no jax."""
    package = tmp_path / "package" / "smoothfbo"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "studies" / "toy").mkdir()
    (package / "studies" / "toy" / "__init__.py").write_text("")
    (package / "studies" / "toy" / "command.py").write_text(TOY.lstrip())
    path = {"PYTHONPATH": os.pathsep.join([str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])])}

    loaded, printed, _ = loaded_by("--help", cwd=tmp_path, **path)
    assert "toy" in printed
    assert "Walk at random." in printed
    assert not loaded & set(HEAVY)
    result = subprocess.run(
        [sys.executable, "-c", TOY_COMMANDS],
        capture_output=True, text=True, cwd=tmp_path, env=os.environ | path, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Steps of the walk. (default: 9)" in " ".join(result.stdout.replace("│", " ").split())
    assert "smoothfbo: --steps must be an integer of at least 1, got 0." in result.stderr
    assert "resume with: smoothfbo resume out/toy-short" in result.stderr
    assert result.stdout.count("the toy is done") == 1
    page = tmp_path / "out" / "toy-short" / "report.html"
    page.unlink()
    loaded, printed, result = loaded_by("report", "out/toy-short", cwd=tmp_path, **path)
    assert result.returncode == 0, printed
    assert page.exists()
    assert not loaded & set(HEAVY)


QUICK_COMMANDS = """
import contextlib, io, sys
from smoothfbo import cli
from smoothfbo.harness import registry

for name, entry in registry.entries().items():
    for show in (lambda: cli.main([name, "--help"]), entry.report):
        printed = io.StringIO()
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(printed):
            show()
        assert show == entry.report or "--out" in printed.getvalue(), f"{name}: {printed.getvalue()}"
        loaded = set(HEAVY) & set(sys.modules)
        assert not loaded, f"{name} loads {loaded}"
    print(name)
"""


def test_help_and_reports_of_every_command_load_no_jax():
    code = QUICK_COMMANDS.replace("HEAVY", repr(HEAVY))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert set(result.stdout.split()) == {"regression", "cartpole", "theory", "stream", "arena"}
