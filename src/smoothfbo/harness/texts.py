"""The help of a command: what the docstrings of its options say, unwrapped, with options as flags.

tyro reads docstrings, too, but in a private module (`tyro._docstrings`), and the names in them must become flags
before they are shown: so they are read here.
"""

import ast
import inspect
import textwrap
from dataclasses import MISSING, Field, field, fields, make_dataclass
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import tyro

from smoothfbo.errors import as_flags


def described(kind: type) -> type:
    """The dataclass with a help text for every option: its docstring as one paragraph, `outer_rate` as --outer-rate."""
    texts = {name: text for base in reversed(kind.__mro__) for name, text in _docstrings(base).items()}
    names = {each.name for each in fields(kind)}
    parts = [
        (
            each.name,
            Annotated[each.type, tyro.conf.arg(help=as_flags(texts[each.name], names), metavar=_metavar(each.type))],
            _same(each),
        )
        for each in fields(kind)
        if each.name in texts
    ]
    result = make_dataclass(kind.__name__, parts, bases=(kind,), frozen=True)
    result.__doc__ = kind.__doc__
    return result


def _metavar(kind: Any) -> str | None:
    """STR for `str | None`, where tyro writes {None}|STR: nobody types None, one leaves the option out."""
    kinds = [each for each in get_args(kind) if each is not NoneType]
    if not len(kinds) == 1 < len(get_args(kind)):
        return None
    if get_origin(kinds[0]) is Literal:
        return "{" + ",".join(get_args(kinds[0])) + "}"
    return kinds[0].__name__.upper() if kinds[0] in (str, int, float) else None


def _docstrings(kind: type) -> dict[str, str]:
    """The text behind each field of a class, in one line; nothing where there is no source, as of `object`."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for option, text in pairwise(body):
        if isinstance(option, ast.AnnAssign) and isinstance(option.target, ast.Name):
            match text:
                case ast.Expr(ast.Constant(str(words))):
                    found[option.target.id] = " ".join(words.split())
    return found


def _same(option: Field[Any]) -> Any:
    """A field with the same default."""
    if option.default_factory is not MISSING:
        return field(default_factory=option.default_factory)
    return field(default=option.default)
