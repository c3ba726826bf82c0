"""What an inner or adjoint function can be."""

from smoothfbo.functions.base import AbstractFunction, FunctionState, Term
from smoothfbo.functions.linear import Linear, last_hidden
from smoothfbo.functions.network import Network

__all__ = ["AbstractFunction", "FunctionState", "Linear", "Network", "Term", "last_hidden"]
