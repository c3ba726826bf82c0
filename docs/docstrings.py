"""How the site shows docstrings: optima with a star, and the fields of classes without a constructor."""

import re
from collections.abc import Iterator
from typing import Any

import griffe

# h* and a* are optima in docstrings; Markdown takes the asterisk for emphasis.
STAR = re.compile(r"(?<![\w*])([haθ])\*(?!\*)")
COMMENT = re.compile(r"#\s*(?!noqa|pyright|fmt|type:)(.+)$")


class Docstrings(griffe.Extension):
    """Fields are documented by comments behind them; those that the docstring does not mention are listed below it."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for item in _objects(pkg):
            if isinstance(item, griffe.Function):
                if "old" in item.parameters:
                    del item.parameters["old"]  # keywords of earlier versions, taken in only to name the new ones
                for parameter in item.parameters:
                    owner, _, name = str(parameter.default).partition(".")
                    if owner == "LearnerOptions":  # the value, which is stated there
                        parameter.default = pkg["stream.options.LearnerOptions"].members[name].value
            if item.docstring is None:
                continue
            text = STAR.sub(r"\1⋆", item.docstring.value)
            if isinstance(item, griffe.Class) and "__init__" not in item.members:
                text = _with_fields(item, text)
            item.docstring.value = text


def _objects(item: griffe.Object) -> Iterator[griffe.Object]:
    yield item
    for member in item.members.values():
        if not member.is_alias:
            yield from _objects(member)  # pyright: ignore[reportArgumentType]


def _with_fields(item: griffe.Class, text: str) -> str:
    fields = {
        name: member
        for name, member in item.members.items()
        if isinstance(member, griffe.Attribute)
        and member.annotation is not None
        and "ClassVar" not in str(member.annotation)
        and not name.startswith("_")
    }
    if not fields:
        return text
    arguments = [name if member.value is None else f"{name}={member.value}" for name, member in fields.items()]
    signature = f"```python\n{item.name}({', '.join(arguments)})\n```\n\n" if len(", ".join(arguments)) < 90 else ""
    lines = [
        f"- `{name}`: {comment[1].strip()}"
        for name, member in fields.items()
        if f"`{name}`" not in text and (comment := COMMENT.search(member.source.splitlines()[0]))
    ]
    return signature + text + ("\n\n**Fields:**\n\n" + "\n".join(lines) if lines else "")
