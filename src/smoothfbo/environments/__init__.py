"""Environments in pure JAX, in the modules of this package, and the same ones for gymnasium.

To import this package makes them known to gymnasium, where that is installed. gymnasium imports it by itself for
`gymnasium.make("smoothfbo.environments:smoothfbo/DriftingCartPole-v1")`.
"""

from importlib import import_module
from importlib.util import find_spec

if find_spec("gymnasium") is not None:
    import_module("smoothfbo.environments.gymnasium")
