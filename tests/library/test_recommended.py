"""The recommended algorithm: what it is made of, and that it follows answers that move without a rate to choose."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from problems import RIDGE_PROBLEM, linear

import smoothfbo as sf
from smoothfbo.testbeds import MovingSources

ROUNDS = 300


def mean_gaps(make, build, numbers, seeds):
    """The mean exact gap over the second half of the rounds, and over seeds, for every number."""

    def lane(number, seed):
        testbed = make(seed)
        _, outer = sf.run(
            build(testbed, number), testbed.source(), testbed.initial(), rounds=ROUNDS, key=jax.random.key(seed + 7),
            record=lambda state, info: info.outer,
        )  # fmt: skip
        times = jnp.arange(ROUNDS // 2, ROUNDS, 10)
        return jnp.mean(jax.lax.map(lambda each: testbed.gap(*each), (times, outer[ROUNDS // 2 :: 10])))

    lanes = jax.jit(jax.vmap(jax.vmap(lane, in_axes=(None, 0)), in_axes=(0, None)))
    return np.asarray(lanes(jnp.asarray(numbers), jnp.asarray(seeds))).mean(axis=1)


def test_it_is_a_composition_of_the_parts(key):
    project = optax.projections.projection_non_negative
    algorithm = sf.smooth_fbo(RIDGE_PROBLEM, linear(), project=project, windows=(1, 2), length=0.1)
    estimator = sf.Replayed(sf.Functional(linear(), linear()), (1, 2))
    assert isinstance(algorithm, sf.Online)
    assert jax.tree.structure(algorithm.estimator) == jax.tree.structure(estimator)
    assert algorithm.project is project


def test_untuned_it_is_no_worse_than_the_best_rate_of_fbo():
    """A decade of first lengths against a grid of rates, judged by the exact gap."""

    def make(seed):
        return MovingSources(seed=seed, period=150.0)

    def fbo(testbed, rate):
        estimator = sf.Functional(testbed.linear(), testbed.linear())
        return sf.Online(testbed.problem(), estimator, optax.sgd(rate), project=testbed.project)

    def ours(testbed, length):
        return sf.smooth_fbo(testbed.problem(), testbed.linear(), project=testbed.project, length=length)

    tuned, untuned = mean_gaps(make, fbo, [3.0, 10.0, 30.0], range(3)), mean_gaps(make, ours, [1e-2, 1e-1], range(3))
    assert tuned.min() < 0.5 * tuned.max()
    assert untuned.max() < 1.1 * tuned.min(), (untuned, tuned)
