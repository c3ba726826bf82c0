"""What a block begins with, for its rows one at a time (see `single`): made by a compiled program, once for a block."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from smoothfbo.stream.learner.aggregation import Weighing, weighing
from smoothfbo.stream.learner.experts import ladder_systems
from smoothfbo.stream.learner.ladder import FAMILIES
from smoothfbo.stream.learner.packing import packed
from smoothfbo.stream.learner.random_features import MEMORY, Expanded
from smoothfbo.stream.learner.recent import Recent
from smoothfbo.stream.learner.recursive import Fit, fit_to_past
from smoothfbo.stream.learner.rounds import Rounds
from smoothfbo.stream.learner.stacking import Stack, held_stack
from smoothfbo.stream.learner.state import LearnerState
from smoothfbo.stream.learner.tails import edges
from smoothfbo.stream.learner.units import far_from, target_far_from


class BlockStart(NamedTuple):
    """A block that begins. The experts are in the first units of the target.

    - `factor`, `shift`, `middle`, `limit`, `mean`, `spread`: of the features; beyond the limit a value is left out.
    - `cut`: where standardised features are cut.
    - `target`: origin and unit, and the middle and the limit of what can be meant; NaN where there is no prediction.
    - `reach`: the lowest and the highest prediction, and the spread of the target.
    - `experts`: A; `ladder`, `random`, `products`: the inverses of the three kinds of fits; the last may be none.
    - `stack`: inverses and c; `first`, `second`, `recent`: what the weights are made of.
    """

    factor: Any
    shift: Any
    middle: Any
    limit: Any
    mean: Any
    spread: Any
    cut: Any
    target: Any
    reach: Any
    experts: Any
    ladder: Any
    random: Any
    products: Any
    stack: Fit
    first: Weighing
    second: Weighing
    recent: Recent


class Beginning:
    """A compiled function of a specification: what a block begins with, as one array, which is read fastest."""

    def __init__(self, rounds: Rounds):
        self.rounds, self.linear = rounds, rounds.panel.linear
        self.matrix, self.phases = rounds.panel.projection
        self.factors = None
        if (products := rounds.panel.products) is not None:
            self.factors = products.one, products.other, products.limits
        self._shapes = jax.eval_shape(lambda: self._begin(rounds.init()))
        self._call = jax.jit(lambda state: packed(self._begin(state)))

    def __call__(self, state: LearnerState) -> BlockStart:
        numbers, (leaves, structure) = np.array(self._call(state)), jax.tree.flatten(self._shapes)
        ends = np.cumsum([leaf.size for leaf in leaves])
        parts = [numbers[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)]
        return jax.tree.unflatten(structure, parts)

    def _begin(self, state: LearnerState) -> BlockStart:
        spec, views = self.rounds.spec, self.rounds.views
        p = spec.constant + 1
        mean, spread = views.units_of_target(state)
        origin, unit = views.first_units_of_target(state)
        sums = jnp.concatenate([state.memory.decayed, state.since.moments[None]])
        systems = ladder_systems(views.current(state)(sums), sums[:, spec.constant, spec.constant], p)
        ladder = jax.vmap(lambda matrix, products: fit_to_past(matrix, products[0]))(*systems)
        learned = self.rounds.blocks.lanes(state, jnp.eye(p))[0, :, 0]
        middle, limit = far_from(state.units)
        target = jnp.stack([origin[0], unit[0], *target_far_from(state.targets)])
        mixed = state.aggregate
        assert isinstance(mixed.stack, Stack)
        return BlockStart(
            *(state.units.factor, state.units.shift, middle, jnp.where(state.units.odd > 0, -1, limit)),
            *(state.features.mean, state.features.spread, views.limit(state)),
            # A far target may stay: the next ones are judged by that.
            jnp.where((state.memory.blocks > 0) & (state.targets.far == 0), target, jnp.nan),
            jnp.stack([*edges(state.tails, state.targets), state.target.spread[0]]),
            self._experts(learned, ladder.coefficients, state.random, spread / unit, (mean - origin) / unit),
            ladder.inverse,
            state.random.waves.inverse / (1 - 1 / MEMORY),
            None if state.random.products is None else state.random.products.inverse / (1 - 1 / MEMORY),
            held_stack(mixed.stack, mixed.first.shared.scale),
            weighing(mixed.first),
            weighing(mixed.second),
            mixed.recent,
        )

    def _experts(
        self, learned: Array, ladder: Array, random: Expanded, scale: Array, centre: Array
    ) -> Float[Array, "experts v"]:
        """A, in the order of `Specification.expert_names`."""
        each = len(ladder) // len(FAMILIES)
        on_last = jnp.asarray([0.0] + [float(family.of_difference) for family in FAMILIES for _ in range(each)] + [0.0])
        simple = jnp.concatenate([learned[None], ladder]) * scale
        simple = simple.at[:, -1].add((1 - on_last) * centre)
        p, start = learned.shape[0], random.waves.coefficients.shape[1]
        stop = start if random.products is None else start + random.products.coefficients.shape[1] - p
        fits = jnp.concatenate([simple, jnp.zeros((len(simple), stop - p)), on_last[:, None]], axis=1)
        last = jnp.zeros_like(fits[0]).at[-1].set(1)
        bases = jnp.stack([fits[1 + self.linear], last])
        guesses = [bases.at[:, :start].add(random.waves.coefficients)]
        if random.products is not None:
            own = jnp.r_[:p, start:stop]
            guesses.append(bases.at[:, own].add(random.products.coefficients))
        return jnp.concatenate([fits, *guesses, last[None]])
