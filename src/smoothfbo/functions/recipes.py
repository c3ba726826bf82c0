"""What `Network` is made of: recipes for modules, and what they must not be."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

# Modules of other libraries by where their base class lives, and what to write instead.
_OTHERS = {
    "torch.": ("PyTorch", "JAX cannot differentiate it; write it as an Equinox module or as a pair of functions"),
    "flax.linen": ("Flax", "use Network.from_pair(module.init, module.apply, ...)"),
    "flax.nnx": ("Flax NNX", "use Network.from_pair with the two parts of nnx.split and with nnx.merge"),
    "haiku.": ("Haiku", "use Network.from_pair(*hk.without_apply_rng(hk.transform(function)), ...)"),
}


def frozen_part(make: Callable[[PRNGKeyArray], Any]) -> PyTree:
    """Everything of a module but its floating-point arrays. It must be the same for every key."""
    _refuse_others(make)
    key = jax.random.key(0)
    module = eqx.filter_eval_shape(make, key)
    _refuse_others(module)
    if _has_state(module):
        raise TypeError(
            "make(key) returns a module that changes its own state when it is called (batch normalisation, say), and "
            "Network does not carry such a state: use a layer without one, e.g. equinox.nn.LayerNorm or GroupNorm."
        )
    if not callable(module):
        raise TypeError(f"make(key) must return a callable module, got {module!r}.")
    if any(not jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(module) if _is_shape(leaf)):
        module = make(key)  # integer arrays are needed with their values
        return eqx.filter(module, eqx.is_inexact_array, inverse=True)
    return eqx.filter(module, _is_shape, inverse=True)


def check_parameters(params: PyTree) -> None:
    """Refuse running statistics among the parameters of a pair."""
    if isinstance(params, dict) and "batch_stats" in params:
        raise TypeError(
            "init returns running statistics (batch_stats), which a fit would train as parameters, and Network does "
            "not carry a mutable state: use a layer without one, such as layer or group normalisation."
        )


def is_random(function: Any) -> bool:
    """Whether a module, or the `apply` of a pair, is to be given a `key` while it is fitted."""
    call = type(function).__call__ if isinstance(function, eqx.Module) else function
    try:
        key = inspect.signature(call).parameters.get("key")
    except ValueError:  # some built-in functions
        return False
    if key is None:
        return False
    if key.default is inspect.Parameter.empty:
        raise TypeError(
            "A network that takes a key must do without it as well, for predictions and hypergradients: write "
            "key=None, and let nothing be random where it is None."
        )
    # All of Equinox's own layers take a key; those with a flag `inference` use it.
    is_plain = isinstance(function, eqx.Module) and type(function).__module__.startswith("equinox.")
    return not is_plain or any(hasattr(node, "inference") for node in _nodes(function))


class WithKey(eqx.Module):
    """x ↦ f(x, key), with a key of its own for every sample of a batch."""

    function: Callable[..., PyTree]
    key: PRNGKeyArray

    def __call__(self, x: PyTree) -> PyTree:
        return self.function(x, key=self.key)

    def batch(self, xs: PyTree) -> PyTree:
        keys = jax.random.split(self.key, jax.tree.leaves(xs)[0].shape[0])
        return jax.vmap(lambda x, key: self.function(x, key=key))(xs, keys)


def _refuse_others(value: Any) -> None:
    """Modules of other libraries, and modules inside jax.vmap, which hides their parameters."""
    kind = value if isinstance(value, type) else type(value)
    for base in kind.__mro__:
        for place, (library, advice) in _OTHERS.items():
            if base.__module__.startswith(place):
                raise TypeError(
                    f"Network needs a recipe key -> Equinox module, got a {kind.__name__} of {library}: {advice}."
                )
    if isinstance(getattr(value, "__wrapped__", None), eqx.Module):
        raise TypeError(
            "Network maps samples itself: return the module of one sample from make, without jax.vmap or jax.jit "
            "around it, which hide its parameters."
        )


def _has_state(module: Any) -> bool:
    return any(isinstance(node, (eqx.nn.StateIndex, eqx.nn.State)) for node in _nodes(module))


def _nodes(tree: PyTree) -> list[Any]:
    """All nodes of a pytree."""
    found: list[Any] = []
    jax.tree.flatten(tree, is_leaf=lambda node: bool(found.append(node)))
    return found


def _is_shape(leaf: Any) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct)
