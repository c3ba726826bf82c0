"""What a round is fitted with: the predictor, samples that stand for the past and the newest block, closed forms."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from smoothfbo.algebra import solve_positive
from smoothfbo.functions import Linear, Network
from smoothfbo.hypergradients.base import inner_objective
from smoothfbo.online import Online, State
from smoothfbo.samples import Samples
from smoothfbo.stream.learner import problem as bilevel
from smoothfbo.stream.learner.linear import LinearOfOutputs
from smoothfbo.stream.learner.memory import Memory
from smoothfbo.stream.learner.rows import RowMemory, row_samples
from smoothfbo.stream.learner.specification import DEPTH, LIMIT, Specification


class Fits:
    """The bilevel problem of a specification, posed on second moments or, for networks, on rows."""

    def __init__(self, spec: Specification):
        self.spec = spec
        self.retention = bilevel.retention_rates(spec.rates)
        self.problem = bilevel.bilevel_problem(spec.is_classification)
        self.predictor: Linear | LinearOfOutputs | Network = bilevel.linear(spec.outputs, spec.ridge)
        if spec.is_network:
            inputs, rate, steps = spec.features + 1, spec.network_rate, spec.network_steps
            self.predictor = bilevel.network(inputs, spec.outputs, spec.width, rate, steps)

    def algorithm(self, window: Int[Array, ""]) -> Online:
        spec = self.spec
        return bilevel.learning_algorithm(self.problem, self.predictor, window, spec.smoothing, spec.step, LIMIT, DEPTH)

    def inner_samples(self, roots: Float[Array, "rates size size"], rows: RowMemory | None) -> Samples:
        if rows is not None:
            return row_samples(rows, jnp.asarray(self.retention))
        share = jnp.repeat(jnp.eye(self.spec.rates), self.spec.size, axis=0)
        return self._representatives(roots.reshape(-1, self.spec.size), share)

    def _representatives(self, rows: Float[Array, "n size"], share: Float[Array, "n rates"]) -> Samples:
        p = self.spec.constant + 1
        return Samples(rows[:, :p], {"target": rows[:, p:], "share": share * jnp.asarray(float(len(rows)))})

    def outer_samples(self, rows: Array, inputs: Array, goal: Array, known: Array, scale: Array) -> Samples:
        """The newest block, or rows that stand for it; its mean loss is divided by `scale`."""
        if self.spec.is_network or self.spec.is_classification:
            total = jnp.sum(known)
            factor = known * (known.shape[0] / jnp.where(total > 0, total, 1)) / scale
            return Samples(inputs, {"target": goal, "factor": factor})
        p = self.spec.constant + 1
        factor = jnp.full(self.spec.size, float(self.spec.size)) / scale
        return Samples(rows[:, :p], {"target": rows[:, p:], "factor": factor})

    def refit(
        self, learners: State, memory: Memory, current: Callable[[Array], Array], rows: RowMemory | None
    ) -> tuple[State, Float[Array, "references outputs p"]]:
        """The predictors under the new weights and with the newest block, and the references: for the next block."""
        means = jax.vmap(bilevel.weights)(learners.outer)
        means = jnp.einsum("lk,kij->lij", means, current(memory.decayed))
        lanes = 0 if self.spec.is_network else len(means)
        fits = self.closed_forms(self.without_last(jnp.concatenate([means[:lanes], current(memory.windows)])))
        if rows is None:
            inner = learners.estimator.inner
            inner = inner._replace(params=fits[:lanes].reshape(inner.params.shape))
        else:
            samples = row_samples(rows, jnp.asarray(self.retention))

            def fit(learner: State) -> Any:
                objective = inner_objective(self.problem, learner.outer, samples)
                key = jax.random.fold_in(jax.random.wrap_key_data(learner.key), -1 - learner.round)
                return self.predictor.fit(learner.estimator.inner, objective, key)

            inner = jax.vmap(fit)(learners)
        return learners._replace(estimator=learners.estimator._replace(inner=inner)), fits[lanes:]

    def closed_forms(self, means: Float[Array, "n size size"]) -> Float[Array, "n outputs p"]:
        """(G_xx + ridge·I) wᵀ = G_xy for every matrix of second moments."""
        p = self.spec.constant + 1
        ridge = self.spec.ridge * jnp.eye(p)

        def solve(mean: Array) -> Array:
            return jax.vmap(lambda right: solve_positive(mean[:p, :p] + ridge, right))(mean[p:, :p])

        return jax.vmap(solve)(means)

    def without_last(self, means: Float[Array, "n kept kept"]) -> Float[Array, "n size size"]:
        """Second moments of z alone, without the last known targets."""
        entries = [*range(self.spec.constant + 1), *range(self.spec.constant + 1, self.spec.kept, 2)]
        return means[:, jnp.asarray(entries)][:, :, jnp.asarray(entries)]
