"""Defaults from a preset, and configurations from a stored run."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from smoothfbo.errors import UsageError
from smoothfbo.harness.requirements import require_known
from smoothfbo.studies.cartpole import config as cartpole_config
from smoothfbo.studies.cartpole.command import CartPole, run_cartpole
from smoothfbo.studies.regression import config as regression_config
from smoothfbo.studies.regression.command import Regression, run_regression

# Experiment -> the command, its presets, its configuration, how it is run.
STUDIES: dict[str, tuple[Any, dict[str, Any], Any, Callable[..., int]]] = {
    "regression": (Regression, regression_config.PRESETS, regression_config.RegressionConfig, run_regression),
    "cartpole": (CartPole, cartpole_config.PRESETS, cartpole_config.CartPoleConfig, run_cartpole),
}


def from_preset(experiment: str, name: str | None) -> Any:
    """The command with the preset's defaults."""
    command, presets, _, _ = STUDIES[experiment]
    chosen: str = command.preset if name is None else name
    require_known("preset", (chosen,), tuple(presets), "one")
    return command(**vars(presets[chosen]), preset=chosen)


def from_stored(experiment: str, config: dict[str, Any]) -> tuple[Any, Callable[..., int]]:
    """The configuration in a config.json, and how to run it."""
    _, _, kind, run = STUDIES[experiment]
    return configuration(kind, config), run


def configuration(kind: Any, config: dict[str, Any]) -> Any:
    """A configuration from what JSON made of it."""
    known = {field.name for field in fields(kind)}
    if set(config) != known:
        unknown = ", ".join(sorted(known ^ set(config)))
        raise UsageError(f"the stored configuration is of another version of smoothfbo (it differs in {unknown}).")
    try:
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in config.items()})
    except TypeError as error:  # words where numbers belong
        raise UsageError(f"the stored configuration cannot be read: {error}.") from error
