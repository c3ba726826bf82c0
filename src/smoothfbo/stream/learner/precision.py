"""The stream learner computes in float64 and on the CPU, whatever the rest of the program does."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Second moments need float64. The work is many small steps, which the CPU does best."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(jax.enable_x64(True))
        with contextlib.suppress(RuntimeError):  # no CPU among the platforms that are allowed
            stack.enter_context(jax.default_device(jax.devices("cpu")[0]))
        yield
