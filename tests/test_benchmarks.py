"""The benchmarks compare what computes the same."""

import sys
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1]))  # the benchmarks are no part of the package

from benchmarks import hypergradients, ridge, stream_page, study
from smoothfbo.runs import start
from smoothfbo.studies.cartpole import algorithm as cartpole_loop
from smoothfbo.studies.cartpole import program as cartpole
from smoothfbo.studies.cartpole.config import CartPoleConfig
from smoothfbo.studies.cartpole.methods import find
from smoothfbo.studies.cartpole.replay import inner_parameters

CONFIG = CartPoleConfig(
    methods=("fbo",), environment=("drifting",), seeds=1, final_rate=(1.0,), random_steps=200, batch=32, capacity=500
)


@pytest.fixture
def torch_study():
    torch = pytest.importorskip("torch")
    from benchmarks import torch_study

    torch.set_default_dtype(torch.float64)
    yield torch_study
    torch.set_default_dtype(torch.float32)


def layers(network, vector, sizes):
    """Each layer of a PyTorch network with its weights and biases in our vector; of the last one what is used."""
    position = 0
    for layer, (inputs, outputs) in zip(network[::2], pairwise(sizes), strict=True):
        weights, bias = np.split(vector[position : position + (inputs + 1) * outputs], [inputs * outputs])
        position += (inputs + 1) * outputs
        yield layer, weights.reshape(inputs, outputs).T[: layer.out_features], bias[: layer.out_features]


def networks(learner, stream, state):
    """All layers of both Q networks and of the world model, with our parameters."""
    q, model = np.asarray(inner_parameters(state.estimator)), np.asarray(state.outer)
    for network, vector in zip(learner.q.networks, q, strict=True):
        yield from layers(network, vector, stream.q.network.sizes)
    for network, vector in zip((learner.model.transition, learner.model.reward), model, strict=True):
        yield from layers(network, vector, stream.model.network.sizes)


@pytest.mark.parametrize("lanes", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_the_measured_program_goes_on(monkeypatch, lanes):
    monkeypatch.setattr(study, "CONFIG", CONFIG)
    measured = study.smoothfbo("fbo", lanes, 5)
    measured.run()
    measured.run()
    assert (measured.lanes, measured.steps) == (lanes, 5)


@pytest.mark.filterwarnings("ignore")  # of torch.compile, which is not called
@pytest.mark.parametrize("compiled", [False, True])
def test_the_study_in_pytorch_computes_what_ours_does(torch_study, key, compiled):
    import torch

    numbers = jax.tree.map(lambda leaf: leaf[0], cartpole.programs(CONFIG)[0].numbers)
    stream = cartpole_loop.replay(CONFIG, find("fbo"), numbers)
    algorithm = cartpole_loop.learner(find("fbo"), stream, numbers, clip=CONFIG.clip, capacity=1, rounds=CONFIG.steps)
    keys = jax.random.split(key, 4)
    # Parameters at random: the initial ones are almost zero in the last layer.
    model, q = (
        0.5 * jax.random.normal(k, (2, n.network.parameters))
        for k, n in zip(keys[:2], (stream.model, stream.q), strict=True)
    )
    state, world, _ = start(algorithm, stream, model, keys[2])
    inner = state.estimator.inner._replace(params=q)
    state = state._replace(estimator=state.estimator._replace(inner=inner))

    learner = (torch_study.CompiledLearner if compiled else torch_study.Learner)(CONFIG)
    with torch.no_grad():
        for layer, weights, bias in networks(learner, stream, state):
            layer.weight.copy_(torch.tensor(weights))
            layer.bias.copy_(torch.tensor(bias))
    learner.target.load_state_dict(learner.q.state_dict())

    for _ in range(3):
        world, (data, problem) = stream(world, state.round, state, keys[3])
        state, info = algorithm.step(state, data, problem)
        (x, action), y = data.inner
        batch = [torch.tensor(np.asarray(leaf)) for leaf in (x, action, y.next_observation, y.reward, y.terminated)]
        if compiled:
            learner.compiled = learner.graph
        _, outer_loss = learner.update(torch_study.Batch(*batch))

        np.testing.assert_allclose(outer_loss, info.outer_loss, rtol=1e-6)
        for layer, weights, bias in networks(learner, stream, state):
            np.testing.assert_allclose(layer.weight.detach(), weights, rtol=1e-6)
            np.testing.assert_allclose(layer.bias.detach(), bias, rtol=1e-6)


@pytest.mark.parametrize("family", ridge.FAMILIES)
def test_exact_hypergradients_are_those_of_the_library(family):
    problem, values = ridge.make(30)
    assert hypergradients.error(hypergradients.smoothfbo(family, problem), family, values) < 1e-5


def test_the_page_of_drifting_tables_says_what_is_stored():
    content = stream_page.stored()
    text = (Path(__file__).parents[1] / "docs" / "stream.md").read_text(encoding="utf-8")
    missing = [line for table in stream_page.page(content) for line in table if line not in text]
    assert not missing
    alone, added = stream_page.learned_memory(content)
    assert f"Alone its error is {alone:.2f} times" in text
    assert f"has {added:.4f} of the error without it" in text
    assert len(content["commit"]) == 40  # a clean one
    assert content["command"] in text
