"""Functions with trainable parameters, fitted by optimiser steps on mini-batches (InnerOpt, AdjointOpt)."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo import checks
from smoothfbo.algebra import lane_by_lane
from smoothfbo.batching import batched
from smoothfbo.compiled import Static, run_once, split
from smoothfbo.errors import refuse_keywords
from smoothfbo.functions.base import AbstractFunction, FunctionState, Term, objective_value
from smoothfbo.functions.penalty import PenaltyAt, takes_outer
from smoothfbo.functions.recipes import WithKey, check_parameters, frozen_part, is_random
from smoothfbo.optimiser import as_optimiser, update


class _Pair(NamedTuple):
    """Functions `init(key, x) -> params` and `apply(params, x) -> prediction`."""

    init: Callable[[PRNGKeyArray, PyTree], PyTree]
    apply: Callable[[PyTree, PyTree], PyTree]


class _Applied(eqx.Module):
    """x ↦ apply(params, x)."""

    apply: Callable[..., PyTree]
    params: PyTree

    def __call__(self, x: PyTree, key: PRNGKeyArray | None = None) -> PyTree:
        return self.apply(self.params, x) if key is None else self.apply(self.params, x, key=key)

    def batch(self, xs: PyTree) -> PyTree:
        return batched(self.apply, in_axes=(None, 0))(self.params, xs)


@partial(run_once, static_argnums=0)  # one program in place of one for each operation
def _first_state(static: Static, arrays: list[Any], x: PyTree, key: PRNGKeyArray) -> FunctionState:
    make, optimiser = static.join(arrays)

    def initial(key: PRNGKeyArray, x: PyTree) -> PyTree:
        return make.init(key, x) if isinstance(make, _Pair) else eqx.filter(make(key), eqx.is_inexact_array)

    params = lane_by_lane(initial, key, x)  # it may hold LAPACK calls: the QR of an orthogonal initialisation
    check_parameters(params)
    checks.require_floating(params, "the network's parameters")
    return FunctionState(params, optimiser.init(params))


class Network(AbstractFunction):
    """A parametric function trained by `steps` updates of an optax optimiser per round, warm-started.

        θ_{m+1} = update(θ_m, ∇_θ [L̂(θ_m; mini-batch) + R(θ_m)])      (Algorithms InnerOpt and AdjointOpt)

    **Arguments:**

    - `make`: a function `key -> module` that builds an Equinox module (any callable pytree). It is a recipe and not a
      built module so that every seed gets an initialisation of its own. The module maps one sample; it may have a
      method `batch(xs)` for many (see `smoothfbo.batched`). For a pair of functions, see `Network.from_pair`.
    - A module that is random while it is trained (dropout) takes `key=None`, as in Equinox. Fits call it with a key of
      its own for every sample and step. Predictions, residuals and hypergradients call it without one, with all its
      flags `inference` set. Modules with a mutable state (batch normalisation) are refused.
    - `optimiser`: any optax optimiser. Its memory is carried from round to round with the parameters.
    - `steps`: updates per round.
    - `batch_size`: samples per update, drawn with replacement; None uses all samples of the round.
    - `penalty`: R(θ), a function `(params)`, or R(θ, λ), a function `(params, outer)`; None is no penalty. One with λ
      has its hypergradient in `Implicit` and `Unrolled`; see `Functional` for why not there.
    - `unroll`: how many updates are unrolled in the compiled loop (speed only, never the result's meaning).
    """

    make: Any
    frozen: Any  # the part of the module that is not trained: activations, sizes, integers
    optimiser: optax.GradientTransformation
    steps: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    penalty: Callable[..., Float[Array, ""]] | None
    unroll: int = eqx.field(static=True)
    is_random: bool = eqx.field(static=True)

    def __init__(
        self,
        make: Any,
        optimiser: Any,
        steps: int,
        *,
        batch_size: int | None = None,
        penalty: Callable[..., Any] | None = None,
        unroll: int = 1,
        **old: Any,
    ):
        refuse_keywords("Network", old, {"apply_all": "a method `batch(params, xs)` of apply"})
        if isinstance(make, eqx.Module):
            raise TypeError(
                f"Network needs a recipe, not a built {type(make).__name__}, so that every seed has its own "
                f"initialisation: pass `lambda key: {type(make).__name__}(..., key=key)` as make."
            )
        is_pair = isinstance(make, _Pair)
        if isinstance(make, tuple) and not is_pair:
            raise TypeError("Network((init, apply), ...) is written Network.from_pair(init, apply, ...) since 1.0.")
        if not is_pair and not callable(make):
            raise TypeError(f"make must be a function key -> module, got {make!r}.")
        if penalty is not None:
            takes_outer(penalty)
        checks.require_integer(steps, "steps", 0)
        checks.require_integer(unroll, "unroll", 1)
        checks.require_batch_size(batch_size)
        self.make, self.frozen = make, None if is_pair else frozen_part(make)
        self.is_random = is_random(make.apply if is_pair else self.frozen)
        self.optimiser, self.steps = as_optimiser(optimiser, "optimiser such as optax.adam(1e-3)"), steps
        self.batch_size, self.penalty, self.unroll = batch_size, penalty, unroll

    @classmethod
    def from_pair(
        cls,
        init: Callable[[PRNGKeyArray, PyTree], PyTree],
        apply: Callable[[PyTree, PyTree], PyTree],
        optimiser: Any,
        steps: int,
        **options: Any,
    ) -> "Network":
        """The network of two functions `init(key, x) -> params` and `apply(params, x) -> prediction` of one sample.

        Flax, Haiku and plain code have such pairs. `apply` may have a method `batch(params, xs)` for many samples
        (see `smoothfbo.batched`). The other arguments and options are those of `Network`.
        """
        for name, function in {"init": init, "apply": apply}.items():
            if not callable(function):
                raise TypeError(f"{name} must be a function, got {function!r}.")
        return cls(_Pair(init, apply), optimiser, steps, **options)

    def untrained(self) -> "Network":
        """The same network, whose fits leave it as it is."""
        options = {"batch_size": self.batch_size, "penalty": self.penalty, "unroll": self.unroll}
        return Network(self.make, self.optimiser, 0, **options)

    def init(self, x: PyTree, prediction: PyTree | None, key: PRNGKeyArray) -> FunctionState:
        del prediction
        return _first_state(*split((self.make, self.optimiser)), x, key)

    def bind(self, params: PyTree) -> Callable[[PyTree], PyTree]:
        if isinstance(self.make, _Pair):
            return _Applied(self.make.apply, params)
        module = eqx.combine(params, self.frozen)
        return eqx.nn.inference_mode(module) if self.is_random else module

    def regulariser(self, params: PyTree) -> Float[Array, ""]:
        if self.penalty is None:
            return jnp.zeros((), jnp.result_type(*jax.tree.leaves(params)))
        if self.depends_on_outer:
            raise TypeError("penalty is a function of (params, outer): fit and penalise with network.at(outer).")
        return self.penalty(params)

    @property
    def depends_on_outer(self) -> bool:
        return self.penalty is not None and takes_outer(self.penalty)

    def at(self, outer: PyTree) -> "Network":
        if self.penalty is None or not self.depends_on_outer:
            return self
        return eqx.tree_at(lambda network: network.penalty, self, PenaltyAt(self.penalty, outer))

    def fit(self, state: FunctionState, objective: tuple[Term, ...], key: PRNGKeyArray) -> FunctionState:
        is_drawn = self.batch_size is not None or self.is_random

        def one_step(state: FunctionState, key: PRNGKeyArray | None) -> tuple[FunctionState, None]:
            batch, keys = objective, None
            if key is not None:
                keys = jax.random.split(key, len(objective))
                batch = tuple(
                    term._replace(samples=term.samples.minibatch(self.batch_size, key))
                    for term, key in zip(objective, keys, strict=True)
                )

            def loss(params: PyTree) -> Float[Array, ""]:
                return self._value(params, batch, keys)

            value, gradient = jax.value_and_grad(loss)(state.params)
            return self.descend(state, gradient, value=value, grad=gradient, value_fn=loss), None

        if not self.steps:
            return state
        keys = jax.random.split(key, self.steps) if is_drawn else None
        return jax.lax.scan(one_step, state, keys, length=self.steps, unroll=self.unroll)[0]

    def _value(self, params: PyTree, batch: tuple[Term, ...], keys: Array | None) -> Float[Array, ""]:
        """The objective of a step of the fit."""
        if not self.is_random or keys is None:
            return objective_value(self, params, batch)
        is_pair = isinstance(self.make, _Pair)
        function = self.bind(params) if is_pair else eqx.combine(params, self.frozen)
        own = [jax.random.fold_in(key, 1) for key in keys]  # the key itself draws the mini-batch
        means = (term.mean(WithKey(function, key)) for term, key in zip(batch, own, strict=True))
        return sum(means, self.regulariser(params))

    def descend(self, state: FunctionState, gradient: PyTree, **known: Any) -> FunctionState:
        """One update of the optimiser with a given gradient in θ; `known` is for optimisers that ask for more."""
        change, memory = update(self.optimiser, gradient, state.optimiser, state.params, **known)
        with jax.numpy_dtype_promotion("standard"):  # rates may be float64 where parameters are float32
            return FunctionState(optax.apply_updates(state.params, change), memory)
