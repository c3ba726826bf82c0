"""The protocol of a testbed: a drifting problem whose exact answer is known."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PyTree

from smoothfbo.problem import Problem
from smoothfbo.source import AbstractSource


class AbstractTestbed(eqx.Module):
    """A drifting bilevel problem with known truth: the exact F_t(λ), and what the theory needs to know about it.

    Bounds are over the rounds 0, …, `rounds` − 1, or over the changes between them.
    """

    @abstractmethod
    def objective(self, round: Int[Array, ""], outer: PyTree) -> Float[Array, ""]:
        """The exact F_t(λ)."""

    def gradient(self, round: Int[Array, ""], outer: PyTree) -> PyTree:
        """The exact ∇F_t(λ)."""
        return jax.grad(self.objective, argnums=1)(round, outer)

    @abstractmethod
    def best(self, round: Int[Array, ""]) -> PyTree:
        """A λ with the smallest F_t(λ); where none is known, a `NotImplementedError` says why."""

    @abstractmethod
    def problem(self) -> Problem | None:
        """The two losses, as a user would write them; None where there is only a gradient oracle."""

    @abstractmethod
    def source(self) -> AbstractSource:
        """What hands out the data of the rounds."""

    @abstractmethod
    def initial(self) -> PyTree:
        """A λ to start from."""

    @abstractmethod
    def smoothness(self, rounds: int) -> Any:
        """L ≥ ‖∇²F_t(λ)‖ for all λ and t."""

    @abstractmethod
    def objective_bound(self, rounds: int) -> Any:
        """Q ≥ |F_t(λ)| for all λ and t."""

    @abstractmethod
    def suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ |F_{t+1}(λ) − F_t(λ)| for t = 0, …, rounds − 2."""

    @abstractmethod
    def parameter_suprema(self, rounds: int) -> Float[Array, " changes"]:
        """sup_λ ‖θ*_{t+1,λ} − θ*_{t,λ}‖ for t = 0, …, rounds − 2: how far the exact inner solution moves."""
