"""What the documents promise: code runs, commands exist, links lead somewhere, the reference is complete."""

import ast
import contextlib
import importlib.util
import io
import json
import re
import unicodedata
import warnings
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import jax
import pandas as pd
import pytest

from smoothfbo import cli
from smoothfbo.studies.regression.tables import TABLE_METRICS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# Options of other programs that the pages mention.
FOREIGN = {"--jumps", "--resume"}  # benchmarks/stream.py
# Enough to show what the page says: programs of the tests are compiled quickly, and slow.
FEWER_ROUNDS = {"README.md": ("rounds=200", "rounds=80")}
SOURCE = ROOT / "src" / "smoothfbo"


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page, language):
    """The fenced blocks of a page in one language, with their first line's number."""
    text = page.read_text()
    return [
        (text.count("\n", 0, match.start()) + 2, match["body"])
        for match in FENCE.finditer(text)
        if match["language"].split(" ")[0] == language
    ]


def prose(page):
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text())


# Code


@pytest.fixture
def as_users_have_it(tmp_path, monkeypatch, as_users_call):
    """Single precision, JAX's usual promotion, no type checks at run time, an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    before = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_numpy_dtype_promotion")}
    jax.config.update("jax_enable_x64", False)
    jax.config.update("jax_numpy_dtype_promotion", "standard")
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


def as_after_the_demo(folder):
    """The table of lanes that `make demo` leaves, with the columns that the page uses."""
    assert "excess" in TABLE_METRICS
    (folder / "out" / "demo").mkdir(parents=True)
    lanes = pd.DataFrame({"method": ["fbo", "smooth-fbo"], "window": [1, 100], "excess": [0.5, 0.25]})
    lanes.to_parquet(folder / "out" / "demo" / "lanes.parquet")


# What the code of a page finds in its folder, where that is not empty.
PREPARED = {
    "docs/how-to/page.md": as_after_the_demo,
    "docs/studies/cartpole-evidence.md": lambda folder: (folder / "docs").symlink_to(DOCS),
}


def run_page(page):
    """All Python blocks of a page in order, in one namespace; returns what they printed and the namespace.

    A block that begins with "# needs PACKAGE" is left out where there is no such package.
    """
    namespace, printed = {"__name__": "__main__"}, io.StringIO()
    fewer = FEWER_ROUNDS.get(name_of(page), ("", ""))
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("error")
        for line, code in blocks(page, "python"):
            needs = re.match(r"# needs (\w+)\n", code)
            if needs and importlib.util.find_spec(needs[1]) is None:
                continue
            # Blank lines in front: an error names the line of the page.
            exec(compile("\n" * (line - 1) + code.replace(*fewer), str(page), "exec"), namespace)
    return printed.getvalue(), namespace


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_code_of_a_page_runs(page, as_users_have_it):
    PREPARED.get(name_of(page), lambda folder: None)(as_users_have_it)
    _, names = run_page(page)
    if page == ROOT / "README.md":
        stale, fresh = names["final"].learner.outer
        assert stale < 0.5 < fresh
        ((_, code),) = blocks(page, "python")
        assert sum(bool(line.strip()) for line in code.splitlines()) <= 25
    if "returns" in names:  # CartPole: the table's cell
        value = names["difference"]
        cell = f"{value['mean']:.0f} [{value['low']:.0f}, {value['high']:.0f}]".replace("-", "−")
        assert f"| {cell} |" in page.read_text()


def test_blocks_say_what_they_are():
    for page in PAGES:
        for match in FENCE.finditer(page.read_text()):
            assert match["language"] in {"python", "console", "text"}, f"{name_of(page)}: ```{match['language']}"


def is_code(text):
    """Python that imports or calls something, or a command: what belongs into a block that the tests know."""
    if re.search(r"^(\$ |(python|smoothfbo|make|pip|git) )", text, re.MULTILINE):
        return True
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Import | ast.ImportFrom | ast.Call) for node in nodes)


def test_blocks_of_text_hide_no_code():
    hidden = [f"{name_of(page)}:{line}" for page in PAGES for line, text in blocks(page, "text") if is_code(text)]
    assert not hidden
    assert all(map(is_code, ("import os\n", "run(1)\n", "python -m benchmarks\n", "$ smoothfbo theory\n")))
    assert not any(map(is_code, ("data ──► estimator(λ_t)\n", "library ◄── testbeds\n")))


@pytest.mark.usefixtures("no_figures")
def test_table_of_the_how_to_page_gives_the_errors_it_says(as_users_have_it, capsys):
    page = DOCS / "how-to" / "tables.md"
    (_, code), *_ = blocks(page, "python")
    exec(code, {})
    command = next(line for _, text in blocks(page, "console") for line in text.splitlines() if "demand.csv" in line)
    arguments = command.removeprefix("$ smoothfbo ").split()
    assert cli.main(arguments) == 0
    assert "out/stream-demand/report.html" in capsys.readouterr().out
    errors = json.loads((as_users_have_it / "out" / "stream-demand" / "summary.json").read_text())["errors"]
    values = [round(errors[name], 1) for name in ("smoothfbo", "forgetting_16", "all_past")]
    assert values == [105.9, 107.3, 138.1]
    text = " ".join(page.read_text().split())
    assert all(str(value) in text for value in values)


# Commands


IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+\.(?:png|gif))\)")
COMMAND = re.compile(r"^```python|^\$ (?:smoothfbo|python -m)|`(?:smoothfbo|python -m|make) [^`]+`", re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if IMAGE.search(prose(page))], ids=name_of)
def test_every_figure_has_its_command_beside_it(page):
    """In the same section: a command, or the code that draws it."""
    text = page.read_text()
    fences = [match.span() for match in FENCE.finditer(text)]
    headings = [match.start() for match in re.finditer(r"^##? ", text, re.MULTILINE)]
    begins = [at for at in headings if not any(first <= at < last for first, last in fences)]
    for first, last in zip(begins, [*begins[1:], len(text)], strict=True):
        section = text[first:last]
        names = IMAGE.findall(section)
        assert not names or COMMAND.search(section), f"{name_of(page)}: no command beside {', '.join(names)}"


def test_every_figure_is_shown():
    shown = {Path(name).name for page in PAGES for name in IMAGE.findall(page.read_text())}
    assert {path.name for kind in ("*.png", "*.gif") for path in (DOCS / "figures").glob(kind)} <= shown


@cache
def help_of(command):
    """The options that `smoothfbo COMMAND --help` lists."""
    from smoothfbo.harness import registry

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        cli.parse([command, "--help"], registry.entries())
    return set(FLAG.findall(printed.getvalue()))


def commands(page):
    """(subcommand, its options) for every call of smoothfbo in the console blocks of a page."""
    for _, text in blocks(page, "console"):
        for line in text.replace("\\\n", " ").splitlines():
            call = re.search(r"(?:^|[|&] *|\$ )smoothfbo ([a-z]+)(.*)", line.partition(" #")[0])
            if call:
                yield call[1], FLAG.findall(call[2])


@pytest.mark.parametrize("page", [page for page in PAGES if list(commands(page))], ids=name_of)
def test_commands_of_a_page_exist(page):
    for command, flags in commands(page):
        assert set(flags) <= help_of(command) | {"--help"}, f"{name_of(page)}: smoothfbo {command}"


def test_options_in_the_text_exist():
    from smoothfbo.harness import registry

    known = set().union(*map(help_of, (*registry.entries(), "report", "resume"))) | FOREIGN | {"--help", "--version"}
    for page in PAGES:
        inline = re.findall(r"`([^`]*--[^`]*)`", prose(page))
        unknown = {flag for text in inline if "benchmarks" not in text for flag in FLAG.findall(text)} - known
        assert not unknown, f"{name_of(page)} mentions {sorted(unknown)}"


def test_make_targets_in_the_text_exist():
    targets = set(re.findall(r"^([a-z-]+(?: [a-z-]+)*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets = {target for group in targets for target in group.split()}
    for page in PAGES:
        text = page.read_text()
        mentioned = set(re.findall(r"`make ([a-z-]+)`", text)) | set(re.findall(r"^\$ make ([a-z-]+)", text, re.M))
        assert mentioned <= targets, f"{name_of(page)} mentions make {sorted(mentioned - targets)}"
    readme = (ROOT / "README.md").read_text()
    assert "make demo" in readme
    assert "make test" in readme


# Links and the menu


def slug(heading):
    """The anchor that a heading gets, as Python-Markdown makes it."""
    plain = re.sub(r"[`*]|\]\([^)]*\)|[\[\]]", "", heading).strip().lower()
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain)).strip("-")


def anchors(page):
    return {slug(heading) for heading in re.findall(r"^#{1,6} (.*)$", prose(page), re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = unquote(target).partition("#")
        path = (page.parent / place).resolve() if place else page
        exists = path.exists() or (path.name == "changelog.md" and path.parent == DOCS)
        assert exists, f"{name_of(page)} links to {target}, which is not there"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{name_of(page)} links to {target}, but there is no such heading"


def test_every_page_is_in_the_menu():
    menu = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert menu == pages | {"changelog.md"}


def test_programs_of_the_folder_are_not_published():
    """mkdocs copies every other file in docs/ to the site."""
    excluded = re.search(r"^exclude_docs: \|\n((?:  .*\n)+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    patterns = excluded[1].split()
    programs = [path.relative_to(DOCS) for path in DOCS.rglob("*.py")]
    assert len(programs) >= 4
    assert not [name for name in programs if not any(fnmatch(f"/{name}", pattern) for pattern in patterns)]


def test_the_design_names_every_module_and_folder():
    package, text = ROOT / "src" / "smoothfbo", (DOCS / "design.md").read_text()
    places = [path for path in package.iterdir() if path.suffix == ".py" and not path.name.startswith("__")]
    places += [path for path in package.rglob("*") if path.is_dir() and any(path.glob("*.py"))]
    names = [str(path.relative_to(package)) + "/" * path.is_dir() for path in places]
    assert [name for name in names if name != "studies/" and f"`{name}`" not in text] == []


def test_every_figure_is_used():
    text = "".join(page.read_text() for page in PAGES)
    unused = [path.name for path in (DOCS / "figures").iterdir() if path.name not in text]
    assert not unused


# The pages of runs

REPORTS = {"Regression": "studies/regression", "CartPole": "studies/cartpole", "Theory": "studies/theory",
           "The arena": "studies/arena", "Drifting tables": "stream"}  # fmt: skip
TITLED = {"Section", "Table", "PageTable", "Chart", "HeatMap", "_table_and_charts"}


def titles(folder):
    """Patterns of the titles of sections, tables and charts in a folder of the source; what is filled in may be any
    words."""
    trees = [ast.parse(path.read_text()) for path in sorted((SOURCE / folder).rglob("*.py"))]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    found = [part for node in nodes if isinstance(node, ast.Call) and called(node) in TITLED for part in node.args[:2]]
    found += [
        node.value for node in nodes if isinstance(node, ast.Assign) and "title" in map(ast.unparse, node.targets)
    ]
    found += [way for part in found if isinstance(part, ast.IfExp) for way in (part.body, part.orelse)]
    for part in found:
        if isinstance(part, ast.Constant | ast.JoinedStr):
            pieces = part.values if isinstance(part, ast.JoinedStr) else [part]
            yield "".join(re.escape(p.value) if isinstance(p, ast.Constant) else r"\w[\w ]*" for p in pieces)


def called(call):
    return ast.unparse(call.func).rpartition(".")[2]


def test_the_page_about_pages_names_sections_that_exist():
    headings = re.split(r"^## (.*)$", (DOCS / "how-to" / "page.md").read_text(), flags=re.MULTILINE)
    described = dict(zip(headings[1::2], headings[2::2], strict=True))
    assert set(described) - set(REPORTS) == {"The numbers behind it"}
    for heading, folder in REPORTS.items():
        first = [line.split("|")[1].strip() for line in described[heading].splitlines() if line.startswith("| ")]
        patterns = list(titles(folder))
        names = [name.strip() for cell in first if cell != "section" for name in cell.split(";")]
        assert len(names) > 4
        unknown = [name for name in names if not any(re.fullmatch(pattern, name) for pattern in patterns)]
        assert not unknown, f"{heading}: {unknown}"
    studies = {f"studies/{path.parent.name}" for path in (SOURCE / "studies").glob("*/report.py")}
    assert studies | {"stream"} == set(REPORTS.values())


# The reference


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_the_changelog_lead_somewhere_on_the_site(hooks):
    links = [target for target in LINK.findall(hooks.changelog()) if not re.match(r"[a-z]+:", target)]
    assert links
    assert [target for target in links if not (DOCS / target.partition("#")[0]).exists()] == []


def test_every_public_name_is_in_the_reference(hooks):
    assert hooks.missing_names() == []


def test_the_reference_has_only_names_that_exist_and_say_what_they_are(hooks):
    for name in sorted(hooks.documented_names()):
        module, _, attribute = name.rpartition(".")
        value = getattr(importlib.import_module(module), attribute)
        assert (value.__doc__ or "").strip(), f"{name} has no docstring"
        assert not value.__doc__.startswith(f"{attribute}("), f"{name} has only the docstring that Python made"


def test_public_names_are_those_of_the_packages(hooks):
    import smoothfbo
    from smoothfbo import testbeds

    names = hooks.public_names()
    assert {f"smoothfbo.{name}" for name in smoothfbo.__all__} <= set(names)
    assert {f"smoothfbo.testbeds.{name}" for name in testbeds.__all__} <= set(names)


# Words


@pytest.mark.parametrize("word", ["mend", "is known only afterwards", "killed, it goes on", "have their defaults from"])
def test_words_that_documents_do_not_use(word):
    assert not [name_of(page) for page in PAGES if re.search(rf"\b{re.escape(word)}\b", page.read_text())]


def test_old_names_are_gone():
    old = (
        r"sf\.(Identity|Neumann|Pointwise|Fitted)\b|AbstractHypergradient|AbstractStream|smoothfbo\.streams|info\.used"
    )
    assert not [name_of(page) for page in PAGES[2:] if re.search(old, page.read_text())]
