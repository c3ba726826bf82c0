"""The programs of the study: lanes, rows, options, configurations."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cartpole_reference import DISCOUNT, RATE, Q, compiled, newest, whole_run
from probe import Probe

import smoothfbo as sf
from smoothfbo.errors import UsageError
from smoothfbo.studies.cartpole import algorithm as cartpole_loop
from smoothfbo.studies.cartpole import evaluation, networks
from smoothfbo.studies.cartpole import program as cartpole
from smoothfbo.studies.cartpole.config import CartPoleConfig
from smoothfbo.studies.cartpole.methods import find
from smoothfbo.studies.cartpole.presets import FAITHFUL, PRESETS, REMEDIES, STUDIED
from smoothfbo.studies.cartpole.replay import Replay, inner_parameters


def numbers(**changes):
    values = {
        "seed": 0,
        "interval": jnp.zeros((2, 2)),
        "inner_rate": 1e-2,
        "outer_rate": 1e-3,  # well below the inner rate: a model that moves faster than the values follow runs away
        "target_rate": 0.1,
        "temperature": 1e-2,
        "final_rate": 1.0,
        "window": jnp.asarray(10),
        "mix": 0.4,
    }
    return cartpole_loop.Numbers(**{**values, **changes})


def test_rates_fall_linearly_to_their_last_share():
    source = Replay(Probe(), networks.QNetworks(2, 2, (4,)), networks.WorldModel(2, 2, (3,)), method="fbo")
    algorithm = cartpole_loop.learner(find("fbo"), source, numbers(final_rate=0.2), clip=0.0, capacity=10, rounds=10)
    for optimiser, first in ((algorithm.optimiser, 1e-3), (algorithm.estimator.inner.optimiser, 1e-2)):
        state, sizes = optimiser.init(jnp.ones(1)), []
        with jax.numpy_dtype_promotion("standard"):
            for _ in range(12):
                update, state = optimiser.update(jnp.ones(1), state, jnp.ones(1))
                sizes.append(-float(update[0]))  # Adam's step for a constant gradient is its rate
        expected = first * np.maximum(1 - 0.8 * np.arange(12) / 10, 0.2)
        np.testing.assert_allclose(sizes, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "method",
    ["smooth-fbo"]
    + [
        pytest.param(name, marks=pytest.mark.thorough)
        for name in (*STUDIED, "corrected-fbo")
        if not find(name).is_smoothed
    ],
)
def test_every_method_solves_the_probe(method):
    source = Replay(
        Probe(),
        networks.QNetworks(2, 2, (16,)),
        networks.WorldModel(2, 2, (8,)),
        method=find(method).estimator,
        discount=DISCOUNT,
        target_rate=0.1,
        exploration=0.2,
        random_steps=100,
        capacity=1000,
        batch=32,
    )
    rate = 0.1 if method.endswith("itd") else 1e-2

    def train(key):
        algorithm = cartpole_loop.learner(
            find(method), source, numbers(inner_rate=rate), clip=1.0, capacity=10, rounds=1
        )
        key_model, key_run = jax.random.split(key)
        outer = source.model.init(key_model)
        final, trace = sf.run(
            algorithm, source, outer, rounds=4000, key=key_run, record=lambda state, info: info.finite
        )
        parameters = inner_parameters(final.learner.estimator)
        observations = jnp.asarray([[0.0, 1.0], [0.0, -1.0], [1.0, 1.0], [1.0, -1.0]])
        values = jax.vmap(source.q.values, in_axes=(None, 0))(parameters, observations)
        returns = evaluation.evaluate(source.environment, newest(source.q, parameters), jnp.asarray(0), key, 4).returns
        return jnp.mean(values, axis=1), returns, jnp.all(trace)

    with jax.enable_x64(False):
        values, returns, finite = jax.jit(jax.vmap(train))(jax.random.split(jax.random.key(3), 5))
    assert finite.all()
    np.testing.assert_array_equal(returns, 1)
    # The value of the start, whose side means nothing, and of the second step on the side that pays.
    middle = np.median(values.max(-1), axis=0)  # over seeds: a single one may still be on its way
    np.testing.assert_allclose(middle[:2], DISCOUNT, atol=0.15)
    np.testing.assert_allclose(middle[2], 1, atol=0.15)


SMALL_CONFIG = CartPoleConfig(
    methods=("fbo", "smooth-fbo"),
    environment=("stationary", "drifting"),
    steps=40,
    evaluate_every=20,
    episodes=3,
    seeds=2,
    window=(1, 5),
    mix=(0.0,),
    random_steps=30,
    batch=8,
    capacity=60,
    q_hidden=(4,),
)


@functools.cache
def small_programs():
    results = {}
    for program in cartpole.programs(SMALL_CONFIG):
        results[program.name] = (program, *whole_run(program))
    return results


def test_programs_hold_every_setting_and_seed_and_report_a_row_per_chunk():
    program, _, rows = small_programs()["smooth-fbo"]
    assert len(program.lanes) == 2 * 2 * 2
    assert {(lane["environment"], lane["window"], lane["seed"]) for lane in program.lanes} == {
        (environment, window, seed)
        for environment in ("stationary", "drifting")
        for window in (1, 5)
        for seed in (0, 1)
    }
    assert (program.rounds, program.chunk, program.chunks) == (40, 20, 2)
    for chunk, records in enumerate(rows):
        assert all(column.shape[:2] == (8, 1) for column in records.values())
        assert (records["round"] == 20 * chunk + 19).all()
        assert records["finite"].all()
        for name in set(records) - {"training_return", "shown"}:  # no episode ended, or one has
            assert np.isfinite(records[name]).all(), name
        assert (records["return_min"] <= records["return_mean"]).all()
        assert (records["return_mean"] <= records["return_max"]).all()
    drifting = np.array([lane["environment"] == "drifting" for lane in program.lanes])
    np.testing.assert_allclose(rows[1]["reward_low"][~drifting], -0.2095, rtol=1e-6)
    np.testing.assert_allclose(rows[1]["reward_low"][drifting], -0.2095 + 39 / 40 * 0.1495, rtol=1e-6)
    np.testing.assert_allclose(rows[1]["reward_high"][drifting], 0.06 + 39 / 40 * 0.1495, rtol=1e-6)


def rounds_of(config, program, index, lane, rounds):
    """The rounds of a lane once more, one by one, with their gradients; and the state after them."""
    pick = functools.partial(jax.tree.map, lambda leaf: leaf[index])
    numbers, state = pick(program.numbers), pick(lane.run)
    state = state._replace(source=state.source._replace(tally=jax.tree.map(jnp.zeros_like, state.source.tally)))
    source = cartpole_loop.replay(config, find(program.name), numbers)
    algorithm = cartpole_loop.learner(
        find(program.name), source, numbers, clip=config.clip, capacity=max(config.window), rounds=config.steps
    )
    return sf.run(algorithm, source, rounds=rounds, state=state, record=lambda state, info: info)


def test_a_row_sums_up_its_rounds():
    program, lanes, rows = small_programs()["smooth-fbo"]
    index = next(i for i, lane in enumerate(program.lanes) if lane["window"] == 5 and lane["environment"] == "drifting")
    last, infos = rounds_of(SMALL_CONFIG, program, index, lanes[1], 20)
    row = {name: np.asarray(values)[index, 0] for name, values in rows[1].items()}
    raw, used = (np.sqrt(np.sum(np.square(g), axis=(1, 2))) for g in (infos.gradient, infos.smoothed))
    assert not np.allclose(raw, used, rtol=0.1)
    tally = last.source.tally
    assert tally.steps == 20
    for name, expected in {
        "hypergradient_norm": raw.mean(),
        "used_norm": used.mean(),
        "hypergradient_squares": (raw**2).sum(),
        "used_squares": (used**2).sum(),
        "clipped": (used > SMALL_CONFIG.clip).mean(),
        "inner_loss": infos.inner_loss.mean(),
        "outer_loss": infos.outer_loss.mean(),
        "training_pole_angle": tally.observations[cartpole.POLE_ANGLE] / 20,
    }.items():
        np.testing.assert_allclose(row[name], expected, rtol=1e-6, err_msg=name)


LONGER = replace(
    SMALL_CONFIG, methods=("itd", "fbo"), environment=("drifting",), steps=120, evaluate_every=120,
    itd_factor=7.0, inner_steps=3, inner_rate=(0.01,),
)  # fmt: skip


@pytest.fixture(scope="module")
def longer():
    """One chunk in which episodes end, with several inner steps."""
    itd, fbo = cartpole.programs(LONGER)
    return itd, fbo, *whole_run(fbo)


def test_training_returns_are_means_over_the_episodes_that_ended(longer):
    _, _, (_, after), (row,) = longer
    tally = after.run.source.tally
    assert (tally.episodes > 1).all()
    np.testing.assert_array_equal(row["training_episodes"][:, 0], tally.episodes)
    np.testing.assert_allclose(row["training_return"][:, 0], tally.returns / tally.episodes, rtol=1e-12)


def test_a_lane_that_stops_within_a_chunk_is_marked():
    config = replace(SMALL_CONFIG, methods=("itd",), environment=("drifting",), inner_rate=(1e4,), evaluate_every=40)
    (program,) = cartpole.programs(config)
    _, (row,) = whole_run(program)
    assert 0 < row["skipped"][0, 0] < 40  # the first rounds were finite, the last were not
    assert not row["finite"][0, 0]


def test_options_reach_what_they_are_for(longer):
    config, (itd, fbo, lanes, _) = LONGER, longer
    np.testing.assert_allclose(itd.numbers.inner_rate, 0.07)
    np.testing.assert_allclose(fbo.numbers.inner_rate, 0.01)
    counts = [leaf for leaf in jax.tree.leaves(lanes[1].run.learner.estimator.inner.optimiser) if leaf.ndim == 1]
    assert counts
    assert all((count == 3 * 120).all() for count in counts)
    one = jax.tree.map(lambda leaf: leaf[0], fbo.numbers)
    source = cartpole_loop.replay(replace(config, discount=0.8, model_leak=0.3), find("fbo"), one)
    assert source.discount == 0.8
    assert source.model.network.leak == 0.3
    np.testing.assert_allclose(source.largest_value, (1 + one.temperature * np.log(2)) / (1 - 0.8))
    assert cartpole_loop.replay(replace(config, bounded_values=False), find("fbo"), one).largest_value is None
    plain = cartpole_loop.replay(replace(config, critics=1, independent_final=True), find("fbo"), one)
    assert (plain.q.critics, plain.independent_final) == (1, True)
    inverses = {name: cartpole_loop.estimator_of(find(name), Q, RATE).inverse for name in ("omd", "omd-cg")}
    assert isinstance(inverses["omd"], sf.IdentityInverse)
    assert isinstance(inverses["omd-cg"], sf.ConjugateGradient)


def test_presets_add_each_remedy_to_the_papers_algorithm_and_take_each_away_from_ours():
    faithful, ours = (replace(PRESETS[name], methods=("smooth-fbo",)) for name in ("faithful", "paper"))
    usual = CartPoleConfig()
    every = {name: value for added in REMEDIES.values() for name, value in added.items()}
    assert set(every) == set(FAITHFUL)
    assert sum(map(len, REMEDIES.values())) == len(every)  # no number is part of two remedies
    for name, value in every.items():
        assert getattr(usual, name) == value != getattr(faithful, name) == FAITHFUL[name]
    for remedy, added in REMEDIES.items():
        assert PRESETS[f"faithful-{remedy}"] == replace(faithful, **added)
        removed = {name: FAITHFUL[name] for name in added}
        expected = replace(ours, **removed, environment=("drifting",), first_seed=faithful.first_seed)
        vary = ("final_rate",) if remedy == "falling" else ()  # the settings would say 0 otherwise
        assert PRESETS[f"paper-no-{remedy}"] == replace(expected, vary=vary)


def test_the_papers_algorithm_runs_with_one_network_and_batches_of_its_own():
    config = replace(
        SMALL_CONFIG, methods=("smooth-fbo",), environment=("drifting",), **FAITHFUL, independent_final=True, seeds=1
    )
    (program,) = cartpole.programs(config)
    lanes, rows = whole_run(program)
    assert inner_parameters(lanes[-1].run.learner.estimator).shape[1] == 1
    assert all(row["finite"].all() and (row["clipped"] == 0).all() for row in rows)
    last, infos = rounds_of(config, program, 1, lanes[0], 20)  # w = 5: the plain average of the last five, zero-padded
    raw = np.asarray(infos.gradient)
    average = np.stack([raw[max(0, t - 4) : t + 1].sum(0) / 5 for t in range(20)])
    np.testing.assert_allclose(infos.smoothed, average, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(lanes[1].run.learner.outer[1], last.learner.outer, rtol=1e-9)


@pytest.mark.parametrize(("clip", "size"), [(0.5, 0.5), (0.0, 50.0), (100.0, 50.0)])
def test_gradients_are_clipped_before_adam(clip, size):
    source = Replay(Probe(), networks.QNetworks(2, 2, (4,)), networks.WorldModel(2, 2, (3,)), method="fbo")
    optimiser = cartpole_loop.learner(find("fbo"), source, numbers(), clip=clip, capacity=10, rounds=10).optimiser
    gradient = jnp.array([30.0, 40.0])
    with jax.numpy_dtype_promotion("standard"):
        _, state = optimiser.update(gradient, optimiser.init(gradient), gradient)
    (moment,) = [part.mu for part in jax.tree.leaves(state, is_leaf=lambda s: hasattr(s, "mu")) if hasattr(part, "mu")]
    np.testing.assert_allclose(moment, 0.1 * size * np.array([0.6, 0.8]), rtol=1e-6)  # Adam keeps 1 − 0.9 of it


def test_a_window_of_one_is_no_smoothing_and_longer_ones_are_not():
    program, lanes, rows = small_programs()["smooth-fbo"]
    plain_program, plain_lanes, plain_rows = small_programs()["fbo"]
    last, plain_last = lanes[-1].run.learner.outer, plain_lanes[-1].run.learner.outer
    for index, lane in enumerate(program.lanes):
        same = {key: lane[key] for key in ("environment", "seed")}
        twin = next(i for i, other in enumerate(plain_program.lanes) if same.items() <= other.items())
        difference = np.abs(last[index] - plain_last[twin]).max()
        assert (difference < 1e-9) == (lane["window"] == 1)  # another program adds in another order
        if lane["window"] == 1:
            np.testing.assert_allclose(rows[1]["used_squares"][index], plain_rows[1]["used_squares"][twin], rtol=1e-9)


def test_seeds_differ_in_every_random_choice():
    program, lanes, _ = small_programs()["fbo"]
    states = [jax.tree.map(np.asarray, lane.run) for lane in lanes]
    one, other = (jax.tree.map(lambda leaf, i=i: leaf[i], states[0]) for i in (0, 1))
    assert [lane["seed"] for lane in program.lanes[:2]] == [0, 1]
    weights = slice(0, 6 * 3)  # the first layer of both networks; biases start at zero
    assert not np.isclose(one.learner.outer[:, weights], other.learner.outer[:, weights]).any()
    assert not np.isclose(*one.learner.outer[:, weights]).any()
    first, second = inner_parameters(states[0].learner.estimator)[:2]
    assert not np.isclose(first[:, : 4 * 4], second[:, : 4 * 4]).any()
    assert not np.isclose(first[0, : 4 * 4], first[1, : 4 * 4]).any()  # and the two networks of a pair
    assert not np.array_equal(one.learner.key, other.learner.key)
    assert not np.array_equal(one.key, other.key)
    assert not np.isclose(one.source.memory[0, :4], other.source.memory[0, :4]).any()  # the first state
    actions = [state.source.memory[:30, 4] for state in (one, other)]
    assert 5 < np.sum(actions[0] != actions[1]) < 25
    later = [jax.tree.map(lambda leaf, i=i: leaf[i], states[-1]) for i in (0, 1)]
    assert not np.isclose(later[0].source.environment.observation, later[1].source.environment.observation).any()
    # mini-batches: the same memory, the keys of the two lanes
    config = CartPoleConfig(
        random_steps=30, batch=8, capacity=60, q_hidden=(4,), steps=40, evaluate_every=20, window=(1,)
    )
    lane = jax.tree.map(lambda leaf: np.asarray(leaf)[0], program.numbers)
    source = cartpole_loop.replay(config, find("fbo"), lane)

    @jax.jit
    def observations(key):
        key = jax.random.fold_in(jax.random.wrap_key_data(key), 0)
        return source(one.source, jnp.asarray(0), one.learner, key)[1].data.inner.x.observation

    assert not np.array_equal(*(observations(key) for key in (one.key, other.key)))
    # stationary and drifting lanes of one seed share all of it: they differ in the reward alone
    drifting = next(i for i, each in enumerate(program.lanes) if each["environment"] == "drifting")
    np.testing.assert_array_equal(states[0].source.memory[0], states[0].source.memory[drifting])


def test_a_lane_that_is_not_finite_stops_and_is_marked_while_the_others_go_on():
    program, (before, *_), _ = small_programs()["fbo"]
    learner = before.run.learner
    broken = learner._replace(outer=learner.outer.at[0].set(jnp.nan))
    lane, records = compiled(program.advance)(program.numbers, before._replace(run=before.run._replace(learner=broken)))
    after = lane.run.learner
    assert records["finite"].tolist() == [[False], [True], [True], [True]]
    assert records["skipped"][:, 0].tolist() == [20, 0, 0, 0]
    np.testing.assert_array_equal(inner_parameters(after.estimator)[0], inner_parameters(learner.estimator)[0])
    assert np.isfinite(after.outer[1:]).all()


def test_settings_of_a_method_replace_the_grid():
    config = CartPoleConfig(
        methods=("fbo", "smooth-fbo"), seeds=1, environment=("drifting",), inner_rate=(1e-3, 3e-3), window=(10, 100)
    )
    plain, smooth = cartpole.programs(config, {"smooth-fbo": [{"inner_rate": 5e-4, "window": 7, "mix": 0.8}]})
    assert [lane["inner_rate"] for lane in plain.lanes] == [1e-3, 3e-3]
    (lane,) = smooth.lanes
    assert (lane["inner_rate"], lane["window"], lane["mix"]) == (5e-4, 7, 0.8)
    assert smooth.numbers.window.tolist() == [7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ("sarsa",)}, "`methods` must be one or more of mle, omd.* got sarsa"),
        ({"environment": ("moving",)}, "`environment` must be one or more of stationary, drifting, got moving"),
        ({"capacity": 100}, "`capacity` must be at least batch = 256, got 100"),
        ({"inner_rate": (0.0,)}, "`inner_rate` must be positive"),
        ({"outer_rate": (1e-3, -1.0)}, "`outer_rate` must be positive and finite, got -1.0"),
        ({"target_rate": (1.5,)}, "`target_rate` must be at most 1"),
        ({"temperature": (0.0,)}, "`temperature` must be positive"),
        ({"first_interval": (0.1, 0.1)}, "`first_interval` must be a low below a high, both finite, got 0.1 0.1"),
        ({"last_interval": (0.2, -0.2)}, "`last_interval` must be a low below a high"),
        ({"window": (0,)}, "`window` must be between 1 and steps"),
        ({"mix": (1.2,)}, "`mix` must be between 0 and 1"),
        ({"steps": 15_000}, "`steps` must be a multiple of `evaluate_every` = 10000, got 15000"),
        ({"seeds": 0}, "`seeds` must be an integer of at least 1"),
        ({"inner_steps": 0}, "`inner_steps` must be an integer of at least 1"),
        ({"methods": ()}, "`methods` must be one or more of mle"),
        ({"critics": 3}, "`critics` must be 1 or 2, got 3"),
        ({"discount": 1.0}, "`discount` must be at least 0 and below 1"),
    ],
)
def test_bad_configurations_say_what_is_wrong(options, message):
    with pytest.raises(UsageError, match=message):
        CartPoleConfig(**options)
