"""A function that is not fitted again."""

from collections.abc import Callable

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from smoothfbo.functions.base import AbstractFunction, FunctionState, Term


class Fixed(AbstractFunction):
    """A function whose parameters stay as they are."""

    function: AbstractFunction

    def init(self, x: PyTree, prediction: PyTree | None, key: PRNGKeyArray) -> FunctionState:
        return self.function.init(x, prediction, key)

    def bind(self, params: PyTree) -> Callable[[PyTree], PyTree]:
        return self.function.bind(params)

    def regulariser(self, params: PyTree) -> Float[Array, ""]:
        return self.function.regulariser(params)

    def fit(self, state: FunctionState, objective: tuple[Term, ...], key: PRNGKeyArray) -> FunctionState:
        del objective, key
        return state

    @property
    def depends_on_outer(self) -> bool:
        return self.function.depends_on_outer

    def at(self, outer: PyTree) -> "Fixed":
        return Fixed(self.function.at(outer))
