"""Names of types that several modules use."""

from typing import TypeAlias

from jaxtyping import Array, Float, Int

# A hyper-parameter: a Python number, or an array when it is traced or vmapped over.
Number: TypeAlias = float | int | Float[Array, ""] | Int[Array, ""]
