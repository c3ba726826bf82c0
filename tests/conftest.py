"""Strict session: float64, no implicit dtype promotion, warnings are errors, shapes checked at run time."""

import contextlib
import gc
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Most of the time goes into compiling: programs are kept for other tests, other processes and the next time.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")  # programs need not say which line they come from

import jax
import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

# `make numerics` compiles as users do. Else most optimisations are off, also in processes that tests start; the code
# generator is the older, simpler one, and small programs are not cut into parts: a third of the time.
OPTIMISED = bool(os.environ.get("SMOOTHFBO_TESTS_OPTIMISED"))
if not OPTIMISED:
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    flags = "--xla_cpu_parallel_codegen_split_count=1"
    flags += " --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""
    os.environ.setdefault("XLA_FLAGS", flags)  # read when the first program is compiled

# Shapes and types of the library are checked at run time in the files that go through every estimator and testbed:
# checking takes an eighth of the time. `make thorough` checks all of the code in all tests.
CHECKED = {"test_online.py", "test_pytrees.py", "test_protocol.py"}
CHECK_ALL = bool(os.environ.get("SMOOTHFBO_TESTS_CHECKED"))
PACKAGE = Path(find_spec("smoothfbo").submodule_search_locations[0])
PARTS = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
PARTS -= set() if CHECK_ALL else {"harness", "stream", "studies", "cli"}
jaxtyping.install_import_hook([f"smoothfbo.{name}" for name in sorted(PARTS)], "beartype.beartype")
decorator_of = jaxtyping.jaxtyped


def only_where_checked(*, typechecker):
    """The decorator of that hook. A function within a function is made in every call, and decorating it takes longer
    than most of them run: that is done only while types are checked."""
    decorate = decorator_of(typechecker=typechecker)

    def decorated(made):
        is_inner = "<locals>" in getattr(made, "__qualname__", "")
        return made if is_inner and jaxtyping.config.jaxtyping_disable else decorate(made)

    return decorated


jaxtyping.jaxtyped = only_where_checked

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.devices()  # one, whatever comes first: a command that comes first would take one for every core

# Compilation makes the first example slow, so no deadlines; derandomised, so that a failure can be repeated.
settings.register_profile(
    "default", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


# Files whose tests compile little: `make check` runs these.
QUICK = {"test_algebra.py", "test_renamed.py", "test_bad_input.py", "test_store.py", "test_runner.py",
         "test_structure.py", "test_table.py"}  # fmt: skip


# Tracing makes millions of objects that live: looking through them as often as Python does takes a third of the time.
gc.set_threshold(200_000, 20, 100)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()


# The files that take longest, the longest first: else one of them may come last, when the other process has finished.
LONG = ["test_stream_command.py", "test_documents.py", "test_online.py", "test_theory.py", "test_hypergradients.py",
        "test_protocol.py", "test_arena.py", "test_commands.py", "test_cartpole_program.py", "test_regression.py",
        "test_cartpole_study.py", "test_online_methods.py", "test_recommended.py", "test_cartpole_soft_q.py",
        "test_corruption.py", "test_padding.py", "test_finite_rounds.py", "test_examples.py"]  # fmt: skip


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests of a file run in one process, and so do all tests of the stream learner, which share compiled programs."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return "tests/stream" if nodeid.startswith("tests/stream/") else super()._split_scope(nodeid)

    return Together(config, log)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))
    for item in items:
        if item.path.name in QUICK:
            item.add_marker("quick")


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs():
    """Thousands of compiled programs use up the memory maps that Linux allows a process (65,530 unless told)."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or len(maps.read_bytes().splitlines()) > 45_000:
        jax.clear_caches()


@contextlib.contextmanager
def type_checks(on):
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", not on)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(autouse=True, scope="module")
def checked(request):
    with type_checks(CHECK_ALL or request.path.name in CHECKED):
        yield


@pytest.fixture
def as_users_call():
    """Without run-time type checks, as users call the library: its own messages must do."""
    with type_checks(False):
        yield


@pytest.fixture
def optimised():
    """Programs compiled as users have them, for tests of memory and for long computations."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", not OPTIMISED)


@pytest.fixture
def no_figures(monkeypatch):
    """Empty files, for tests that look at tables and pages: drawing takes most of a short run's time."""
    monkeypatch.setattr("smoothfbo.harness.page.draw", lambda chart, folder: (folder / f"{chart.name}.png").touch())


@pytest.fixture
def key():
    return jax.random.key(20240229)


WITHOUT_FIGURES = """
import sys
from smoothfbo import cli
from smoothfbo.harness import page
page.draw = lambda chart, folder: None
sys.exit(cli.main())
"""


@pytest.fixture(scope="session")
def command(tmp_path_factory):
    """The command line in a process of its own, as users run it; what one of them has compiled, the others have."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }

    started = []

    def start(*arguments, figures=True):
        program = ["-m", "smoothfbo"] if figures else ["-c", WITHOUT_FIGURES]
        process = subprocess.Popen(
            [sys.executable, *program, *map(str, arguments)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:  # a test that failed half-way leaves one behind, and its pipes would fail a later test
        if process.poll() is None:
            process.kill()
            process.communicate()
