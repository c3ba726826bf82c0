"""The experts and their mixture against NumPy, from the formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import stream_reference as reference

from smoothfbo.stream.learner import random_features as rf
from smoothfbo.stream.learner.aggregation import aggregate, empty_aggregate
from smoothfbo.stream.learner.ladder import FAMILIES, ladder
from smoothfbo.stream.learner.late_rules import Block, learn_rules
from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.recursive import predict_row_by_row
from smoothfbo.stream.learner.since import Since, judge
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.units import empty_target_range, observe_target, plausible
from smoothfbo.stream.rows import Rows

SPEC = Specification(
    features=3, outputs=1, is_classification=False, block=8, rates=5, windows=(2,), lags=(2, 3), seasons=(3,)
)

mix_block = jax.jit(aggregate)


def test_one_elimination_is_a_refit_after_every_row():
    random = np.random.default_rng(0)
    past, x = random.normal(size=(12, 3)), random.normal(size=(7, 3))
    past_y, y = random.normal(size=12), random.normal(size=7)
    known = np.array([1, 1, 0, 1, 0.25, 1, 1])
    weight = random.uniform(0.2, 1, 12)
    moments = (past * weight[:, None]).T @ past + 0.1 * np.eye(3)
    products = (past * weight[:, None]).T @ past_y
    found = jax.jit(predict_row_by_row)(
        *map(jnp.asarray, (moments, products[None], x, np.where(known, y, np.nan)[:, None], known))
    )
    expected = reference.row_by_row(x, y, known, past, past_y, weight, 0.1)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-10)


def stream(rows=8 * 9 + 3, seed=1):
    """A level that drifts, two features, and the value of three rows before."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    y = np.cumsum(0.3 * random.normal(size=rows)) + x[:, 0] + 0.5 * random.normal(size=rows)
    x[:, 2] = np.r_[np.zeros(3), y[:-3]]
    return x, y


@pytest.fixture(scope="module")
def outcome():
    x, y = stream()
    y[20] = np.nan
    previous = np.r_[np.nan, y[:-1]]
    previous[21] = y[19]
    return x, y, previous, Learner(SPEC).process(Rows(x, y, previous)).predictions


def test_the_ladder_is_fitted_after_every_row(outcome):
    x, y, previous, predictions = outcome
    names, block, at = ("smoothfbo", *SPEC.reference_names), 8, 72
    start = at - at % block
    known = ~np.isnan(y)
    mean, spread = x[:start].mean(axis=0), x[:start].std(axis=0)
    z = np.c_[(x - mean) / spread, np.ones(len(x))]
    scale = y[:start][known[:start]].std()
    use = known[:start]
    age = (start - 1) // block - np.arange(start) // block
    rates = [1 - 2.0**-k for k in range(4)] + [1.0]
    i = 1
    for family in FAMILIES:
        for k in ladder(5):
            base = previous if family.of_difference else np.zeros(len(y))
            centre = 0 if family.of_difference else y[:start][known[:start]].mean()
            goal = (y - base - centre) / scale
            goal[0] = 0 if family.of_difference else goal[0]  # the first row has no value before it
            weight = np.where(age == 0, 1.0, rates[k] ** age)
            expected = reference.row_by_row(
                z[start:], goal[start:], known[start:].astype(float), z[:start][use], goal[:start][use], weight[use],
                family.ridge,
            ) * scale + base[start:] + centre  # fmt: skip
            i += 1
            np.testing.assert_allclose(predictions[i, start:], expected, rtol=1e-6, err_msg=names[i])
    assert names[i] == "cautious_difference_all"
    np.testing.assert_array_equal(predictions[names.index("last_value"), 1:], previous[1:])
    season = predictions[names.index("season_3")]
    np.testing.assert_array_equal(season[8:], x[8:, 2])


COMPARED = "since_change", "last_block", "forgetting_2", "forgetting_4"


def beginnings(predictions, y):
    """The first rows of the blocks with which `since_change` begins again."""
    names = ("smoothfbo", *SPEC.reference_names)
    compared, losses, begins = [names.index(name) for name in COMPARED], np.zeros(4), [0]
    for start in range(8, len(y), 8):
        here = slice(start, start + 8)
        losses = losses / 2 + ((predictions[compared, here] - y[here]) ** 2).sum(axis=1) / y[:start].var()
        if losses[0] > 1.5 * losses[1:].min():
            losses, begins = np.zeros(4), [*begins, start]
    return begins


def test_one_expert_begins_again_when_the_data_change():
    random = np.random.default_rng(3)
    x = random.normal(size=(8 * 14, 3))
    y = np.where(np.arange(len(x)) < 8 * 8, 4.0, -4.0) * x[:, 0] + 0.3 * random.normal(size=len(x))
    previous = np.r_[np.nan, y[:-1]]
    predictions = Learner(SPEC).process(Rows(x, y, previous)).predictions
    names = ("smoothfbo", *SPEC.reference_names)
    compared, begins = [names.index(name) for name in COMPARED], beginnings(predictions, y)
    assert begins[1:2] == [8 * 8]
    start = len(x) - 8
    z = np.c_[(x - x[:start].mean(axis=0)) / x[:start].std(axis=0), np.ones(len(x))]
    goal, ones = (y - y[:start].mean()) / y[:start].std(), np.ones(len(x))
    past = slice(begins[-1], start)
    expected = reference.row_by_row(z[start:], goal[start:], ones[start:], z[past], goal[past], ones[past], 0.1)
    np.testing.assert_allclose(
        predictions[compared[0], start:], expected * y[:start].std() + y[:start].mean(), rtol=1e-6
    )


def test_random_features_are_a_ridge_regression_that_forgets():
    random = np.random.default_rng(3)
    columns, rows, blocks = 2, 6, 30
    size = columns + 1 + rf.COUNT
    matrix, phases = rf.draw(columns, (1, 2), 0)
    assert (np.count_nonzero(matrix, axis=1) <= 2).all()
    assert not matrix[::2, 1].any()  # every other one leaves out the lag
    state, step = rf.empty_random_features(columns, 1), jax.jit(rf.recur)
    information, right, kept = rf.RIDGE * np.eye(size), np.zeros(size), 1 - 1 / rf.MEMORY
    for t in range(blocks):
        inputs = np.c_[random.normal(size=(rows, columns)), np.ones(rows)]
        phi = np.c_[inputs, np.sqrt(2) * np.cos(np.clip(inputs[:, :-1], -3, 3) @ matrix.T + phases)]
        np.testing.assert_allclose(rf.expand(jnp.asarray(inputs), matrix, phases), phi, rtol=1e-12, atol=1e-12)
        y, known = np.sin(3 * inputs[:, 0]) + t / 10, (random.random(rows) < 0.8).astype(float)
        state, ahead, by_past = step(state, *map(jnp.asarray, (phi, np.where(known, y, 0)[:, None], known)))
        before = np.linalg.solve(information, right)
        np.testing.assert_allclose(by_past[:, 0], phi @ before, rtol=1e-7, atol=1e-9)
        information, right = kept * information, kept * right
        for r in range(rows):
            np.testing.assert_allclose(ahead[r, 0], phi[r] @ np.linalg.solve(information, right), rtol=1e-7, atol=1e-9)
            information += known[r] * np.outer(phi[r], phi[r])
            right += known[r] * phi[r] * y[r]
        for j in (t * rf.RESTORED + np.arange(rf.RESTORED)) % size:
            information[j, j] += rf.RIDGE * (1 - kept) * size / rf.RESTORED
    np.testing.assert_allclose(state.inverse, np.linalg.inv(information), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("columns", [1, 3])
def test_the_mixture_agrees_with_numpy(columns):
    random = np.random.default_rng(columns)
    count, rows, block = 4, 48, 8
    targets = np.cumsum(random.normal(size=(rows, columns)), axis=0)
    noise = random.normal(size=(count, rows, columns)) * np.array([0.2, 0.5, 1, 3])[:, None, None]
    experts = targets + noise + np.array([0.0, 0.5, 0, 0])[:, None, None]
    experts[0, 30:] += 4  # the best one fails
    experts[2, 11] = np.nan
    known = (random.random(rows) < 0.9).astype(float)
    state, found = empty_aggregate(count, columns), []
    for t in range(0, rows, block):
        here = slice(t, t + block)
        seen = np.where(known[here, None] > 0, targets[here], np.nan)
        state, mixed = mix_block(state, jnp.asarray(experts[:, here]), jnp.asarray(seen), jnp.asarray(known[here]))
        found.append(mixed)
    expected = reference.aggregate(experts, targets, known, block)
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-8)


def test_experts_that_agree_are_not_told_apart_by_rounding():
    """Far from zero, rounding is large beside small errors; weights made of it would differ between two machines."""
    random = np.random.default_rng(0)
    goals = 1e4 + random.normal(size=(8, 1))
    alike = np.nextafter(
        np.tile(goals + 0.1 * random.normal(size=(8, 1)), (4, 1, 1)), [[[0.0]], [[0]], [[9e9]], [[9e9]]]
    )
    apart = alike + 1e-6 * np.arange(4)[:, None, None]
    start, weights, late = empty_aggregate(4, 1), jnp.ones(8), jax.jit(learn_rules, static_argnames="large")
    for experts, is_evaluated in ((alike, False), (apart, True)):
        state, _ = mix_block(start, jnp.asarray(experts), jnp.asarray(goals), weights)
        block, prior = Block(jnp.asarray(goals), weights > 0, 1.0), jnp.full(4, 0.25)
        predicted = jnp.asarray(np.tile(experts.mean(axis=0), (3, 1, 1)))
        rules = late(start.first, predicted, jnp.asarray(experts), jnp.ones((4, 8), bool), block, prior, large=5.0)
        for regrets in (*state.first[:2], *state.second[:2], *rules[:2]):
            assert np.any(regrets.largest) == is_evaluated


def test_the_recommended_prediction_is_the_mixture_of_the_experts(outcome):
    _, y, _, predictions = outcome
    count = len(SPEC.expert_names)
    unit, origin = y[:8].std(), y[:8].mean()
    experts = (predictions[1 : count + 1, 8:, None] - origin) / unit
    goals = ((y - origin) / unit)[8:, None]
    expected = reference.aggregate(experts, goals, ~np.isnan(goals[:, 0]), 8)[:, 0] * unit + origin
    np.testing.assert_allclose(predictions[0, 8:], expected, rtol=1e-6)


def test_an_expert_that_begins_again_is_trusted_if_it_had_lasted():
    """The data change after 66 blocks, and again seven blocks later."""
    random, jumps = np.random.default_rng(3), (8 * 66, 8 * 73)
    x = random.normal(size=(8 * 80, 3))
    slopes = np.array([1.0, 4, -4])[np.searchsorted(jumps, np.arange(len(x)), side="right")]
    y = slopes * x[:, 0] + 0.3 * random.normal(size=len(x))
    predictions = Learner(SPEC).process(Rows(x, y, np.r_[np.nan, y[:-1]])).predictions
    assert beginnings(predictions, y) == [0, *jumps]
    experts, (unit, origin) = predictions[1 : len(SPEC.expert_names) + 1], (y[:8].std(), y[:8].mean())
    experts, goals = (experts[:, 8:, None] - origin) / unit, (y[8:, None] - origin) / unit
    trusted = [jumps[0]]  # the next block, counted from the first row that is mixed, which is that of block 1
    of_since = trusted, SPEC.expert_names.index("since_change")
    expected = reference.aggregate(experts, goals, np.ones(len(goals), bool), 8, *of_since)[:, 0] * unit + origin
    np.testing.assert_allclose(predictions[0, 8:], expected, rtol=1e-6)


def test_memory_begins_again_where_it_is_half_as_bad_again_as_a_short_one():
    """Losses so far count half; rows without a target do not count."""
    target, known = jnp.zeros((3, 1)), jnp.array([1.0, 1.0, 0.0])
    state = Since(jnp.eye(2), jnp.array([2.0, 2.0, 4.0, 6.0]))
    for square, has_changed in ((1.7, False), (1.8, True)):  # 1 + 2 · square against 1.5 · (1 + 2 · 1)
        predictions = np.array([np.sqrt(square), 1.0, 2.0, 3.0])[:, None, None] * np.ones((4, 3, 1))
        after = judge(state, jnp.asarray(predictions), target, known)
        losses = np.array([1 + 2 * square, 3.0, 10.0, 21.0])
        np.testing.assert_allclose(after.losses, 0 if has_changed else losses)
        np.testing.assert_allclose(after.moments, 0 if has_changed else np.eye(2))


def test_a_far_target_counts_when_it_stays():
    observe, check = jax.jit(observe_target), jax.jit(plausible)
    first, _ = observe(empty_target_range(), jnp.asarray([0.0, 1, 2, 3]))
    lone = check(first, jnp.asarray([1.0, -9999, 2, jnp.nan]))
    np.testing.assert_array_equal(lone.counts, [True, False, True, False])
    assert check(first, jnp.asarray([100.0])).counts.all()  # a range of one block says little
    after, found = observe(first, jnp.asarray([1.0, 2, 1, 900]))
    np.testing.assert_array_equal(found.counts, [True, True, True, False])
    found = check(after, jnp.asarray([901.0, jnp.nan, 1, 902]))
    np.testing.assert_array_equal(found.counts, [True, False, True, False])
    np.testing.assert_array_equal(found.moved, [True, False, False, False])
    range, found = observe(after, jnp.asarray([901.0, 902, 903, 904]))
    assert found.counts.all()
    assert range.high == 904
    found = check(after, jnp.asarray([900.0, jnp.nan, 900, 902]))  # what is always the same stands for a missing value
    np.testing.assert_array_equal(found.counts, [False, False, False, True])
    range, found = observe(after, jnp.full(30, 900.0))  # the last of 31 in a row
    assert not found.counts.any()
    np.testing.assert_array_equal(check(range, jnp.asarray([900.0, 900, 1, 900])).counts, [True, True, True, False])
