"""Names of before 1.0: each gives one line that says what to write now."""

import importlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, phi, ridge_data
from reference import Ridge

import smoothfbo as sf
from smoothfbo import hypergradients, regret, source, stream
from smoothfbo.testbeds import DriftingCosine

pytestmark = pytest.mark.usefixtures("as_users_call")

DATA, KEY = ridge_data(Ridge.draw(0)), jax.random.key(0)


def algorithm():
    return sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1))


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (sf, "AbstractStream", "AbstractSource"),
        (sf, "FunctionStream", "FunctionSource"),
        (sf, "RecordedStream", "RecordedSource"),
        (sf, "as_stream", "as_source"),
        (sf, "AbstractHypergradient", "AbstractEstimator"),
        (sf, "Identity", "IdentityInverse"),
        (sf, "Neumann", "NeumannSeries"),
        (sf, "Pointwise", "PointwiseAdjoint"),
        (sf, "Fitted", "FittedAdjoint"),
        (sf, "streams", "testbeds"),
        (hypergradients, "Fitted", "FittedAdjoint"),
        (hypergradients, "Pointwise", "PointwiseAdjoint"),
        (source, "AbstractStream", "AbstractSource"),
        (stream, "FunctionStream", "source.FunctionSource"),
        (stream, "as_stream", "source.as_source"),
    ],
)
def test_names(module, old, new):
    with pytest.raises(ImportError, match=rf"{old} is called (smoothfbo\.)?{new} since version 1.0") as error:
        getattr(module, old)
    assert "\n" not in str(error.value)
    with pytest.raises(ImportError, match=r"since version 1\.0"):
        exec(f"from {module.__name__} import {old}", {})
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018


def test_packages_need_no_import_of_their_own():
    code = "import smoothfbo as sf; sf.testbeds.MovingSources, sf.regret.totals"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_module():
    with pytest.raises(ImportError, match=r"^smoothfbo\.streams is called smoothfbo\.testbeds since version 1\.0\.$"):
        importlib.import_module("smoothfbo.streams")


def test_fields():
    state, info = algorithm().step(algorithm().init(jnp.zeros(3), DATA, KEY), DATA)
    run_state = sf.RunState(state, (), state.key)
    for value, old, new in (
        (state, "hypergradient", "State.estimator"),
        (run_state, "stream", "RunState.source"),
        (info, "hypergradient", "Info.gradient"),
        (info, "used", "Info.smoothed"),
        (info, "hypergradient_norm", "Info.gradient_norm"),
        (info, "used_norm", "Info.smoothed_norm"),
    ):
        with pytest.raises(AttributeError, match=rf"\.{old} is called {new} since version 1.0"):
            getattr(value, old)
    with pytest.raises(AttributeError, match=r"batched\(function.bind\(params\)\)"):
        linear().bind_all(jnp.zeros(3))


def test_keywords():
    with pytest.raises(TypeError, match=r"Online has no argument 'hypergradient' since version 1.0: use estimator"):
        sf.Online(RIDGE_PROBLEM, hypergradient=sf.Unrolled(linear()), optimiser=optax.sgd(0.1))
    with pytest.raises(TypeError, match="Online got an unexpected keyword argument 'projection'"):
        sf.Online(RIDGE_PROBLEM, sf.Unrolled(linear()), optax.sgd(0.1), projection=None)
    with pytest.raises(TypeError, match=r"run has no argument 'stream' since version 1.0: use source"):
        sf.run(algorithm(), stream=lambda t, k: DATA, outer=jnp.zeros(3), rounds=1, key=KEY)
    for function, old, new in (
        (regret.proxy, "used", "smoothed"),
        (regret.decompose, "hypergradients", "gradients"),
        (regret.totals, "used", "smoothed"),
    ):
        with pytest.raises(TypeError, match=rf"{function.__name__} has no argument '{old}' .*: use {new}\.$"):
            function(**{old: jnp.zeros(3)})
    with pytest.raises(TypeError, match="unexpected keyword argument 'gradient_norms'"):
        regret.proxy(gradient_norms=jnp.zeros(3))
    with pytest.raises(TypeError, match=r"DriftingCosine has no argument 'smoothness' .*: use curvature"):
        DriftingCosine(smoothness=2.0)


def test_networks_of_pairs():
    init, apply = (lambda key, x: jnp.zeros(3)), (lambda params, x: params @ phi(x))
    with pytest.raises(TypeError, match=r"is written Network.from_pair\(init, apply, ...\)"):
        sf.Network((init, apply), optax.sgd(0.1), 1)
    with pytest.raises(
        TypeError, match=r"no argument 'apply_all' since version 1.0: use a method `batch\(params, xs\)`"
    ):
        sf.Network.from_pair(init, apply, optax.sgd(0.1), 1, apply_all=apply)
    with pytest.raises(TypeError, match="apply must be a function, got 3"):
        sf.Network.from_pair(init, 3, optax.sgd(0.1), 1)


def test_a_key_that_comes_first():
    with pytest.raises(TypeError, match=r"Online.init takes \(outer, data, key\) since version 1.0"):
        algorithm().init(KEY, jnp.zeros(3), DATA)


class OldLoss:
    def __call__(self, outer, v, x, y):
        return RIDGE_PROBLEM.inner_loss(outer, v, x, y)

    of_all = __call__


class OldSource(sf.AbstractSource):
    def init(self, key):
        return (), DATA

    def __call__(self, state, round, key, learner):
        return state, DATA, None


def test_losses_and_sources_of_the_users():
    old = sf.Online(sf.Problem(OldLoss(), RIDGE_PROBLEM.outer_loss), sf.Unrolled(linear()), optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"inner_loss.of_all is called inner_loss.batch since version 1.0"):
        old.init(jnp.zeros(3), DATA, KEY)
    with pytest.raises(
        TypeError, match=r"OldSource.* must return \(state, Round\(data, problem\)\), got \('tuple', 'Da"
    ):
        sf.run(algorithm(), OldSource(), jnp.zeros(3), rounds=1, key=KEY)
