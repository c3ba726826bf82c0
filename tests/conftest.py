"""Strict session: float64, no implicit dtype promotion, warnings are errors, jaxtyping checked at run time."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jaxtyping
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_disable_most_optimizations", True)  # most of the time goes into compiling

# Compilation makes the first example slow, so no deadlines; derandomised, so that a failure can be repeated.
settings.register_profile(
    "default", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


@pytest.fixture
def as_users_call():
    """Without run-time type checks, as users call the library: its own messages must do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def optimised():
    """Programs compiled as users have them, for tests of memory and for long computations."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def key():
    return jax.random.key(20240229)
