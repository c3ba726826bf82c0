"""Weights of samples: padding counts nowhere, whatever it holds, and a weight of 2 is a sample that is there twice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, ridge_data, trained_linear
from reference import Ridge

import smoothfbo as sf

OUTER = jnp.asarray([0.4, -0.7, 0.2])
ESTIMATORS = {
    "functional, linear": lambda: sf.Functional(linear(), linear()),
    "functional, trained": lambda: sf.Functional(
        trained_linear(3, batch_size=8), trained_linear(3, batch_size=8), batch_size=16
    ),
    "functional, point-wise": lambda: sf.Functional(trained_linear(3), sf.PointwiseAdjoint()),
    "functional, point-wise, mini-batch": lambda: sf.Functional(linear(), sf.PointwiseAdjoint(), batch_size=8),
    "functional, corrected": lambda: sf.Functional(
        trained_linear(3), linear(), correction=sf.FittedCorrection(linear()), batch_size=16
    ),
    "functional, corrected point-wise": lambda: sf.Functional(
        trained_linear(3), sf.PointwiseAdjoint(), correction=sf.PointwiseCorrection()
    ),
    "implicit, conjugate gradients": lambda: sf.Implicit(trained_linear(3), sf.ConjugateGradient()),
    "implicit, Neumann": lambda: sf.Implicit(trained_linear(3), sf.NeumannSeries(terms=3, step=0.3)),
    "implicit, identity": lambda: sf.Implicit(trained_linear(3, batch_size=8), sf.IdentityInverse(), batch_size=8),
    "implicit, exact fit": lambda: sf.Implicit(linear(), sf.ConjugateGradient()),
    "single loop": lambda: sf.SingleLoop(trained_linear(1), 0.3),
    "storm": lambda: sf.Storm(trained_linear(1), 0.3, 0.5),
    "first order": lambda: sf.FirstOrder(trained_linear(3, batch_size=8), 5.0),
    "re-evaluated": lambda: sf.Reevaluated(sf.Implicit(trained_linear(3)), 3),
    "unrolled": lambda: sf.Unrolled(trained_linear(3, batch_size=8), batch_size=8),
    "unrolled, exact fit": lambda: sf.Unrolled(linear()),
    "explicit": lambda: sf.Explicit(trained_linear(3), batch_size=8),
}


def paired(seed):
    """The same inputs inside and outside, with other targets: point-wise adjoints need that."""
    data = ridge_data(Ridge.draw(seed))
    shift = jnp.asarray(np.random.default_rng(seed).normal(size=40))
    return sf.Data(data.inner, sf.Samples(data.inner.x, {**data.inner.y, "target": data.inner.y["target"] + shift}))


def filled(data, value):
    """Padded data whose padding is `value`; the groups of the padding are far out of range."""

    def fill(leaf):
        if leaf.dtype == bool:
            return leaf
        counts = (np.arange(leaf.shape[0]) < 40).reshape(-1, *(1,) * (leaf.ndim - 1))
        return np.where(counts, leaf, np.asarray(value if leaf.dtype.kind == "f" else 99, leaf.dtype))

    return jax.tree.map(fill, data)


@functools.cache
def algorithm_of(name):
    return sf.Online(RIDGE_PROBLEM, ESTIMATORS[name](), optax.chain(sf.window_average(2), optax.adam(0.1)))


KINDS = (
    "functional, linear",
    "functional, corrected",
    "implicit, conjugate gradients",
)


@pytest.mark.parametrize(
    "name", [name if name in KINDS else pytest.param(name, marks=pytest.mark.thorough) for name in ESTIMATORS]
)
def test_padding_counts_nowhere(name, key):
    """Three rounds: gradients, losses, residuals and the whole state, whatever stands in the padding."""
    algorithm = algorithm_of(name)
    with_final = list(ESTIMATORS).index(name) % 2 == 1
    data = paired(0)._replace(final=paired(1) if with_final else None)
    plain = algorithm.init(OUTER, data, key)
    state = algorithm.init(OUTER, filled(sf.pad(data, 64), np.nan), key)
    for padding in (0.0, 1e3, np.nan):
        padded = filled(sf.pad(data, 64), padding)
        if np.isnan(padding):
            assert not np.isfinite(padded.inner.x).all()
        plain, expected = algorithm.step(plain, data)
        state, info = algorithm.step(state, padded)
        assert bool(info.finite)
        pair = [(state, info), (plain, expected)]
        if name == "re-evaluated":  # its state holds the data, with their padding
            pair = [(state.outer, state.optimiser, info), (plain.outer, plain.optimiser, expected)]
        for got, wanted in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(info.gradient, expected.gradient, rtol=0, atol=1e-12)


EXACT = ["functional, linear", "functional, point-wise"]


@pytest.mark.parametrize("name", EXACT)
def test_a_weight_of_two_is_a_sample_that_is_there_twice(name, key):
    algorithm, data = algorithm_of(name), paired(0)
    times = np.random.default_rng(3).integers(0, 4, size=40)
    rows = np.repeat(np.arange(40), times)
    repeated = jax.tree.map(lambda leaf: leaf[rows], data)
    weighted = jax.tree.map(
        lambda samples: samples._replace(weight=jnp.asarray(0.7 * times)),
        data,
        is_leaf=lambda node: isinstance(node, sf.Samples),
    )
    _, expected = algorithm.step(algorithm.init(OUTER, repeated, key), repeated)
    _, info = algorithm.step(algorithm.init(OUTER, weighted, key), weighted)
    for field in ("gradient", "explicit_norm", "implicit_norm", "inner_loss", "outer_loss", "inner_residual"):
        np.testing.assert_allclose(getattr(info, field), getattr(expected, field), rtol=1e-10, atol=1e-13)


def test_mini_batches_are_drawn_in_proportion_to_the_weights(key):
    weight = jnp.asarray([0.0, 1.0, 0.0, 3.0, 4.0, 0.0])
    samples = sf.Samples(jnp.arange(6.0), jnp.arange(6), weight)
    batch = samples.minibatch(20_000, key)
    shares = np.bincount(batch.y, minlength=6) / 20_000
    np.testing.assert_allclose(shares, np.asarray(weight) / 8, atol=0.015)
    assert not shares[[0, 2, 5]].any()
    assert bool(batch.weight.all())
    np.testing.assert_array_equal(batch.x, batch.y)
    mask = samples._replace(weight=weight > 0).minibatch(20_000, key)
    plain = sf.Samples(jnp.asarray([1, 3, 4]), jnp.zeros(3)).minibatch(20_000, key)
    np.testing.assert_array_equal(mask.y, plain.x)  # the very draws of the samples alone
    assert samples.minibatch(None, key) is samples


def test_a_round_with_nothing_that_counts_is_skipped(key):
    algorithm, data = algorithm_of("functional, trained"), sf.pad(paired(0), 64)
    state = algorithm.init(OUTER, data, key)
    empty = sf.pad(jax.tree.map(lambda leaf: leaf[:0], paired(0)), 64)
    assert not empty.inner.weight.any()
    after, info = algorithm.step(state, empty)
    assert not bool(info.finite)
    np.testing.assert_array_equal(after.outer, state.outer)


@pytest.mark.parametrize("bad", [-1.0, -1, np.nan, np.inf])
@pytest.mark.parametrize("name", ["functional, linear", "unrolled"])
def test_a_later_round_whose_weights_are_none_is_skipped(name, bad, key):
    """Only those of the first round can be refused: later ones are compiled. Mini-batches are drawn by them, too."""
    algorithm, data = algorithm_of(name), paired(0)
    good = np.ones(40, np.asarray(bad).dtype)
    data = sf.Data(*(part._replace(weight=good) for part in (data.inner, data.outer)))
    state = algorithm.init(OUTER, data, key)
    wrong = data._replace(inner=data.inner._replace(weight=np.where(np.arange(40) == 7, bad, good)))
    after, info = algorithm.step(state, wrong)
    assert not bool(info.finite)
    np.testing.assert_array_equal(after.outer, state.outer)
    assert bool(algorithm.step(state, data)[1].finite)


def test_ragged_rounds_compile_once_per_bucket(key):
    compiled = []

    def inner_loss(outer, v, x, y):
        compiled.append(x.shape)  # traced, not run
        return RIDGE_PROBLEM.inner_loss(outer, v, x, y)

    problem = sf.Problem(inner_loss, RIDGE_PROBLEM.outer_loss)
    algorithm = sf.Online(problem, sf.Functional(linear(), linear()), optax.sgd(0.1))
    data = paired(0)
    state = algorithm.init(OUTER, sf.pad(data, (16, 64)), key)
    counts = []
    for size in (40, 33, 17, 64, 5, 16, 1, 25):
        rows = np.arange(size) % 40
        padded = sf.pad(jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf)[rows], data), (64, 16))
        assert padded.inner.size == (64 if size > 16 else 16)
        state, info = algorithm.step(state, padded)
        assert bool(info.finite)
        counts.append(len(compiled))
    assert len(set(counts)) == 2  # once for 64 rows and once for 16


def test_a_recorded_run_of_padded_rounds_is_the_run_of_the_ragged_ones(key):
    algorithm = algorithm_of("functional, linear")
    sizes = (40, 12)
    ragged = [jax.tree.map(lambda leaf, n=n: leaf[:n], paired(n)) for n in sizes]
    record = jax.tree.map(lambda *leaves: np.stack(leaves), *(sf.pad(data, 40) for data in ragged))
    record.inner.x[1, 12:] = np.nan
    _, trace = sf.run(algorithm, record, OUTER, rounds=2, key=key, record=lambda state, info: info)
    state = sf.start(algorithm, record, OUTER, key).learner
    for t, data in enumerate(ragged):
        state, info = algorithm.step(state, data)
        np.testing.assert_allclose(trace.gradient[t], info.gradient, atol=1e-12)


def test_without_weights_nothing_changes():
    """Not a single operation more."""
    samples = paired(0).inner
    assert samples.without_padding() is samples
    assert samples.weighted(samples.x) is samples.x
    assert samples.total(float) == 40
    text = str(jax.make_jaxpr(samples.mean)(jnp.zeros(40)))
    assert text == str(jax.make_jaxpr(jnp.mean)(jnp.zeros(40)))


def test_known_weights_are_checked_while_something_is_compiled(key):
    algorithm, data = algorithm_of("functional, linear"), sf.pad(paired(0), 48)
    data = jax.tree.map(jnp.asarray, data)  # a constant of the program
    state = jax.jit(lambda outer: algorithm.init(outer, data, key))(OUTER)
    np.testing.assert_array_equal(state.outer, OUTER)
    nothing = data._replace(inner=data.inner._replace(weight=jnp.zeros(48)))
    with pytest.raises(ValueError, match=r"data.inner.weight is zero for all 48 samples"):
        jax.jit(lambda outer: algorithm.init(outer, nothing, key))(OUTER)


def test_what_is_no_weight_is_refused(as_users_call, key):
    algorithm, data = algorithm_of("functional, linear"), paired(0)

    def start(weight):
        algorithm.init(OUTER, data._replace(inner=data.inner._replace(weight=weight)), key)

    with pytest.raises(ValueError, match=r"data.inner.weight must be a number in \[0, inf\]"):
        start(jnp.arange(40.0) - 1)
    with pytest.raises(ValueError, match=r"data.inner.weight is zero for all 40 samples"):
        start(jnp.zeros(40))
    with pytest.raises(ValueError, match="same number of samples"):
        start(jnp.ones(39))
    with pytest.raises(ValueError, match=r"one number per sample, got shape \(40, 1\)"):
        start(jnp.ones((40, 1)))
    with pytest.raises(ValueError, match="size must be at least the number of samples, 40, got 32"):
        sf.pad(data, (8, 32))
    with pytest.raises(ValueError, match="size must be an integer >= 1, got size=0"):
        sf.pad(data, 0)
    with pytest.raises(TypeError, match=r"pad takes a smoothfbo.Samples or a smoothfbo.Data, got a dict"):
        sf.pad({"x": 1}, 8)
    other = sf.pad(data.outer, 40)._replace(weight=np.arange(40) % 2 == 0)
    with pytest.raises(ValueError, match="with the same weights"):
        algorithm_of("functional, point-wise").init(OUTER, sf.Data(sf.pad(data.inner, 40), other), key)
