"""Which rounds have outer samples that are far off? A window would keep them for all of its rounds."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

MEMORY = 0.9  # share of the old mean in the running mean of sizes
WILD = 10.0  # times the usual size of the outer loss


class WildState(NamedTuple):
    usual: Float[Array, ""]  # running mean of the size of the outer loss; 0 before the first round
    before: Bool[Array, ""]  # whether the last round was wild


def nothing_wild() -> WildState:
    return WildState(jnp.zeros(()), jnp.asarray(False))


def judge_round(state: WildState, loss: Float[Array, ""]) -> tuple[Bool[Array, ""], WildState]:
    """A round is wild where |L_out| is more than ten times its usual size, and the round before was not wild.

    The usual size is a running mean over the other rounds. Two such rounds in a row are a change of the problem, and
    the second one counts. What is not finite says nothing.
    """
    size = jnp.abs(loss).astype(state.usual.dtype)
    usable, is_known = jnp.isfinite(size), state.usual > 0
    is_wild = usable & is_known & ~state.before & (size > WILD * state.usual)
    mean = jnp.where(is_known, MEMORY * state.usual + (1 - MEMORY) * size, size)
    return is_wild, WildState(jnp.where(usable & ~is_wild, mean, state.usual), is_wild)
