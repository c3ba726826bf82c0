"""Bad input gets a sentence that names the argument, its value and what is allowed."""

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

DATA = ridge_data(Ridge.draw(0))
KEY = jax.random.key(0)


def start(problem=RIDGE_PROBLEM, inner=None, adjoint=None, outer=None, data=DATA, project=None, estimator=None):
    estimator = estimator or sf.Functional(inner or linear(), adjoint or linear())
    algorithm = sf.Online(problem, estimator, optax.sgd(0.1), project)
    return algorithm.init(jnp.zeros(3) if outer is None else outer, data, KEY)


def with_inner_loss(loss):
    return sf.Problem(loss, RIDGE_PROBLEM.outer_loss)


def test_the_good_input_is_good():
    assert start().outer.shape == (3,)


def test_loss_that_is_not_scalar():
    vector = with_inner_loss(lambda outer, v, x, y: outer * v**2)
    with pytest.raises(ValueError, match=r"inner_loss must return a floating-point scalar .* got .*\[3\]"):
        start(vector)
    integer = sf.Problem(RIDGE_PROBLEM.inner_loss, lambda outer, v, x, y: y["group"])
    with pytest.raises(ValueError, match=r"outer_loss must return a floating-point scalar .* got i"):
        start(integer)


def test_loss_that_does_not_fit_the_prediction():
    mismatch = with_inner_loss(lambda outer, v, x, y: jnp.sum((v - jnp.ones(2)) @ outer))
    with pytest.raises(ValueError, match=r"inner_loss cannot be evaluated at outer=.*\[3\], prediction=.*x="):
        start(mismatch)
    wrong_structure = with_inner_loss(lambda outer, v, x, y: v["mean"] ** 2)
    with pytest.raises(ValueError, match="inner_loss cannot be evaluated at"):
        start(wrong_structure)


def test_adjoint_of_another_shape():
    wide = sf.Network.from_pair(lambda key, x: jnp.ones((2, 3)), lambda p, x: p @ phi(x), optax.sgd(0.1), 1)
    with pytest.raises(ValueError, match=r"adjoint function must return what the inner .* got .*\[2\]"):
        start(adjoint=wide)


def test_inner_loss_without_curvature():
    slope_only = with_inner_loss(lambda outer, v, x, y: v * jnp.sum(outer))
    with pytest.raises(ValueError, match="inner_loss has no curvature in the prediction"):
        start(slope_only)
    switched_off = with_inner_loss(lambda outer, v, x, y: outer[y["group"]] * v**2)
    with pytest.raises(ValueError, match="no curvature"):
        start(switched_off, outer=jnp.zeros(3))
    start(with_inner_loss(lambda outer, v, x, y: v**4 + 0 * jnp.sum(outer)))  # curved, though not at v = 0


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_curved_losses_that_are_flat_here_and_there_are_accepted(classes):
    """The softmax is flat along (1, …, 1), Huber's loss far from its target."""
    targets = jnp.arange(8) % classes
    samples = sf.Samples(jnp.ones((8, 2)), targets)
    cross_entropy = lambda outer, v, x, y: optax.softmax_cross_entropy_with_integer_labels(v, y)  # noqa: E731
    softmax = sf.Problem(lambda outer, v, x, y: jnp.exp(outer) * cross_entropy(outer, v, x, y), cross_entropy)
    family = sf.Linear(lambda x: x, prediction=jnp.zeros(classes), ridge=0.1)
    with jax.numpy_dtype_promotion("standard"):
        sf.Functional(family, family).init(softmax, jnp.zeros(()), sf.Data(samples, samples), KEY)
    far = sf.Samples(jnp.ones((40, 2)), 100.0 + jnp.linspace(-50, 50, 40))
    huber = lambda outer, v, x, y: optax.huber_loss(v, y) * jnp.exp(outer)  # noqa: E731
    sf.Unrolled(linear()).init(sf.Problem(huber, huber), jnp.zeros(()), sf.Data(far, far), KEY)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_data_that_is_not_finite(bad):
    target = DATA.outer.y["target"].at[4].set(bad)
    data = DATA._replace(outer=DATA.outer._replace(y={**DATA.outer.y, "target": target}))
    with pytest.raises(ValueError, match=rf"data.outer.y\['target'\] must be finite, got {bad} at index \(4,\)"):
        start(data=data)
    recorded = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), data)
    with pytest.raises(ValueError, match=r"data.outer.y\['target'\] must be finite"):
        sf.run(
            sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1)),
            recorded,
            jnp.zeros(3),
            rounds=2,
            key=KEY,
        )


def test_empty_and_ragged_batches():
    empty = DATA._replace(inner=jax.tree.map(lambda leaf: leaf[:0], DATA.inner))
    with pytest.raises(ValueError, match=r"data.inner is an empty batch"):
        start(data=empty)
    ragged = DATA._replace(outer=DATA.outer._replace(x=DATA.outer.x[:5]))
    with pytest.raises(ValueError, match=r"All arrays of data.outer must have the same number of samples"):
        start(data=ragged)
    scalar = DATA._replace(outer=DATA.outer._replace(x=jnp.ones(())))
    with pytest.raises(ValueError, match=r"data.outer.x is a scalar"):
        start(data=scalar)
    other_inputs = DATA._replace(outer=DATA.outer._replace(x=jnp.ones((30, 5))))
    with pytest.raises(ValueError, match=r"data.inner.x and data.outer.x must hold inputs of the same form"):
        start(data=other_inputs)
    with pytest.raises(TypeError, match=r"data must be a smoothfbo.Data.* got a tuple"):
        start(data=(DATA.inner, DATA.outer))
    with pytest.raises(TypeError, match=r"data must be a smoothfbo.Data.* got tuple and tuple in it"):
        start(data=sf.Data(tuple(DATA.inner), tuple(DATA.outer)))


def test_bad_final_data():
    other = DATA._replace(inner=DATA.inner._replace(x=DATA.inner.x[:, :1]))
    with pytest.raises(ValueError, match="must hold inputs of the same form"):
        start(data=DATA._replace(final=other))
    with pytest.raises(ValueError, match=r"data.final must have the structure of data"):
        start(data=DATA._replace(final=DATA._replace(final=DATA)))
    paired = sf.Data(DATA.inner, DATA.inner)
    start(estimator=sf.Functional(linear(), sf.PointwiseAdjoint()), data=paired)
    with pytest.raises(ValueError, match=r"PointwiseAdjoint needs the same inputs .*data.final"):
        start(estimator=sf.Functional(linear(), sf.PointwiseAdjoint()), data=paired._replace(final=DATA))


def test_bad_keys():
    with pytest.raises(TypeError, match=r"key must be a JAX key such as jax.random.key\(0\), got 0"):
        sf.run(
            sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1)),
            lambda t, k: DATA,
            jnp.zeros(3),
            rounds=1,
            key=0,
        )
    with pytest.raises(TypeError, match="key must be a key of JAX's default generator"):
        sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1)).init(
            jnp.zeros(3), DATA, jax.random.key(0, impl="rbg")
        )
    state = sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1)).init(jnp.zeros(3), DATA, KEY)
    with pytest.raises(TypeError, match="state must be the RunState that run or start returned, got a State"):
        sf.run(
            sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1)), lambda t, k: DATA, rounds=1, state=state
        )


@pytest.mark.parametrize(
    ("outer", "message"),
    [
        (jnp.arange(3), r"outer has dtype int64; allowed are floating-point"),
        ({"a": jnp.ones(2), "b": jnp.arange(2)}, r"outer\['b'\] has dtype int64"),
        (jnp.array([1.0, np.nan, 0.0]), r"outer must be finite, got nan at index \(1,\)"),
        ({}, r"outer has no arrays"),
    ],
)
def test_bad_outer_variables(outer, message):
    with pytest.raises(ValueError, match=message):
        start(outer=outer)


def test_projections_that_change_the_outer_variable():
    with pytest.raises(ValueError, match=r"project must keep structure, shapes and dtypes of outer"):
        start(project=lambda outer: outer[:2])
    with pytest.raises(ValueError, match=r"project must keep structure"):
        start(project=lambda outer: {"weight": outer})
    with pytest.raises(ValueError, match=r"project must keep structure"):
        start(project=lambda outer: outer.astype(jnp.float32))
    with pytest.raises(TypeError, match="project must be a function"):
        sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1), project=3.0)


def test_bad_networks():
    module = eqx.nn.MLP(2, "scalar", 4, 1, key=KEY)
    with pytest.raises(TypeError, match=r"not a built MLP, so that every seed has its own initialisation"):
        sf.Network(module, optax.sgd(0.1), 1)
    with pytest.raises(TypeError, match="make must be a function"):
        sf.Network(3, optax.sgd(0.1), 1)
    with pytest.raises(TypeError, match="optimiser must be an optax optimiser"):
        sf.Network(lambda key: module, 0.1, 1)
    with pytest.raises(ValueError, match="steps must be an integer >= 0, got steps=-1"):
        trained_linear(-1)
    with pytest.raises(ValueError, match="batch_size must be an integer >= 1, got batch_size=0"):
        trained_linear(1, batch_size=0)
    with pytest.raises(TypeError, match=r"make\(key\) must return a callable module"):
        sf.Network(lambda key: jnp.ones(3), optax.sgd(0.1), 1)
    no_parameters = sf.Network(lambda key: eqx.nn.Identity(), optax.sgd(0.1), 1)
    with pytest.raises(ValueError, match="the network's parameters has no arrays"):
        start(inner=no_parameters)
    wrong_input = sf.Network(lambda key: eqx.nn.MLP(7, "scalar", 4, 1, key=key), optax.sgd(0.1), 1)
    with pytest.raises(ValueError, match=r"the inner function cannot be evaluated at x=.*\[2\]"):
        start(inner=wrong_input)


def test_bad_linear_functions():
    with pytest.raises(ValueError, match=r"ridge must be a number in \[0, inf\], got ridge=-1"):
        sf.Linear(phi, ridge=-1.0)
    with pytest.raises(ValueError, match="steps must be an integer >= 1"):
        sf.Linear(phi, steps=0)
    with pytest.raises(TypeError, match="features must be a function"):
        sf.Linear(3)
    with pytest.raises(ValueError, match=r"features must map one input to a vector, got .*\[2,2\]"):
        start(inner=sf.Linear(lambda x: jnp.outer(x, x)))
    with pytest.raises(ValueError, match="prediction has dtype int"):
        start(inner=sf.Linear(phi, prediction=jnp.arange(2)))
    with pytest.raises(TypeError, match=r"last_hidden needs an equinox.nn.MLP, got Linear"):
        sf.last_hidden(eqx.nn.Linear(2, 2, key=KEY))


def test_bad_estimators():
    with pytest.raises(TypeError, match="estimator must be an estimator such as Functional"):
        sf.Online(RIDGE_PROBLEM, linear(), optax.sgd(0.1))
    with pytest.raises(TypeError, match="optimiser must be an optax transformation"):
        sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), 0.1)
    with pytest.raises(TypeError, match="inner must be a Network, a Linear"):
        start(estimator=sf.Unrolled(phi))
    with pytest.raises(TypeError, match="adjoint must be a Network, a Linear or PointwiseAdjoint"):
        sf.Functional(linear(), 3)
    with pytest.raises(TypeError, match=r"adjoint\(module\) must return a Network or a Linear"):
        start(adjoint=lambda module: module)
    with pytest.raises(
        TypeError, match="inverse must be ConjugateGradient, NeumannSeries or IdentityInverse, got 'cg'"
    ):
        sf.Implicit(linear(), "cg")
    with pytest.raises(ValueError, match="terms must be an integer >= 1, got terms=0"):
        sf.NeumannSeries(terms=0, step=0.1)
    with pytest.raises(ValueError, match=r"step must be a number in \(0, inf\], got step=0"):
        sf.NeumannSeries(terms=3, step=0.0)
    with pytest.raises(ValueError, match="tolerance must be a number"):
        sf.ConjugateGradient(tolerance=-1e-3)
    for estimator in (sf.Functional(linear(), linear(), batch_size=1), sf.Unrolled(linear(), batch_size=1)):
        assert estimator.batch_size == 1
    for make in (
        lambda: sf.Functional(linear(), linear(), batch_size=0),
        lambda: sf.Implicit(linear(), batch_size=0),
        lambda: sf.Unrolled(linear(), batch_size=0),
    ):
        with pytest.raises(ValueError, match="batch_size must be an integer >= 1, got batch_size=0"):
            make()
    with pytest.raises(TypeError, match=r"problem must be a smoothfbo.Problem, got None"):
        start(problem=None)
    with pytest.raises(ValueError, match=r"PointwiseAdjoint needs the same inputs in data.inner.x and data.outer.x"):
        start(estimator=sf.Functional(linear(), sf.PointwiseAdjoint()))
    shifted = DATA._replace(outer=DATA.inner._replace(x=DATA.inner.x + 1))
    with pytest.raises(ValueError, match="PointwiseAdjoint needs the same inputs"):
        start(estimator=sf.Functional(linear(), sf.PointwiseAdjoint()), data=shifted)
    oracle = sf.Oracle(lambda outer, data, key: outer[:1])
    with pytest.raises(ValueError, match="gradient must return a hypergradient with the structure"):
        start(estimator=oracle)


def test_bad_runs():
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1))
    recorded = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), DATA)
    with pytest.raises(ValueError, match="rounds must be an integer >= 1, got rounds=0"):
        sf.run(algorithm, recorded, jnp.zeros(3), rounds=0, key=KEY)
    with pytest.raises(ValueError, match="rounds=3 after 0 rounds done, but the recorded source has 2"):
        sf.run(algorithm, recorded, jnp.zeros(3), rounds=3, key=KEY)
    final, _ = sf.run(algorithm, recorded, jnp.zeros(3), rounds=1, key=KEY)
    with pytest.raises(ValueError, match="rounds=2 after 1 rounds done"):
        sf.run(algorithm, recorded, rounds=2, state=final)
    with pytest.raises(ValueError, match="either outer and key, to start, or state, to continue"):
        sf.run(algorithm, recorded, jnp.zeros(3), rounds=2)
    with pytest.raises(ValueError, match="run needs outer"):
        sf.run(algorithm, recorded, rounds=2, key=KEY)
    with pytest.raises(TypeError, match=r"source must be a function \(round, key\) -> Data"):
        sf.run(algorithm, "data.csv", jnp.zeros(3), rounds=2, key=KEY)
    uneven = recorded._replace(outer=jax.tree.map(lambda leaf: leaf[:1], recorded.outer))
    with pytest.raises(ValueError, match="All arrays of a recorded source need the same number of rounds"):
        sf.run(algorithm, uneven, jnp.zeros(3), rounds=1, key=KEY)
    for batch in (DATA, recorded._replace(final=DATA)):
        with pytest.raises(ValueError, match=r"for the same batch in every round pass smoothfbo.RepeatedSource"):
            sf.run(algorithm, batch, jnp.zeros(3), rounds=2, key=KEY)


def test_data_that_changes_its_form_midway():
    for estimator in (
        sf.Functional(linear(), linear()),
        sf.Implicit(trained_linear(1)),
        sf.Unrolled(linear()),
    ):
        algorithm = sf.Online(RIDGE_PROBLEM, estimator, optax.sgd(0.1))
        state = algorithm.init(jnp.zeros(3), DATA, KEY)
        narrow = DATA._replace(inner=DATA.inner._replace(x=DATA.inner.x[:, :1]))
        with pytest.raises(ValueError, match=r"data.inner.x and data.outer.x must hold inputs of the same form"):
            algorithm.step(state, narrow)
        empty = DATA._replace(outer=jax.tree.map(lambda leaf: leaf[:0], DATA.outer))
        with pytest.raises(ValueError, match=r"data.outer is an empty batch"):
            algorithm.step(state, empty)
        with pytest.raises(TypeError, match=r"data must be a smoothfbo.Data\(.*\), got a tuple"):
            algorithm.step(state, tuple(DATA[:2]))
        with pytest.raises(ValueError, match="inner_loss cannot be evaluated"):
            algorithm.step(state, DATA, with_inner_loss(lambda outer, v, x, y: v["a"]))


def test_a_state_of_another_kind():
    """A run's state, a trace and λ itself are easily taken for the learner's state."""
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.sgd(0.1))
    final, trace = sf.run(algorithm, sf.RepeatedSource(DATA), jnp.zeros(3), rounds=2, key=KEY)
    with pytest.raises(
        TypeError, match=r"State that init or step returned; that of a run is state\.learner, got a RunS"
    ):
        algorithm.step(final, DATA)
    for predict in (algorithm.predictor, lambda state: algorithm.predict(state, DATA.inner.x)):
        with pytest.raises(TypeError, match=r"state must be the State that init or step returned, got a Info"):
            predict(trace)
    with pytest.raises(AttributeError, match=r"A RunState has λ in state\.learner\.outer\."):
        _ = final.outer
