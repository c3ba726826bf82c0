import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothfbo.algebra import conjugate_gradient, inner_product, norm, solve_positive, transposed_product


def positive(seed, size):
    factor = np.random.default_rng(seed).normal(size=(size, size + 2))
    return factor @ factor.T / size + 0.1 * np.eye(size)


@given(seed=st.integers(0, 10**6), size=st.sampled_from([1, 2, 3, 4, 12]))
def test_solve_positive_agrees_with_lapack(seed, size):
    matrix, vector = positive(seed, size), np.random.default_rng(seed + 1).normal(size=size)
    np.testing.assert_allclose(
        jax.jit(solve_positive)(jnp.asarray(matrix), jnp.asarray(vector)),
        np.linalg.solve(matrix, vector),
        rtol=1e-8,
    )


def test_solve_positive_under_vmap_and_grad():
    matrices = jnp.stack([jnp.asarray(positive(seed, 4)) for seed in range(5)])
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(5, 4)))
    solutions = jax.jit(jax.vmap(solve_positive))(matrices, vectors)
    np.testing.assert_allclose(jnp.einsum("bij,bj->bi", matrices, solutions), vectors, rtol=1e-9, atol=1e-12)
    gradient = jax.grad(lambda b: jnp.sum(solve_positive(matrices[0], b)))(vectors[0])
    np.testing.assert_allclose(gradient, np.linalg.solve(matrices[0], np.ones(4)), rtol=1e-9)


def test_transposed_product_under_vmap():
    random = np.random.default_rng(3)
    one, other = random.normal(size=(4, 3, 2)), random.normal(size=(4, 3, 5))
    found = jax.jit(jax.vmap(transposed_product))(jnp.asarray(one), jnp.asarray(other))
    np.testing.assert_allclose(found, np.einsum("bri,brj->bij", one, other), rtol=1e-5, atol=1e-6)


def test_solve_positive_says_nan_when_the_matrix_is_not_positive():
    assert not np.isfinite(solve_positive(-jnp.eye(2), jnp.ones(2))).any()


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_conjugate_gradient_agrees_with_lapack(ridge):
    matrix, vector = positive(3, 9), np.arange(1.0, 10)
    tree = {"a": jnp.asarray(vector[:4]), "b": jnp.asarray(vector[4:])}

    def operator(v):
        image = jnp.asarray(matrix) @ jnp.concatenate([v["a"], v["b"]])
        return {"a": image[:4], "b": image[4:]}

    x, residual = conjugate_gradient(
        operator, tree, jax.tree.map(jnp.ones_like, tree), tolerance=1e-12, max_steps=50, ridge=ridge
    )
    expected = np.linalg.solve(matrix + ridge * np.eye(9), vector)
    np.testing.assert_allclose(jnp.concatenate([x["a"], x["b"]]), expected, rtol=1e-9)
    assert residual < 1e-12 * np.linalg.norm(vector)


def test_conjugate_gradient_reports_the_true_residual_when_stopped():
    matrix, vector = jnp.asarray(positive(4, 9)), jnp.arange(1.0, 10)
    x, residual = conjugate_gradient(lambda v: matrix @ v, vector, jnp.zeros(9), tolerance=1e-12, max_steps=3)
    np.testing.assert_allclose(residual, jnp.linalg.norm(vector - matrix @ x), rtol=1e-10)
    assert residual > 1e-3


def test_conjugate_gradient_stops_at_negative_curvature():
    diagonal = jnp.array([2.0, 1.0, -1e-9, -3.0])
    for ridge in (0.0, 0.1):
        x, residual = conjugate_gradient(
            lambda v: diagonal * v,
            jnp.array([1.0, 1.0, 1.0, 0.5]),
            jnp.zeros(4),
            tolerance=1e-10,
            max_steps=99,
            ridge=ridge,
        )
        assert np.isfinite(x).all()
        assert norm(x) < 100
        assert residual > 1e-3


def test_conjugate_gradient_stops_where_the_ridge_alone_holds_up_a_later_direction():
    """A + ρI = diag(11, 0.4): along the second direction, computed here, less than half of ρ‖p‖² is left."""
    b, matrix = np.array([1.0, 1.0]), np.diag([11.0, 0.4])
    length = (b @ b) / (b @ matrix @ b)
    residual = b - length * (matrix @ b)
    direction = residual + (residual @ residual) / (b @ b) * b
    assert 0 < direction @ matrix @ direction < 0.5 * direction @ direction
    x, left = conjugate_gradient(
        lambda v: jnp.asarray([10.0, -0.6]) * v, jnp.asarray(b), jnp.zeros(2), tolerance=1e-8, max_steps=10, ridge=1.0
    )
    np.testing.assert_allclose(x, length * b, rtol=1e-12)
    np.testing.assert_allclose(left, np.linalg.norm(residual), rtol=1e-12)


def test_conjugate_gradient_drops_a_start_that_is_worse_than_zero():
    matrix, vector = jnp.asarray(positive(5, 4)), jnp.ones(4)
    good, _ = conjugate_gradient(lambda v: matrix @ v, vector, jnp.zeros(4), tolerance=1e-10, max_steps=2)
    bad, _ = conjugate_gradient(lambda v: matrix @ v, vector, jnp.full(4, 1e9), tolerance=1e-10, max_steps=2)
    np.testing.assert_array_equal(good, bad)


def test_conjugate_gradient_with_zero_right_side():
    x, residual = conjugate_gradient(lambda v: v, jnp.zeros(3), jnp.zeros(3), tolerance=1e-6, max_steps=5)
    np.testing.assert_array_equal(x, 0)
    assert residual == 0


def test_norm_of_mixed_and_half_precision_trees_does_not_overflow():
    tree = {"half": jnp.full(4, 300.0, jnp.float16), "double": jnp.full((), 800.0, jnp.float64)}
    np.testing.assert_allclose(norm(tree), 1000.0, rtol=1e-6)
    np.testing.assert_allclose(inner_product(tree, tree), 1e6, rtol=1e-6)
