"""Finds the commands: every folder that holds a `command.py` with an ENTRY is one. No command is named here."""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from smoothfbo.harness.study import Entry

PLACES = ("smoothfbo.studies", "smoothfbo")  # packages whose folders may be commands


def entries() -> dict[str, Entry]:
    """All commands by name."""
    found = [
        import_module(f"{package.__name__}.{module.name}.command").ENTRY
        for package in map(import_module, PLACES)
        for module in iter_modules(package.__path__)
        if module.ispkg and _has_command(package, module.name)
    ]
    return {entry.name: entry for entry in found}


def _has_command(package: ModuleType, name: str) -> bool:
    return any(module.name == "command" for module in iter_modules([f"{path}/{name}" for path in package.__path__]))
