"""The protocol of a testbed: a drifting problem whose exact answer is known."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from smoothfbo.errors import NotAvailable
from smoothfbo.functions.linear import Linear
from smoothfbo.functions.network import Network
from smoothfbo.problem import Problem
from smoothfbo.source import AbstractSource
from smoothfbo.types import Number


class AbstractTestbed(eqx.Module):
    """A drifting bilevel problem with known truth: the exact F_t(λ), and what the theory needs to know about it.

    A testbed is a pytree, so that runs can be vmapped over its numbers. Bounds are over the rounds 0, …, `rounds` − 1,
    or over the changes between them; where a bound is not known, `NotAvailable` says so.
    """

    # The exact answer.

    @abstractmethod
    def objective(self, round: Int[Array, ""], outer: PyTree) -> Float[Array, ""]:
        """The exact F_t(λ)."""

    def gradient(self, round: Int[Array, ""], outer: PyTree) -> PyTree:
        """The exact ∇F_t(λ)."""
        return jax.grad(self.objective, argnums=1)(round, outer)

    @abstractmethod
    def best(self, round: Int[Array, ""]) -> PyTree:
        """A λ with the smallest F_t(λ); where none is known, `NotAvailable` says why."""

    def gap(self, round: Int[Array, ""], outer: PyTree) -> Float[Array, ""]:
        """F_t(λ) − F_t(λ*_t), how much worse than the best."""
        return self.objective(round, outer) - self.objective(round, self.best(round))

    # The problem as methods see it.

    @abstractmethod
    def problem(self) -> Problem | None:
        """The two losses, as a user would write them; None where there is only a gradient oracle."""

    @abstractmethod
    def source(self) -> AbstractSource:
        """What hands out the data of the rounds."""

    @abstractmethod
    def initial(self) -> PyTree:
        """A λ to start from."""

    def project(self, outer: PyTree) -> PyTree:
        """The projection onto Λ; without constraints λ itself."""
        return outer

    def linear(self) -> Linear:
        """The inner function in closed form, where h* is linear in known features."""
        raise NotAvailable(f"The inner solution of {self._name} is not linear in known features.")

    def inner(self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None) -> Network:
        """The inner function as methods train it, by `steps` updates a round; what is None the testbed chooses.

        Here it is `linear()`, trained by five steps of Adam on all samples of the round. The same recipe serves as an
        adjoint.
        """
        return trained(self.linear(), rate=0.05 if rate is None else rate, steps=steps, batch_size=batch_size)

    def adjoint(
        self, *, rate: Number | None = None, steps: int | None = None, batch_size: int | None = None
    ) -> Network:
        """The adjoint function as methods train it: of the same family as the inner one."""
        return self.inner(rate=rate, steps=steps, batch_size=batch_size)

    @property
    def system_rate(self) -> float:
        """A step size for methods that solve the adjoint's linear system by gradient steps.

        It must be below 2 over the curvature of the inner problem; 0.1 suits a curvature of about 2.
        """
        return 0.1

    # What the theory needs.

    def smoothness(self, rounds: int) -> Any:
        """L ≥ ‖∇²F_t(λ)‖ for all λ and t."""
        del rounds
        raise NotAvailable(f"No smoothness constant of {self._name} is known.")

    def objective_bound(self, rounds: int) -> Any:
        """Q ≥ |F_t(λ)| for all λ and t."""
        del rounds
        raise NotAvailable(f"No bound of the objective of {self._name} is known.")

    def suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ |F_{t+1}(λ) − F_t(λ)| for t = 0, …, rounds − 2."""
        del rounds
        raise NotAvailable(f"No bound on the change of the objective of {self._name} is known.")

    def parameter_suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ ‖θ*_{t+1,λ} − θ*_{t,λ}‖ for t = 0, …, rounds − 2: how far the exact inner solution moves."""
        del rounds
        raise NotAvailable(f"No bound on how far the inner solution of {self._name} moves is known.")

    @property
    def _name(self) -> str:
        return type(self).__name__


class _Recipe(eqx.Module):
    """`Linear` as a pair of functions `init(key, x)` and `apply(params, x)`."""

    linear: Linear

    def init(self, key: PRNGKeyArray, x: PyTree) -> PyTree:
        return self.linear.init(x, None, key).params

    def apply(self, params: PyTree, x: PyTree) -> PyTree:
        return self.linear.bind(params)(x)


def trained(
    linear: Linear,
    *,
    rate: Number,
    steps: int | None = None,
    batch_size: int | None = None,
    adaptive: bool = True,
) -> Network:
    """A `Linear` that is not solved but trained from zero: by `steps` (5) updates of Adam, or of plain descent.

    Its ridge stays, as the penalty ½ρ‖W‖².
    """
    recipe = _Recipe(linear)
    # eps_root: the derivative of Adam's step is not finite at a gradient of zero without it (unrolling).
    optimiser = optax.adam(rate, eps_root=1e-12) if adaptive else optax.sgd(rate)
    steps = 5 if steps is None else steps
    return Network.from_pair(
        recipe.init, recipe.apply, optimiser, steps, batch_size=batch_size, penalty=linear.regulariser
    )
