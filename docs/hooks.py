"""What `mkdocs build` does beyond Markdown: files from outside docs/, and a check that the reference is complete.

The check reads the source without importing it, so the site needs neither jax nor an installed smoothfbo.
"""

import ast
import re
from html import unescape
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
PACKAGE = ROOT / "src" / "smoothfbo"

# Modules whose public names must each have a place in the reference.
DOCUMENTED = ("__init__", "testbeds/__init__", "regret/__init__", "environments/__init__", "environments/base",
              "environments/cartpole", "environments/gymnasium")  # fmt: skip
EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
DIRECTIVE = re.compile(r"^::: (smoothfbo\S*)", re.MULTILINE)
LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)([^)]*)\)")


def public_names(package: Path = PACKAGE) -> dict[str, str]:
    """Dotted public name -> its module, for all modules of DOCUMENTED."""
    names = {}
    for module in DOCUMENTED:
        path = package / f"{module}.py"
        dotted = "smoothfbo." + module.replace("/", ".")
        dotted = dotted.removesuffix(".__init__")
        for name in _exported(path):
            names[f"{dotted}.{name}"] = dotted
    return names


def _exported(path: Path) -> list[str]:
    """The names in `__all__`; without one, the classes and functions whose names have no underscore in front."""
    tree = ast.parse(path.read_text())
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return list(ast.literal_eval(node.value))
    definitions = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [node.name for node in definitions if not node.name.startswith("_")]


def documented_names(folder: Path = DOCS / "api") -> set[str]:
    """What the pages of the reference ask for with `:::`."""
    return {name for page in folder.glob("*.md") for name in DIRECTIVE.findall(page.read_text())}


def missing_names() -> list[str]:
    """Public names that no page of the reference shows."""
    return sorted(set(public_names()) - documented_names())


def undocumented_names() -> list[str]:
    """Public names without a docstring. griffe comes with mkdocstrings."""
    import griffe

    package = griffe.load("smoothfbo", search_paths=[str(ROOT / "src")], resolve_aliases=True)
    return sorted(name for name in public_names() if not package[name.removeprefix("smoothfbo.")].has_docstring)


def on_config(config):
    from mkdocs.exceptions import PluginError

    if missing := missing_names():
        raise PluginError(f"Public names that no page of docs/api shows: {', '.join(missing)}.")
    if bare := undocumented_names():
        raise PluginError(f"Public names without a docstring: {', '.join(bare)}.")
    return config


def on_files(files, config):
    """The changelog is a page; what pages link to outside docs/ is copied to repository/."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "changelog.md", content=changelog()))
    for page in sorted(DOCS.rglob("*.md")):
        for target, _ in LINK.findall(page.read_text()):
            outside = _outside(page, target)
            if outside and outside != "CHANGELOG.md" and files.get_file_from_path(f"repository/{outside}") is None:
                source = str(ROOT / outside)
                files.append(File.generated(config, f"repository/{outside}", abs_src_path=source))
    return files


def changelog() -> str:
    """CHANGELOG.md, whose links into docs/ are relative to it there."""
    return (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")


def on_page_markdown(markdown, page, config, files):
    """Links that leave docs/ work on the site as well as in the repository."""
    source = DOCS / page.file.src_uri
    up = "../" * page.file.src_uri.count("/")

    def rewrite(match: re.Match) -> str:
        outside = _outside(source, match[1])
        if outside is None:
            return match[0]
        place = "changelog.md" if outside == "CHANGELOG.md" else f"repository/{outside}"
        return f"]({up}{place}{match[2]})"

    return LINK.sub(rewrite, markdown)


def _outside(page: Path, target: str) -> str | None:
    """The path within the repository of a file that a page links to outside docs/; None for all other links."""
    path = (page.parent / target).resolve()
    if path.is_relative_to(DOCS) or not path.is_relative_to(ROOT) or not path.is_file():
        return None
    return str(path.relative_to(ROOT))


def on_page_content(html, page, config, files):
    """Equations as MathML. A name has a heading of ours and an anchor by mkdocstrings: the contents show it once."""
    from mkdocs.exceptions import PluginError

    for item in page.toc.items:
        for section in (item, *item.children):
            if len(section.children) == 1 and section.children[0].title == section.title:
                section.children = section.children[0].children
    if "$$" in html:
        raise PluginError(f"{page.file.src_uri}: an equation is not recognised (in a list it needs four spaces).")
    return EQUATION.sub(_as_mathml, html)


def _as_mathml(match: re.Match) -> str:
    """Browsers show MathML by themselves: the site needs no script for its equations."""
    from latex2mathml.converter import convert
    from mkdocs.exceptions import PluginError

    equation = convert(unescape(match[2]), display="block" if match[1] == "div" else "inline")
    if "\\" in equation:
        raise PluginError(f"A command of this equation is not known: {match[2]}")
    return f'<{match[1]} class="arithmatex">{equation}</{match[1]}>'
