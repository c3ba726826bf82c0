"""A state on disk: arrays with a digest, and a description of the algorithm that they belong to."""

import functools
import hashlib
import json
import os
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from smoothfbo import checks

FORMAT = 1
TEXT = "description"  # the entry of the file that is not a leaf
_FOREIGN = ("jax", "jaxlib", "numpy", "builtins")  # packages whose functions are known by their names

State = TypeVar("State")


def save(path: str | os.PathLike[str], state: PyTree, algorithm: Any) -> None:
    """Write the state of a run (or of a step) to a file, with a description of the algorithm.

    The file is an uncompressed npz: one array per leaf, and a text. It is written beside its place and then moved
    there, so that whoever reads it sees the old file or the new one, never half of it.
    """
    leaves = {name: _as_array(leaf) for name, leaf in checks.named_leaves(state, "state")}
    text = {
        "format": FORMAT,
        "leaves": [[name, kind, list(array.shape)] for name, (kind, array) in leaves.items()],
        "algorithm": list(fingerprint(algorithm)),
        "digest": _digest([array for _, array in leaves.values()]),
    }
    arrays = {str(number): _bytes(array) for number, (_, array) in enumerate(leaves.values())}
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")  # two writers do not meet
    try:
        with temporary.open("xb") as file:
            np.savez(file, allow_pickle=False, **{TEXT: np.asarray(json.dumps(text))}, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str], algorithm: Any, like: State) -> State:
    """The state that `save` wrote, for the same algorithm.

    `like` is a state of the same form, such as the one that `start` or `Online.init` returns; its values do not count.
    A damaged file raises, and so does the state of another algorithm: another structure, another setting, another
    number, another function (by its name, its constants and what it closes over). Nothing is unpickled.
    """
    text, stored = _read(path)
    for here, there in zip([*fingerprint(algorithm), "end"], [*text["algorithm"], "end"], strict=False):
        if here != there:
            raise ValueError(f"{path} holds the state of another algorithm: there {there}, here {here}.")
    wanted = list(checks.named_leaves(like, "state"))
    form = [[name, *_form(leaf)] for name, leaf in wanted]
    for here, there in zip([*form, None], [*text["leaves"], None], strict=False):
        if here != there:
            there, here = (f"{each[0]} {each[1]}{each[2]}" if each else "nothing more" for each in (there, here))
            raise ValueError(f"{path} holds a state of another form than `like`: there {there}, here {here}.")
    leaves = [_from_array(array, leaf) for array, (_, leaf) in zip(stored, wanted, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def fingerprint(algorithm: Any) -> Iterator[str]:
    """What an algorithm is, line by line: its structure, settings, numbers and functions."""
    yield from _describe(algorithm, "algorithm", ())


def _describe(value: Any, name: str, above: tuple[int, ...]) -> Iterator[str]:
    if id(value) in above:
        yield f"{name} = itself"
        return
    above = (*above, id(value))
    if checks.is_key(value) or isinstance(value, (jax.Array, np.ndarray, np.generic)):
        kind, array = _as_array(value)
        shown = str(array.tolist()) if array.size <= 4 else _digest([array])[:16]
        yield f"{name} = {kind}{list(array.shape)} {shown}"
    elif value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield f"{name} = {value!r}"
    elif isinstance(value, functools.partial):
        yield from _describe((value.func, value.args, value.keywords), name, above)
    elif isinstance(value, types.MethodType):
        yield from _describe((value.__func__, value.__self__), name, above)
    elif isinstance(value, types.FunctionType):
        yield from _describe_function(value, name, above)
    elif isinstance(value, (tuple, list)):
        yield f"{name}: {type(value).__name__} of {len(value)}"
        for field, part in zip(getattr(value, "_fields", range(len(value))), value, strict=True):
            yield from _describe(part, f"{name}.{field}", above)
    elif isinstance(value, dict):
        yield f"{name}: dict of {len(value)}"
        for key in sorted(value, key=repr):
            yield from _describe(value[key], f"{name}[{key!r}]", above)
    elif isinstance(value, eqx.Module):
        yield f"{name}: {type(value).__qualname__}"
        for field in value.__dataclass_fields__:
            yield from _describe(getattr(value, field, None), f"{name}.{field}", above)
    elif not isinstance(value, type) and hasattr(value, "__wrapped__"):  # jax.jit, jax.custom_jvp
        yield from _describe(value.__wrapped__, name, above)
    else:
        yield f"{name}: {getattr(value, '__name__', type(value).__qualname__)}"
        if _package(type(value).__module__) not in _FOREIGN and hasattr(value, "__dict__"):
            yield from _describe(vars(value), name, above)  # a callable object of the user's


def _describe_function(function: types.FunctionType, name: str, above: tuple[int, ...]) -> Iterator[str]:
    """Its name, the names and constants in it, and what it closes over: the rate of an optax optimiser stands there.

    No bytecode, which changes with the version of Python; of packages only what their functions close over. What JAX
    wraps around a function (`vmap`, `checkpoint`) is not looked at, the function is: where code comes from is known by
    its globals, since a wrapper takes the name and the module of what it wraps.
    """
    package = _package(function.__globals__.get("__name__"))
    wrapped = getattr(function, "__wrapped__", None)
    if package in _FOREIGN and wrapped is not None:
        yield from _describe(wrapped, name, above)
        return
    yield f"{name}: {function.__name__}"
    if package in _FOREIGN:
        return
    if package not in ("smoothfbo", "optax", "equinox"):
        yield f"{name}.names = {_names(function.__code__)!r}"
        yield f"{name}.constants = {[each for each in _constants(function.__code__) if each != function.__doc__]!r}"
    closed = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from _describe(function.__defaults__, f"{name}.defaults", above)
    yield from _describe(function.__kwdefaults__, f"{name}.keywords", above)
    for variable, cell in closed:
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        yield from _describe(content, f"{name}.{variable}", above)


def _package(module: str | None) -> str:
    return (module or "jax").split(".")[0]


def _names(code: types.CodeType) -> list[str]:
    inner = [name for each in code.co_consts if isinstance(each, types.CodeType) for name in _names(each)]
    return [*code.co_names, *inner]


def _constants(code: types.CodeType) -> Iterator[Any]:
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _constants(each)
        elif isinstance(each, (int, float, complex, str)) and ".<locals>." not in str(each):
            yield each


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[np.ndarray]]:
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            text = json.loads(str(file[TEXT]))
            raw = [file[str(number)] for number in range(len(text["leaves"]))]
            arrays = [
                np.frombuffer(data.tobytes(), _dtype(kind)).reshape(shape)
                for data, (_, kind, shape) in zip(raw, text["leaves"], strict=True)
            ]
            ok = text["format"] == FORMAT and text["digest"] == _digest(arrays)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} was not written by smoothfbo.save, or is damaged.") from error
    if not ok:
        raise ValueError(f"{path} is damaged, or of another version: its digest does not fit its content.")
    return text, arrays


def _as_array(leaf: Any) -> tuple[str, np.ndarray]:
    """The kind of a leaf, and its values: the name of a dtype, or of a generator of random numbers."""
    if checks.is_key(leaf):
        return f"key<{jax.random.key_impl(leaf)}>", np.asarray(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    return array.dtype.name, array


def _form(leaf: Any) -> tuple[str, list[int]]:
    kind, array = _as_array(leaf)
    return kind, list(array.shape)


def _from_array(array: np.ndarray, like: Any) -> jax.Array:
    if checks.is_key(like):
        return jax.random.wrap_key_data(jax.numpy.asarray(array), impl=jax.random.key_impl(like))
    return jax.numpy.asarray(array)


def _dtype(kind: str) -> np.dtype:
    return np.dtype(np.uint32) if kind.startswith("key<") else jax.numpy.dtype(kind)


def _bytes(array: np.ndarray) -> np.ndarray:
    """Raw bytes: dtypes such as bfloat16 are unknown to NumPy's files."""
    return np.frombuffer(array.tobytes(), np.uint8)


def _digest(arrays: list[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.dtype.name.encode() + repr(array.shape).encode() + array.tobytes())
    return digest.hexdigest()
