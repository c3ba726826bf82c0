"""Environments in pure JAX, in the modules of this package, and the same ones for gymnasium.

To import this package makes them known to gymnasium, where that is installed: gymnasium itself looks for nothing.
"""

from importlib import import_module
from importlib.util import find_spec

if find_spec("gymnasium") is not None:
    import_module("smoothfbo.environments.gymnasium")
