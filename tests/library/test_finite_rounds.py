"""A round that is not finite is never applied: every estimator, every place where NaN or infinity can stand."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, marked, ridge_data, trained_linear
from reference import Ridge

import smoothfbo as sf

ESTIMATORS = {
    "functional, linear": lambda: sf.Functional(linear(), linear()),
    "functional, trained": lambda: sf.Functional(trained_linear(3), trained_linear(3)),
    "functional, point-wise": lambda: sf.Functional(trained_linear(3), sf.PointwiseAdjoint()),
    "functional, corrected": lambda: sf.Functional(
        trained_linear(3), trained_linear(3), correction=sf.FittedCorrection(linear())
    ),
    "replayed": lambda: sf.Replayed(sf.Functional(linear(), linear()), 2, own=sf.Functional(linear(), linear())),
    "implicit, conjugate gradients": lambda: sf.Implicit(trained_linear(3), sf.ConjugateGradient()),
    "implicit, cold start": lambda: sf.Implicit(trained_linear(3), sf.ConjugateGradient(warm_start=False)),
    "implicit, Neumann": lambda: sf.Implicit(trained_linear(3), sf.NeumannSeries(terms=3, step=0.3)),
    "implicit, identity": lambda: sf.Implicit(trained_linear(3), sf.IdentityInverse()),
    "implicit, exact fit": lambda: sf.Implicit(linear(), sf.ConjugateGradient()),
    "unrolled": lambda: sf.Unrolled(trained_linear(3)),
    "explicit": lambda: sf.Explicit(trained_linear(3)),
    "implicit, few warm steps": lambda: sf.Implicit(
        trained_linear(1), sf.ConjugateGradient(tolerance=None, max_steps=2)
    ),
    "single loop": lambda: sf.SingleLoop(trained_linear(1), 0.3),
    "storm": lambda: sf.Storm(trained_linear(1), 0.3, 0.5),
    "first order": lambda: sf.FirstOrder(trained_linear(3), 5.0),
    "re-evaluated": lambda: sf.Reevaluated(sf.Implicit(trained_linear(3)), 3),
    "re-evaluated, fitted again": lambda: sf.Reevaluated(sf.Implicit(trained_linear(3)), 3, refit=True),
    "oracle": lambda: sf.Oracle(lambda outer, data, key: outer + jnp.mean(data.inner.x) * jnp.mean(data.outer.x)),
}
FURTHER = ("functional, trained", "implicit, cold start", "implicit, identity", "implicit, exact fit", "single loop")
PARTS = {
    "inner": lambda data: data.inner,
    "outer": lambda data: data.outer,
    "final inner": lambda data: data.final.inner,
    "final outer": lambda data: data.final.outer,
}


def paired(ridge, seed):
    """The inner samples as outer ones, with other targets: point-wise adjoints need the same inputs."""
    data = ridge_data(ridge)
    y = {**data.inner.y, "target": data.inner.y["target"] + jnp.asarray(np.random.default_rng(seed).normal(size=40))}
    return sf.Data(data.inner, sf.Samples(data.inner.x, y))


# In NumPy: numbers are changed without compiling anything.
DATA = jax.tree.map(np.asarray, paired(Ridge.draw(0), 1)._replace(final=paired(Ridge.draw(2), 3)))
OUTER = np.asarray([0.4, -0.7, 0.2])


@functools.cache
def algorithm_of(name):
    """One program for all tests of an estimator."""
    return sf.Online(RIDGE_PROBLEM, ESTIMATORS[name](), optax.chain(sf.window_average(3), optax.adam(0.1)))


def put(data, part, kind, change):
    """The data with one number changed."""
    sample = PARTS[part](data)
    x, target = sample.x.copy(), sample.y["target"].copy()
    x[3, 0], target[3] = (change(x[3, 0]), target[3]) if kind == "x" else (x[3, 0], change(target[3]))
    new = sample._replace(x=x, y={**sample.y, "target": target})
    return jax.tree.map(
        lambda leaf: new if leaf is sample else leaf, data, is_leaf=lambda node: isinstance(node, sf.Samples)
    )


# How many of the places x and y of inner, outer, final inner and final outer an estimator reads, with and without final
# data: the explicit term here depends on the prediction and not on the target, so final outer y is read by few.
# A single loop forms its gradient with what it had before it saw the round's data.
READ = {
    "functional, point-wise": (6, 4),
    "unrolled": (4, 4),
    "explicit": (3, 3),
    "oracle": (2, 2),
    "single loop": (3, 3),
    "storm": (3, 3),
}


# Without final data, one estimator of each way to read a round; the others are further variants.
WITHOUT_FINAL = ("functional, linear", "functional, point-wise", "implicit, conjugate gradients", "unrolled")
CASES = [(name, True) for name in ESTIMATORS] + [(name, False) for name in ESTIMATORS]


def case(name, with_final):
    is_further = name in FURTHER or (not with_final and name not in WITHOUT_FINAL)
    marks = [pytest.mark.thorough] if is_further else []
    return pytest.param(name, with_final, marks=marks, id=f"{name}-{'' if with_final else 'no '}final data")


@pytest.mark.parametrize(("name", "with_final"), [case(*each) for each in CASES])
def test_whatever_an_estimator_reads_must_be_finite(name, with_final, key):
    """Whether it reads a number is found out by a change of that number, not by looking at the estimator."""
    data = DATA if with_final else DATA._replace(final=None)
    algorithm = algorithm_of(name)
    state = algorithm.init(OUTER, data, key)
    for _ in range(2):
        state, usual = algorithm.step(state, data)
    _, usual = algorithm.step(state, data)
    assert bool(usual.finite)
    assert int(state.skipped) == 0
    read = set()
    for place in itertools.product(list(PARTS) if with_final else ["inner", "outer"], ("x", "y")):
        _, moved = algorithm.step(state, put(data, *place, lambda number: number + 0.5))
        is_read = not np.array_equal(moved.gradient, usual.gradient)
        read |= {place} if is_read else set()
        for bad in (np.nan, np.inf, -np.inf):
            after, info = algorithm.step(state, put(data, *place, lambda number, bad=bad: bad))
            assert bool(info.finite) != is_read, (place, bad)
            assert int(after.skipped) == int(is_read)
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.estimator))
            if is_read:
                np.testing.assert_array_equal(after.outer, state.outer)
                assert not bool(info.converged)
            else:
                np.testing.assert_array_equal(info.gradient, usual.gradient)
            assert np.isfinite(after.outer).all()
    assert len(read) == READ.get(name, (7, 4))[not with_final], read


@pytest.mark.parametrize("name", marked([name for name in ESTIMATORS if name != "oracle"], FURTHER))
def test_a_warm_state_that_is_not_finite_moves_nothing(name, key):
    """It cannot come about by a step; a loaded one is skipped, or is of no consequence."""
    algorithm = algorithm_of(name)
    state, _ = algorithm.step(algorithm.init(OUTER, DATA, key), DATA)
    _, usual = algorithm.step(state, DATA)
    leaves, structure = jax.tree.flatten(state.estimator)
    for index, leaf in enumerate(leaves):
        if not np.issubdtype(leaf.dtype, np.inexact) or not leaf.size:
            continue
        bad = np.array(leaf)
        bad.flat[0] = np.nan
        spoilt = [bad if i == index else each for i, each in enumerate(leaves)]
        after, info = algorithm.step(state._replace(estimator=jax.tree.unflatten(structure, spoilt)), DATA)
        if bool(info.finite):  # a start of conjugate gradients that is worse than zero is dropped
            np.testing.assert_allclose(info.gradient, usual.gradient, rtol=1e-4)
        else:
            np.testing.assert_array_equal(after.outer, state.outer)


def test_a_window_outside_its_capacity_skips_its_rounds(key):
    """Through `run`: flagged and counted, λ stands still, and goes on where the window fits again."""
    injected = optax.inject_hyperparams(sf.window_average, static_args=("normalise", "capacity"))
    for wrong in (9, 0):
        window = lambda t, wrong=wrong: jnp.where((t >= 4) & (t < 7), wrong, 3)  # noqa: E731
        algorithm = sf.Online(
            estimator=sf.Oracle(lambda outer, data, key: jnp.ones_like(outer)),
            optimiser=optax.chain(injected(window=window, capacity=3), optax.sgd(0.1)),
        )
        final, trace = sf.run(algorithm, lambda t, k: t, jnp.zeros(2), rounds=10, key=key)
        assert trace.finite.tolist() == [True] * 4 + [False] * 3 + [True] * 3
        assert int(final.learner.skipped) == 3
        np.testing.assert_array_equal(trace.outer[4], trace.outer[7])
        np.testing.assert_allclose(np.diff(trace.outer[2:5], axis=0), -0.1)
        np.testing.assert_allclose(final.learner.outer - trace.outer[9], -0.1)
        assert np.isnan(trace.smoothed_norm[4:7]).all()


def test_a_constant_window_above_its_capacity_is_never_applied(key):
    """Where it is traced, as in a vmap over windows; concrete ones are refused."""

    def lane(window):
        optimiser = optax.chain(sf.window_average(window, capacity=3), optax.sgd(0.1))
        algorithm = sf.Online(None, sf.Oracle(lambda outer, data, key: jnp.ones_like(outer)), optimiser)
        return sf.run(algorithm, lambda t, k: t, jnp.zeros(2), rounds=5, key=key)[1]

    trace = jax.jit(jax.vmap(lane))(jnp.asarray([3, 9]))
    assert trace.finite.tolist() == [[True] * 5, [False] * 5]
    np.testing.assert_array_equal(trace.outer[1], 0)
