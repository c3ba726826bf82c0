"""A method and a problem of your own in the arena:

smoothfbo arena --add examples/arena_plugin.py
"""

import jax
import jax.numpy as jnp
import optax

import smoothfbo as sf
from smoothfbo.studies.arena import ArenaMethod, ArenaProblem
from smoothfbo.testbeds import AbstractTestbed


def momentum(testbed, rate, window):
    """FBO whose steps have momentum 1 − 1/w: a window that falls off, and that fits into one gradient."""
    estimator = sf.Functional(testbed.inner(), testbed.adjoint())
    optimiser = optax.sgd(rate / window, momentum=1 - 1 / window)
    return sf.Online(testbed.problem(), estimator, optimiser, project=testbed.project)


METHOD = ArenaMethod("momentum", momentum, label="FBO with momentum", colour="#e69f00", windows=(4, 16))


class MovingTarget(AbstractTestbed):
    """y = c_tᵀx + noise with c_t on a circle; the inner solution is λᵀx, so that F_t(λ) = ‖λ − c_t‖² + σ²."""

    phase: jax.Array
    noise: float = 0.3

    def centre(self, round):
        angle = 2 * jnp.pi * round.astype(float) / 300 + self.phase
        return jnp.stack([jnp.cos(angle), jnp.sin(angle)])

    def objective(self, round, outer):
        return jnp.sum((outer - self.centre(round)) ** 2) + self.noise**2

    def best(self, round):
        return self.centre(round)

    def problem(self):
        return sf.Problem(
            inner_loss=lambda outer, v, x, y: (v - outer @ x) ** 2,
            outer_loss=lambda outer, v, x, y: (v - y) ** 2,
        )

    def source(self):
        def draw(round, key):
            x, noise = (
                jax.random.normal(key, (16, 2)),
                self.noise * jax.random.normal(jax.random.fold_in(key, 1), (16,)),
            )
            samples = sf.Samples(x, x @ self.centre(round) + noise)
            return sf.Data(inner=samples, outer=samples)

        return sf.as_source(draw)

    def initial(self):
        return jnp.zeros(2)

    def linear(self):
        return sf.Linear(lambda x: x, ridge=1e-3)


PROBLEM = ArenaProblem(
    "target",
    lambda seed: MovingTarget(jax.random.uniform(jax.random.key(seed), maxval=2 * jnp.pi)),
    rates=(3e-3, 1.0),
    lengths=(3e-3, 1.0),
    label="Moving target",
)
