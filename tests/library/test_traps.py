"""Mistakes that would run and give a wrong answer get a sentence; what only looks like one does not."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, phi, ridge_data, trained_linear
from reference import Ridge

import smoothfbo as sf

pytestmark = pytest.mark.usefixtures("as_users_call")

KEY = jax.random.key(0)
DATA = ridge_data(Ridge.draw(0))
ORACLE = sf.Online(estimator=sf.Oracle(lambda outer, data, key: outer * jnp.mean(data)), optimiser=optax.sgd(0.1))


def start(source, algorithm=ORACLE):
    return sf.start(algorithm, source, jnp.ones(2), KEY)


GENERATOR = np.random.default_rng(0)
TABLE = np.arange(12.0).reshape(4, 3)


# Sources


def test_a_source_of_other_arguments():
    for source in (lambda round: jnp.ones(3), lambda: jnp.ones(3), lambda round, key, extra: jnp.ones(3)):
        with pytest.raises(
            TypeError, match=r"source must be a function of \(round, key\), got <function .*: .*argument"
        ):
            start(source)
    with pytest.raises(TypeError, match=r"source must be a function of \(round, key\), got one of \(key, round\)\."):
        start(lambda key, round: jax.random.normal(key, (3,)))
    start(lambda *both: jax.random.normal(both[1], (3,)))
    start(lambda round, key, size=3: jax.random.normal(key, (size,)))


@pytest.mark.parametrize(
    "source",
    [
        lambda round, key: GENERATOR.normal(size=3),
        lambda round, key: jnp.asarray(GENERATOR.normal(size=3)) * jax.random.normal(key),
        lambda round, key: jax.random.normal(key, (3,)) + GENERATOR.normal(),
        lambda round, key: jnp.sin(jnp.asarray(GENERATOR.integers(100), float)) + round.astype(float) * jnp.ones(2),
        jax.jit(lambda round, key: jax.random.normal(key, (3,)) + GENERATOR.normal()),
    ],
)
def test_random_numbers_of_numpy_in_a_source(source):
    with pytest.raises(ValueError, match=r"draws them outside of JAX, e.g. with numpy.random; .* use jax.random"):
        start(source)


@pytest.mark.parametrize(
    "source",
    [
        lambda round, key: jnp.ones(3),
        lambda round, key: TABLE,
        lambda round, key: jax.random.normal(jax.random.key(3), (3,)),
        jax.jit(lambda round, key: jnp.sin(jnp.asarray(TABLE))),
    ],
)
def test_a_source_that_uses_neither_round_nor_key(source):
    with pytest.warns(UserWarning, match=r"neither the round nor the key, .* smoothfbo.RepeatedSource\(data\)"):
        start(source)


@pytest.mark.parametrize(
    "source",
    [
        lambda round, key: jax.random.normal(key, (3,)),
        lambda round, key: jnp.asarray(TABLE)[round],
        lambda round, key: jnp.sin(jnp.asarray(TABLE)) * round.astype(float),
        lambda round, key: jax.lax.scan(lambda c, _: (c + round, c), jnp.zeros((), jnp.int32), length=3)[1].astype(
            float
        ),
        lambda round, key: np.random.default_rng(5).normal(size=3) + jax.random.normal(key),  # the same again
        lambda round, key: jnp.concatenate([jnp.asarray(TABLE)[0], jax.random.uniform(key, (2,))]),
        lambda round, key: sf.Round(jax.random.normal(key)),
        sf.RepeatedSource(TABLE),
        sf.RecordedSource(TABLE),
    ],
)
def test_sources_that_are_fine(source):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        start(source)


def test_the_source_is_not_looked_at_again_when_it_is_run_again():
    calls = []

    def source(round, key):
        calls.append(1)
        return jax.random.normal(key, (3,))

    start(source)
    first = len(calls)
    start(source)
    assert len(calls) == first


def test_a_repeated_source_repeats():
    algorithm = sf.Online(estimator=ORACLE.estimator, optimiser=optax.sgd(0.5))
    final, _ = sf.run(algorithm, sf.RepeatedSource(np.array([1.0, 3.0])), jnp.ones(2), rounds=3, key=KEY)
    np.testing.assert_allclose(final.learner.outer, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    "source",
    [
        lambda round, key: TABLE[round],
        lambda round, key: [jnp.ones(2), jnp.zeros(2)][round],
        lambda round, key: TABLE[int(round)],
        lambda round, key: jnp.ones(2) if round > 3 else jnp.zeros(2),
        lambda round, key: np.sin(round),
    ],
)
def test_a_source_that_needs_the_value_of_the_round(source):
    with pytest.raises(TypeError, match=r"index JAX arrays, jnp.asarray\(array\)\[round\], in place of NumPy arrays"):
        start(source)


def test_text_in_data():
    words = np.array(["cat", "dog"] * 20)
    text = DATA._replace(inner=DATA.inner._replace(y={**DATA.inner.y, "target": words}))
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"data.inner.y\['target'\] has dtype <U3, .* numpy.unique"):
        algorithm.init(jnp.zeros(3), text, KEY)
    with pytest.raises(TypeError, match=r"data.inner.y\['target'\] has dtype <U3"):
        sf.start(algorithm, lambda round, key: text, jnp.zeros(3), KEY)
    objects = DATA._replace(outer=DATA.outer._replace(x=np.array([None] * 30)))
    with pytest.raises(TypeError, match=r"data.outer.x has dtype object"):
        algorithm.init(jnp.zeros(3), objects, KEY)
    with pytest.raises(TypeError, match="has dtype <U"):
        sf.RecordedSource(np.array([["a"], ["b"]]))


# Losses


def init(problem, outer=None, data=DATA, inner=None):
    algorithm = sf.Online(problem, sf.Functional(inner or linear(), linear()), optax.sgd(0.1))
    return algorithm.init(jnp.zeros(3) if outer is None else outer, data, KEY)


def weighted(weight):
    return sf.Problem(
        lambda outer, v, x, y: 0.5 * weight(outer, y["group"]) * (v - y["target"]) ** 2,
        lambda outer, v, x, y: 0.5 * (v - y["target"]) ** 2,
    )


@pytest.mark.parametrize(
    "loss",
    [
        lambda v, outer, x, y: (v - jnp.sum(outer)) ** 2,
        lambda prediction, outer, x, y: (prediction - jnp.sum(outer)) ** 2,
        lambda outer, v, y, x: jnp.exp(jnp.sum(outer)) * (v - y) ** 2,
        lambda outer, v, x: jnp.exp(jnp.sum(outer)) * v**2,
        3.0,
    ],
)
def test_a_loss_of_other_arguments(loss):
    """λ and the prediction may both be scalars, and x and y, too: then nothing else would tell them apart."""
    samples = sf.Samples(DATA.inner.x, jnp.ones(40))
    problem = sf.Problem(loss, lambda outer, v, x, y: (v - y) ** 2)
    with pytest.raises(TypeError, match=r"inner_loss must be a function of \(outer, prediction, x, y\), got "):
        init(problem, jnp.zeros(()), sf.Data(samples, samples))
    # other names, and names in other places that may be meant
    for fine in (lambda w, p, a, b: jnp.exp(w) * (p - b) ** 2, lambda x, v, inputs, y: jnp.exp(x) * (v - y) ** 2):
        init(sf.Problem(fine, fine), jnp.zeros(()), sf.Data(samples, samples))
    with pytest.raises(TypeError, match=r"gradient must be a function of \(outer, data, key\), got one of \(data, "):
        start(jnp.ones((4, 2)), sf.Online(estimator=sf.Oracle(lambda data, outer, key: outer), optimiser=optax.sgd(1)))


@pytest.mark.parametrize(
    ("weight", "outer"),
    [
        (lambda outer, group: jnp.exp(outer[group]), jnp.zeros(2)),
        (lambda outer, group: jnp.exp(outer)[group + 1], jnp.zeros(3)),
        (lambda outer, group: jax.nn.softplus(outer)[5], jnp.zeros(3)),
        (lambda outer, group: jnp.exp(outer["w"][group] + outer["b"]), {"w": jnp.zeros(2), "b": jnp.zeros(())}),
        (lambda outer, group: jnp.sum(jax.nn.softmax(outer)[jnp.stack([group, group])]), jnp.zeros(2)),
        (lambda outer, group: jnp.exp(outer[0, group]), jnp.zeros((1, 2))),
    ],
)
def test_an_index_out_of_range_into_the_outer_variable(weight, outer):
    with pytest.raises(ValueError, match=r"inner_loss indexes the outer variable out of range \(index \d is out of"):
        init(weighted(weight), outer)


def test_an_index_out_of_range_is_found_where_the_caller_is_traced():
    """Data that a compiled function closes over are known when it is traced."""
    problem, estimator = weighted(lambda outer, group: jnp.exp(outer[group])), sf.Functional(linear(), linear())
    state = jax.jit(lambda: estimator.init(problem, np.zeros(3), DATA, KEY))()
    assert state.inner.params.shape == (3,)
    with pytest.raises(ValueError, match="inner_loss indexes the outer variable out of range"):
        jax.jit(lambda: estimator.init(problem, np.zeros(2), DATA, KEY))()


@pytest.mark.parametrize(
    ("weight", "outer"),
    [
        (lambda outer, group: jnp.exp(outer[group]), jnp.zeros(3)),
        (lambda outer, group: jnp.exp(outer[group - 3]), jnp.zeros(3)),  # from the end
        (lambda outer, group: 1 + outer.at[group].get(mode="fill", fill_value=0), jnp.zeros(2)),
        (lambda outer, group: jnp.exp(outer[jnp.minimum(group, 1)]), jnp.zeros(2)),
        (lambda outer, group: jnp.exp(outer[0]) * jnp.arange(1.0, 3)[group], jnp.zeros(3)),  # another array
    ],
)
def test_indices_that_are_fine(weight, outer):
    init(weighted(weight), outer)


CROSS_ENTROPIES = {
    "indexed": lambda v, y: -jax.nn.log_softmax(v)[y],
    "optax": optax.softmax_cross_entropy_with_integer_labels,
    "filled": lambda v, y: jax.nn.logsumexp(v) - v.at[y].get(mode="fill", fill_value=0),
}


@pytest.mark.parametrize("loss", CROSS_ENTROPIES)
def test_classes_that_are_numbered_from_one(loss):
    """JAX takes the class before, or the loss is NaN and its gradient is not."""
    entropy = CROSS_ENTROPIES[loss]
    problem = sf.Problem(lambda outer, v, x, y: jnp.exp(outer[0]) * entropy(v, y), lambda outer, v, x, y: entropy(v, y))
    inner = sf.Network(lambda key: eqx.nn.MLP(2, 3, 4, 1, key=key), optax.sgd(0.1), 1)
    algorithm = sf.Online(problem, sf.Functional(inner, inner), optax.sgd(0.1))
    samples = [sf.Samples(DATA.inner.x, first + jnp.arange(40) % 3) for first in (0, 1)]
    algorithm.init(jnp.zeros(1), sf.Data(samples[0], samples[0]), KEY)
    wrong = sf.Data(samples[0], samples[1])
    if loss == "filled":  # meant
        algorithm.init(jnp.zeros(1), wrong, KEY)
        return
    with pytest.raises(
        ValueError, match=r"outer_loss indexes the prediction out of range \(index 3 is out of .* from 0"
    ):
        algorithm.init(jnp.zeros(1), wrong, KEY)


def test_a_scalar_prediction_against_a_vector():
    data = sf.Data(*(2 * (sf.Samples(DATA.inner.x, jnp.ones((40, 3))),)))
    problem = sf.Problem(*(2 * (lambda outer, v, x, y: jnp.exp(outer[0]) * jnp.sum((v - y) ** 2),)))
    huber = sf.Problem(*(2 * (lambda outer, v, x, y: jnp.exp(outer[0]) * jnp.mean(optax.huber_loss(v, y)),)))
    for each in (problem, huber):
        with pytest.raises(ValueError, match=r"broadcasts the prediction, a scalar, .* \(3,\): .*jnp.zeros\(3\)"):
            init(each, data=data)
    init(problem, data=data, inner=sf.Linear(phi, prediction=jnp.zeros(()), ridge=0.1))  # meant
    unpacked = sf.Problem(*(2 * (lambda outer, v, x, y: jnp.exp(outer[0]) * y[1] * (v - y[0]) ** 2,)))
    init(unpacked, data=data)
    weighted = sf.Problem(*(2 * (lambda outer, v, x, y: jnp.exp(outer[0]) * (v - outer @ y) ** 2,)))
    init(weighted, data=data)


def test_targets_with_an_axis_of_one():
    data = sf.Data(*(2 * (sf.Samples(DATA.inner.x, jnp.ones((40, 1))),)))
    problem = sf.Problem(*(2 * (lambda outer, v, x, y: jnp.exp(outer[0]) * (v - y) ** 2,)))
    with pytest.raises(ValueError, match=r"got f64\[1\] from a prediction f64\[\] and y=f64\[1\]: drop .*0\]"):
        init(problem, data=data)
    wide = sf.Linear(phi, prediction=jnp.zeros(1))
    flat = sf.Data(*(2 * (sf.Samples(DATA.inner.x, jnp.ones(40)),)))
    with pytest.raises(ValueError, match=r"prediction f64\[1\] and y=f64\[\]: let the function predict a scalar"):
        init(problem, data=flat, inner=wide)


# Runs


def without_norms(state, info):
    return info._replace(gradient=None, smoothed=None, gradient_norm=None, implicit_norm=None)


def test_a_run_that_mostly_skipped():
    batches = jnp.ones(8).at[jnp.array([1, 2, 3, 5, 7])].set(jnp.nan)
    with pytest.warns(UserWarning, match="5 of 8 rounds were skipped because their hypergradient was not finite"):
        sf.run(ORACLE, batches, jnp.ones(2), rounds=8, key=KEY)
    with pytest.warns(UserWarning, match="3 of 4 rounds were skipped because their hypergradient or update was not"):
        final, _ = sf.run(ORACLE, batches, jnp.ones(2), rounds=4, key=KEY, record=lambda state, info: None)
    with pytest.warns(UserWarning, match="3 of 4 rounds were skipped because their hypergradient or update was not"):
        sf.run(ORACLE, batches, jnp.ones(2), rounds=4, key=KEY, record=without_norms)
    with pytest.warns(UserWarning, match="3 of 4 rounds were skipped"):
        sf.run(ORACLE, jnp.full(8, jnp.nan).at[5].set(1.0), rounds=4, state=final)
    polyak = sf.Online(estimator=ORACLE.estimator, optimiser=optax.polyak_sgd())  # an oracle without a value
    with pytest.warns(UserWarning, match="because their update, though not their hypergradient, was not finite"):
        sf.run(polyak, jnp.ones(8), jnp.ones(2), rounds=8, key=KEY)
    sf.run(ORACLE, batches[4:], jnp.ones(2), rounds=4, key=KEY)  # two of four: not most


@pytest.mark.parametrize(
    "inner_loss",
    [
        lambda outer, v, x, y: (v - y) ** 2,  # λ was forgotten
        lambda outer, v, x, y: jax.lax.stop_gradient(outer[0]) * (v - y) ** 2,
        lambda outer, v, x, y: (1 + jax.nn.sigmoid(outer[0] - 1e4)) * (v - y) ** 2,  # flat
    ],
)
def test_a_run_whose_hypergradient_is_always_zero(inner_loss):
    samples = sf.Samples(DATA.inner.x, jnp.ones(40))
    source = sf.RepeatedSource(sf.Data(samples, samples))
    algorithm = sf.Online(
        sf.Problem(inner_loss, lambda outer, v, x, y: v**2), sf.Functional(linear(), linear()), optax.sgd(0.1)
    )
    with pytest.warns(UserWarning, match="exactly 0 in all 3 rounds: λ stood still. Does inner_loss .* use outer"):
        sf.run(algorithm, source, jnp.ones(1), rounds=3, key=KEY)
    # What is not recorded is not called 0.
    sf.run(algorithm, source, jnp.ones(1), rounds=3, key=KEY, record=without_norms)
    still = sf.Online(estimator=ORACLE.estimator, optimiser=optax.sgd(0.1))  # an oracle at its optimum
    sf.run(still, jnp.ones(3), jnp.zeros(2), rounds=3, key=KEY)


def test_a_run_that_oscillates():
    """The issue's: the same rate, a window of 1 and of 20."""
    data = jnp.ones(150)
    for window in (1, 20):
        optimiser = optax.chain(sf.window_average(window), optax.sgd(1.0))
        algorithm = sf.Online(estimator=ORACLE.estimator, optimiser=optimiser)
        if window == 1:
            sf.run(algorithm, data, jnp.ones(2), rounds=150, key=KEY)
        else:
            with pytest.warns(UserWarning, match=r"of 150 rounds the moves of λ had raised the outer loss"):
                final, trace = sf.run(algorithm, data, jnp.ones(2), rounds=150, key=KEY)
            assert bool(trace.finite.all())
            assert np.abs(final.learner.outer).max() > 50
    jax.jit(lambda key: sf.run(algorithm, data, jnp.ones(2), rounds=150, key=key))(KEY)  # traced: silent


# Networks


class Torch:
    """Stands for a module of another library."""

    def __call__(self, x):
        return x


def module_of(library):
    return type("Module", (Torch,), {"__module__": library})


@pytest.mark.parametrize(
    ("library", "advice"),
    [
        ("torch.nn.modules.module", r"write it as an Equinox module"),
        ("flax.linen.module", r"Network.from_pair\(module.init, module.apply, \.\.\.\)"),
        ("flax.nnx.module", r"nnx.split"),
        ("haiku._src.module", r"hk.transform"),
    ],
)
def test_modules_of_other_libraries(library, advice):
    module = type("Net", (module_of(library),), {})
    for make in (module(), module, lambda key: module()):
        with pytest.raises(TypeError, match=rf"a Net of .*{advice}"):
            sf.Network(make, optax.sgd(0.1), 1)


def test_modules_that_map_samples_themselves():
    mlp = lambda key: eqx.nn.MLP(2, "scalar", 4, 1, key=key)  # noqa: E731
    for make in (
        lambda key: jax.vmap(mlp(key)),
        lambda key: eqx.filter_vmap(mlp(key)),
        jax.vmap(mlp(KEY)),
        lambda key: jax.jit(mlp(key)),
    ):
        with pytest.raises(TypeError, match=r"Network maps samples itself: return the module .* without jax.vmap"):
            sf.Network(make, optax.sgd(0.1), 1)
    assert trained_linear(1).steps == 1
