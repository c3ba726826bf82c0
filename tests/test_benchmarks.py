"""The benchmarks compare what computes the same."""

import sys
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

sys.path.append(str(Path(__file__).parents[1]))  # the benchmarks are no part of the package

import smoothfbo as sf
from benchmarks import beyond_problems, hypergradients, recommended_beyond, ridge, stream_page, study
from benchmarks.later_problems import LATER
from benchmarks.recommended_beyond import ALL, GROUPS
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


@pytest.fixture
def usual_promotion():
    """Of numbers, as in the benchmark itself."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.mark.usefixtures("usual_promotion")
@pytest.mark.parametrize("kind", range(3))
def test_steps_of_a_kind_that_is_traced(kind):
    steps = recommended_beyond.stepping(jnp.asarray(kind), jnp.asarray(0.1))
    normalised = optax.chain(optax.normalize_by_update_norm(), optax.scale(-0.1))
    expected = [optax.sgd(0.1), normalised, optax.adam(0.1)][kind]
    state, other = (each.init(jnp.zeros(2)) for each in (steps, expected))
    for gradient in (jnp.array([3.0, -4.0]), jnp.array([0.5, 0.25])):
        move, state = steps.update(gradient, state)
        wanted, other = expected.update(gradient, other)
        np.testing.assert_allclose(move, wanted, rtol=1e-5)


@pytest.mark.usefixtures("usual_promotion")
def test_problems_beyond_the_arena_are_tuned_on_other_seeds_than_are_reported():
    """A quadratic on a plane: λ_t by hand, from the noise that the source gives."""
    made = recommended_beyond.compare(
        "quadratic-plane", seeds=(0, 1, 2), tuning=(3, 4), kinds=("sgd",), rates=(1e-6, 0.1), rounds=40
    )
    assert made["methods"]["fbo"]["rate"] == 0.1
    assert len(made["methods"]["recommended"]["seeds"]) == 3
    assert made["methods"]["recommended"]["skipped"] == 0
    rounds, case = 40, beyond_problems.PROBLEMS["quadratic-plane"][2](1)
    _, data = sf.run(
        sf.Online(None, sf.Oracle(case.oracle), optax.sgd(0.0)), case.source, case.start, rounds=rounds,
        key=jax.random.key(2), record=lambda state, info: info.gradient,
    )  # fmt: skip
    outer, gaps = np.full(4, 0.25), []
    for t, gradient in enumerate(np.asarray(data, float)):
        gaps.append(float(case.gap(jnp.asarray(t), jnp.asarray(outer, jnp.float32))))
        outer = outer - 0.1 * (gradient + outer - 0.25)
        outer = outer - outer.mean() + 0.25
    wanted = np.mean(gaps[rounds // 2 :: recommended_beyond.EVERY])
    np.testing.assert_allclose(made["methods"]["fbo"]["seeds"][1], wanted, rtol=1e-3)
    rivals = {name: each["gap"] for name, each in made["methods"].items() if name != "recommended"}
    assert made["best_tuned"] == min(rivals, key=rivals.get)
    np.testing.assert_allclose(
        made["to_best_tuned"]["mean"], made["methods"]["recommended"]["gap"] / min(rivals.values())
    )
    kept = {name: made["methods"][name] for name in recommended_beyond.METHODS}
    assert recommended_beyond.compare("quadratic-plane", (0, 1, 2), rounds=40, rivals=kept) == made


QUICK = ("ridge", "expectile", "policy", "sensors", "valley", "crosstalk", "smoothness", "gain", "discount")
ALIKE = ("student", "cauchy", "outliers", "bursts", "ragged", "far", "narrow")  # the gap of others
ORACLES = ("quadratic-ball", "quadratic-simplex", "quadratic-plane", "valley")
# How far from the start, where not 1; below it with a minus
NEAR = {"covariate-shift": 0.4, "label-noise": 0.15, "sensors": 0.1, "scales": 0.01}
NEAR |= {"crosstalk": 0.1, "decay": 0.05, "buffer": -0.4}
NEAR |= {"stacking": 0.05, "case-mix": 2.0, "discount": 0.4, "robust": 2.0, "nowcast": 2.0, "memory": -1.0}


def some_quick(names):
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.thorough) for name in names]


def test_problems_of_all_groups_have_their_own_names():
    assert len(ALL) == sum(map(len, GROUPS.values()))


@pytest.mark.usefixtures("usual_promotion")
@pytest.mark.parametrize("name", some_quick(name for name in ALL if name not in ALIKE))
def test_gaps_beyond_the_arena_are_not_negative(name, key):
    """At allowed λ at random, in rounds at random."""
    _, rounds, make = ALL[name]
    case, flat = make(3), ravel_pytree(make(3).start)

    def gap(time, move):
        outer = flat[1](flat[0] + move)
        return case.gap(time, outer if case.project is None else case.project(outer))

    @jax.jit
    def gaps(key):
        keys = jax.random.split(key)
        times = jax.random.randint(keys[0], (50,), 0, rounds)
        move = 2 * NEAR.get(name, 1.0) * case.units * jax.random.normal(keys[1], (50, flat[0].size))
        return jax.vmap(gap)(times, move)

    assert jnp.all(gaps(key) > -1e-9)


@pytest.mark.usefixtures("usual_promotion")
@pytest.mark.parametrize("name", LATER)
def test_gaps_of_later_problems_are_zero_where_their_best_is(name):
    """And it is an allowed λ, in every round."""
    _, rounds, make = LATER[name]
    case = make(3)

    @jax.jit
    @jax.vmap
    def at(time):
        best = case.best(time)
        allowed = best if case.project is None else case.project(best)
        return case.gap(time, best), optax.tree.norm(optax.tree.sub(allowed, best))

    for numbers in at(jnp.arange(rounds)):
        np.testing.assert_allclose(numbers, 0, atol=1e-12)


@pytest.mark.usefixtures("usual_promotion")
def test_what_the_later_problems_say_of_their_drift():
    """One does not move, one is on its border seven tenths of the time, and one jumps some five times."""
    best = {name: jax.vmap(make(3).best)(jnp.arange(rounds)) for name, (_, rounds, make) in LATER.items()}
    assert jnp.ptp(best["gain"]) == 0
    assert jnp.all(jnp.sum(best["stacking"] > 0, axis=1) <= 2)
    on_border = jnp.mean((best["pooling"] == 0) | (best["pooling"] > 3.999))
    assert 0.65 < on_border < 0.75
    assert 1 <= jnp.sum(jnp.any(jnp.diff(best["case-mix"], axis=0) != 0, axis=1)) <= 12


@pytest.mark.usefixtures("usual_promotion")
@pytest.mark.parametrize("name", ORACLES)
def test_oracles_beyond_the_arena_have_the_gradient_of_the_gap(name, key):
    case, round = ALL[name][2](3), jnp.asarray(60)
    outer = case.start + jax.random.uniform(key, case.start.shape)

    @jax.jit
    def means(keys):
        draws = jax.vmap(lambda key: case.oracle(outer, case.source(round, key), key))(keys)
        return jnp.mean(draws, axis=0), jax.grad(case.gap, argnums=1)(round, outer)

    np.testing.assert_allclose(*means(jax.random.split(key, 40_000)), atol=0.05)


@pytest.mark.usefixtures("usual_promotion")
@pytest.mark.parametrize("name", some_quick(name for name in ALL if name not in (*ALIKE, *ORACLES)))
def test_gaps_beyond_the_arena_are_those_of_many_samples(name):
    """The difference of the objective at two points, each with the inner function of 1,500 rounds' data; and FBO's
    gradient, which is the gap's by finite differences, in every leaf of λ."""
    case, round, key = ALL[name][2](3), jnp.asarray(60), jax.random.key(9)
    algorithm = sf.Online(case.problem, sf.Functional(case.linear, case.linear), optax.sgd(0.0))

    @jax.jit
    def draw(keys):
        rounds = jax.vmap(lambda key: case.source(round, key))(keys)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rounds)

    @jax.jit
    def both(scale, data):
        size = scale * NEAR.get(name, 1.0) * case.units
        outer = jax.tree.map(lambda leaf: leaf + size * jax.random.uniform(key, leaf.shape), case.start)
        _, info = algorithm.step(algorithm.init(outer, data, key), data)
        return jnp.stack([info.outer_loss, case.gap(round, outer)]), info.gradient, outer

    @jax.jit
    def slopes(outer):
        flat, unravel = ravel_pytree(outer)
        steps = 1e-4 * case.units * jnp.eye(flat.size)
        ahead, back = jax.vmap(jax.vmap(lambda at: case.gap(round, unravel(at))))(
            jnp.stack([flat + steps, flat - steps])
        )
        return unravel((ahead - back) / (2e-4 * case.units))

    data = draw(jax.random.split(key, 1500))
    (first, *_), (last, gradient, outer) = both(0.0, data), both(2.0, data)
    objective, gap = last - first
    np.testing.assert_allclose(objective, gap, rtol=0.05, atol=0.01)
    assert abs(gap) > 0.03
    for one, other in zip(*map(jax.tree.leaves, (gradient, slopes(outer))), strict=True):
        assert jnp.sum((one - other) ** 2) < 0.05**2 * jnp.sum(other**2)
