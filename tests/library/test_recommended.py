"""The recommended algorithm: what it is made of, and that it follows answers that move without a rate to choose."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
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
    algorithm = sf.smooth_fbo(RIDGE_PROBLEM, linear(), project=project, window=2, damping=0.5, length=0.1)
    own = sf.Functional(linear().damped(0.5), linear().damped(0.5))
    plain = sf.Functional(linear(), linear())
    estimator = sf.Replayed(plain, 2, own=own, learns_span=True)
    assert isinstance(algorithm, sf.Online)
    assert jax.tree.structure(algorithm.estimator) == jax.tree.structure(estimator)
    assert eqx.tree_equal(algorithm.estimator, estimator)
    assert algorithm.project is project
    steps, zeros = algorithm.optimiser, jnp.zeros(3)
    np.testing.assert_allclose(steps.init(zeros).lengths.sum(), 0.1)
    # Its steps know the projection: a set that is one point leaves nothing of the judge.
    point = sf.smooth_fbo(RIDGE_PROBLEM, linear(), project=jnp.zeros_like).optimiser
    gradients = sf.Candidates((zeros + 1, zeros + 1), zeros + 1)
    assert point.update(zeros + 1, point.init(zeros + 1), zeros + 1, candidates=gradients)[1].judged == 0
    assert steps.update(zeros + 1, steps.init(zeros + 1), zeros + 1, candidates=gradients)[1].judged > 0


def test_a_network_is_corrected_and_does_not_run_away(key):
    """λ scales the targets, and the answer is 1. Trained alone the network lags behind, and the steps grow for ever."""

    def source(round, key):
        x = jax.random.normal(key, (2, 32, 2))
        inner, outer = (sf.Samples(each, jnp.sin(each[:, 0])) for each in x)
        return sf.Data(inner, outer)

    problem = sf.Problem(lambda outer, v, x, y: (v - outer * y) ** 2, lambda outer, v, x, y: (v - y) ** 2)
    network = sf.Network(lambda key: eqx.nn.MLP(2, "scalar", 8, 1, jax.nn.gelu, key=key), optax.adam(3e-3), steps=2)
    algorithm = sf.smooth_fbo(problem, network)
    assert not algorithm.estimator.learns_span  # its features were trained on the window: no round can judge that
    _, trace = sf.run(algorithm, source, jnp.zeros(()), rounds=300, key=key)
    np.testing.assert_allclose(trace.outer[100:], 1.0, atol=0.5)
    np.testing.assert_allclose(trace.outer[200:].mean(), 1.0, atol=0.1)
    pair = sf.Network.from_pair(lambda key, x: jnp.zeros(2), lambda params, x: params @ x, optax.sgd(0.1), 1)
    with pytest.raises(ValueError, match="smooth_fbo needs an inner function that is solved in every round"):
        sf.smooth_fbo(problem, pair)
    with pytest.raises(TypeError, match=r"problem first and the inner function second"):
        sf.smooth_fbo(network, problem)
    module = eqx.nn.MLP(2, "scalar", 8, 1, key=key)
    with pytest.raises(TypeError, match=r"got MLP\. A module goes into a Network"):
        sf.start(sf.smooth_fbo(problem, module), source, jnp.zeros(()), key)


def test_a_penalty_that_the_correction_undoes_is_said():
    def init(key):
        return eqx.nn.MLP(2, "scalar", 8, 1, key=key)

    penalised = sf.Network(init, optax.adam(1e-3), steps=2, penalty=lambda params: 0.1 * optax.tree.norm(params) ** 2)
    with pytest.warns(UserWarning, match="undoes a part of it"):
        sf.smooth_fbo(RIDGE_PROBLEM, penalised)
    sf.smooth_fbo(RIDGE_PROBLEM, sf.Network(init, optax.adam(1e-3), steps=2))  # warnings are errors here


def test_an_inner_relation_that_moves_within_the_window(key):
    """The sign of the inner relation flips every ten rounds, the answer stays: the window must get shorter. With all
    of its twenty rounds λ ends farther away than where it began."""

    def source(round, key):
        keys = jax.random.split(key, 4)
        x, sign = jax.random.normal(keys[0], (2, 20, 3)), jnp.where((round // 10) % 2 == 0, 1.0, -1.0)
        noise = 0.5 * jax.random.normal(keys[1], (20, 3))
        y = sign * x[1] @ jnp.array([1.0, -1.0, 0.5]) + 0.5 * jax.random.normal(keys[2], (20,))
        return sf.Data(sf.Samples(x[0], sign * x[0] + noise), sf.Samples(x[1], y))

    problem = sf.Problem(lambda outer, v, x, y: jnp.sum((v - y) ** 2), lambda outer, v, x, y: (v @ outer - y) ** 2)
    algorithm = sf.smooth_fbo(problem, sf.Linear(lambda x: x, prediction=jnp.zeros(3), ridge=1e-4))
    final, outer = sf.run(algorithm, source, jnp.zeros(3), rounds=200, key=key, record=lambda state, info: info.outer)
    errors = np.sum((np.asarray(outer) - np.array([1.0, -1.0, 0.5])) ** 2, axis=1)
    assert final.learner.estimator.span.span < 12
    assert errors[100:].mean() < 0.1, errors[100:].mean()


def test_a_round_need_not_determine_the_inner_function(key):
    """Fewer samples than features: the first round is skipped, and said to be; later the longest window has enough."""

    def source(round, key):
        x = jax.random.normal(key, (2, 4, 8))
        return sf.Data(sf.Samples(x[0], x[0, :, 0]), sf.Samples(x[1], x[1, :, 0]))

    problem = sf.Problem(lambda outer, v, x, y: (v - outer * y) ** 2, lambda outer, v, x, y: (v - y) ** 2)
    algorithm = sf.smooth_fbo(problem, sf.Linear(lambda x: x), window=4)
    final, trace = sf.run(algorithm, source, jnp.zeros(()), rounds=60, key=key)
    assert not trace.finite[0]
    assert trace.finite[4:].all()
    np.testing.assert_allclose(final.learner.outer, 1.0, atol=0.1)


def test_untuned_it_is_no_worse_than_the_best_rate_of_fbo():
    """A decade of first lengths against a grid of rates, judged by the exact gap."""

    def make(seed):
        return MovingSources(seed=seed)

    def fbo(testbed, rate):
        estimator = sf.Functional(testbed.linear(), testbed.linear())
        return sf.Online(testbed.problem(), estimator, optax.sgd(rate), project=testbed.project)

    def ours(testbed, length):
        return sf.smooth_fbo(testbed.problem(), testbed.linear(), project=testbed.project, length=length)

    tuned, untuned = mean_gaps(make, fbo, [3.0, 10.0, 30.0], range(3)), mean_gaps(make, ours, [1e-2, 1e-1], range(3))
    assert tuned.min() < 0.5 * tuned.max()
    assert untuned.max() < 1.1 * tuned.min(), (untuned, tuned)
