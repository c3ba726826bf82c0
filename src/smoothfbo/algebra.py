"""Small linear algebra in plain arithmetic.

XLA's CPU back end can deadlock in batched LAPACK calls (Cholesky, QR, eigenvalues under `vmap`), so whatever
runs inside a compiled, vmapped loop is written with elementary operations here.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from smoothfbo.types import Number


def transposed_product(
    one: Float[Array, "*batch rows columns"], other: Float[Array, "*batch rows others"]
) -> Float[Array, "*batch columns others"]:
    """oneᵀ other. The transposition is a step of its own: within the product, small ones take XLA's CPU four times as
    long."""
    return jax.lax.optimization_barrier(jnp.swapaxes(one, -1, -2)) @ other


@jax.jit  # traced once for every size, however often it is called in a program
def solve_positive(matrix: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """Solve A x = b for symmetric positive definite A by Cholesky factorisation, A = L Lᵀ.

    Column by column, O(n³) in n compiled steps; tiny systems, of which there may be one per sample, without a loop.
    With b as a further row below A, the factorisation finds L⁻¹b on the way.
    If A is not positive definite the result is not finite.
    """
    size = vector.shape[0]
    if size <= 3:
        return _solve_tiny(matrix, vector)
    rows, system = jnp.arange(size + 1), jnp.concatenate([matrix, vector[None]])

    def column(j: Array, lower: Array) -> Array:
        # Columns >= j of `lower` are still zero, so the full product is the sum over the finished ones.
        remainder = system[:, j] - lower @ lower[j]
        entries = jnp.where(rows >= j, remainder / jnp.sqrt(remainder[j]), 0)
        return lower.at[:, j].set(entries)

    factors = jax.lax.fori_loop(0, size, column, jnp.zeros_like(system))
    lower, half = factors[:size], factors[size]

    def backward(k: Array, x: Array) -> Array:
        i = size - 1 - k
        return x.at[i].set((half[i] - lower[:, i] @ x) / lower[i, i])

    return jax.lax.fori_loop(0, size, backward, jnp.zeros_like(vector))


def _solve_tiny(matrix: Float[Array, "n n"], vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """The same factorisation, entry by entry: the compiler sees plain arithmetic and simplifies what is constant."""
    size = vector.shape[0]
    zero = jnp.zeros((), vector.dtype)
    lower: dict[tuple[int, int], Array] = {}
    for j in range(size):
        for i in range(j, size):
            remainder = matrix[i, j] - sum((lower[i, k] * lower[j, k] for k in range(j)), zero)
            lower[i, j] = jnp.sqrt(remainder) if i == j else remainder / lower[j, j]
    half: dict[int, Array] = {}
    for i in range(size):
        half[i] = (vector[i] - sum((lower[i, k] * half[k] for k in range(i)), zero)) / lower[i, i]
    x: dict[int, Array] = {}
    for i in reversed(range(size)):
        x[i] = (half[i] - sum((lower[k, i] * x[k] for k in range(i + 1, size)), zero)) / lower[i, i]
    return jnp.stack([x[i] for i in range(size)])


def lane_by_lane(function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """function(*arguments), one lane after the other under `vmap`: for what must not run in batches (see above).

    What the function closes over may be vmapped, too, so it becomes an argument.
    """
    explicit, captured = jax.closure_convert(function, *arguments)
    return jax.custom_batching.sequential_vmap(explicit)(*arguments, *captured)


def where_needed(
    needed: Bool[Array, ""], function: Callable[..., PyTree], default: PyTree, *arguments: PyTree
) -> PyTree:
    """function(*arguments) if it is needed, else `default`; under `vmap` it runs only if some lane needs it.

    `lax.cond` under `vmap` runs both branches for all lanes, always. The function must close over no traced values.
    """

    @jax.custom_batching.custom_vmap
    def choose(needed: Array, default: PyTree, arguments: PyTree) -> PyTree:
        return jax.lax.cond(needed, lambda: function(*arguments), lambda: default)

    @choose.def_vmap
    def choose_by_lane(size: int, batched: PyTree, needed: Array, default: PyTree, arguments: PyTree) -> PyTree:
        def lane(needed: Array, default: PyTree, arguments: PyTree) -> PyTree:
            return optax.tree.where(needed, function(*arguments), default)

        def spread(leaf: Array, is_batched: bool) -> Array:
            return leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))

        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched)
        needed = spread(needed, batched[0])
        all_default = jax.tree.map(spread, default, batched[1])
        result = jax.lax.cond(
            jnp.any(needed),
            lambda: jax.vmap(lane, in_axes=(0, 0, axes[2]))(needed, all_default, arguments),
            lambda: all_default,
        )
        return result, jax.tree.map(lambda _: True, all_default)

    return choose(needed, default, arguments)


def conjugate_gradient(
    operator: Callable[[PyTree], PyTree],
    right_side: PyTree,
    start: PyTree,
    *,
    tolerance: Number,
    max_steps: int,
    ridge: Number = 0.0,
    keep_start: bool = False,
) -> tuple[PyTree, Float[Array, ""]]:
    """Solve (A + ρI) x = b for symmetric A over pytrees; returns x and the residual's norm as it is tracked.

    Ends when ‖residual‖ ≤ tolerance·‖b‖, after `max_steps`, or at the first direction p along which A curves
    down: pᵀ(A + ρI)p ≤ ½ρ‖p‖². A start that is worse than zero is replaced by zero unless `keep_start`. Where A or b is
    not finite, x is NaN. The last way to end is why it is written here: the Hessians of networks have such directions.
    jax.scipy's solver runs on through them; lineax's gives NaN wherever pᵀAp < 100·n·ε·rᵀr, i.e. for every curvature
    below 0.05 of a network with 5,000 parameters in float32.
    """
    size = norm(right_side)
    threshold = jnp.asarray(tolerance, size.dtype) * size
    is_damped = not (isinstance(ridge, (int, float)) and ridge == 0)  # what is not needed is not computed

    def damped(v: PyTree) -> PyTree:
        if not is_damped:
            return operator(v)
        return jax.tree.map(lambda av, v: av + jnp.asarray(ridge, v.dtype) * v, operator(v), v)

    def shifted(base: PyTree, factor: Array, direction: PyTree) -> PyTree:
        return jax.tree.map(lambda b, d: b + factor.astype(d.dtype) * d, base, direction)

    def unfinished(carry: tuple[Any, ...]) -> Array:
        _, _, _, square, _, step = carry
        return (jnp.sqrt(square) > threshold) & (step < max_steps)

    def iterate(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, residual, direction, square, direction_square, step = carry
        image = damped(direction)
        curvature = inner_product(direction, image)
        curved = curvature > (0.5 * jnp.asarray(ridge, size.dtype) * direction_square if is_damped else 0)
        length = jnp.where(curved, square / jnp.where(curved, curvature, 1), 0)
        x = shifted(x, length, direction)
        residual = shifted(residual, -length, image)
        new_square = squared_norm(residual)
        share = new_square / square
        direction = shifted(residual, share, direction)
        if is_damped:  # the new residual is orthogonal to the old direction, so the squares add up
            direction_square = new_square + share**2 * direction_square
        return x, residual, direction, new_square, direction_square, jnp.where(curved, step + 1, max_steps)

    residual = optax.tree.sub(right_side, damped(start))
    if not keep_start:
        helps = squared_norm(residual) <= squared_norm(right_side)
        start = optax.tree.where(helps, start, optax.tree.zeros_like(start))
        residual = optax.tree.where(helps, residual, right_side)
    square = squared_norm(residual)
    first = (start, residual, residual, square, square, jnp.zeros((), jnp.int32))
    x, _, _, square, *_ = jax.lax.while_loop(unfinished, iterate, first)
    # Comparisons with NaN end the loop at x = start: without this, a system that is not finite would look solved.
    x = jax.tree.map(lambda x: jnp.where(jnp.isfinite(square), x, jnp.nan), x)
    return x, jnp.sqrt(square)


def inner_product(one: PyTree, other: PyTree) -> Float[Array, ""]:
    """Σ of elementwise products over two pytrees of the same structure, in float32 or wider."""
    with jax.numpy_dtype_promotion("standard"):  # leaves may differ in dtype
        pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
        products = [jnp.vdot(*(leaf.astype(at_least_single(leaf.dtype)) for leaf in pair)) for pair in pairs]
        return jnp.asarray(sum(products))


def squared_norm(tree: PyTree) -> Float[Array, ""]:
    return inner_product(tree, tree)


def norm(tree: PyTree) -> Float[Array, ""]:
    return jnp.sqrt(squared_norm(tree))


def cosine(one: PyTree, other: PyTree) -> Float[Array, ""]:
    """The cosine of the angle between two pytrees; 0 where one of them is zero."""
    sizes = norm(one) * norm(other)
    return jnp.where(sizes > 0, inner_product(one, other) / jnp.where(sizes > 0, sizes, 1), 0)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)], bool))


def ratio(numerator: Float[Array, ""], denominator: Float[Array, ""]) -> Float[Array, ""]:
    """numerator / denominator, with 0/0 = 0; what is not finite stays so."""
    return jnp.where((numerator == 0) & (denominator == 0), 0, numerator / denominator)


def at_least_single(dtype: Any) -> Any:
    """float32 for half precision, whose squares overflow at 256 and whose sums lose digits; else the same."""
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.dtype(jnp.float32)
