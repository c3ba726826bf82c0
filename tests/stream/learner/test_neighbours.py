"""The nearest rows against NumPy, from the formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from smoothfbo.stream.learner.learner import Learner
from smoothfbo.stream.learner.neighbours import class_shares, column_weights
from smoothfbo.stream.learner.rounds import Rounds
from smoothfbo.stream.learner.specification import Specification
from smoothfbo.stream.learner.state import with_more_outputs
from smoothfbo.stream.rows import Rows

SPEC = Specification(features=3, outputs=2, is_classification=True, block=8, rates=8, lags=(2, 3))
NAMES = ("smoothfbo", *SPEC.reference_names)


def shares_of(row, others, classes, count, number):
    """By a sort of all distances."""
    squares = ((others - row) ** 2).sum(axis=1)
    nearest = np.argsort(squares)[:count]
    weights = 1 / (0.2 + squares[nearest] / squares[nearest].max())
    return np.array([weights[classes[nearest] == c].sum() for c in range(number)]) / weights.sum()


def test_shares_of_classes_among_the_nearest_rows():
    random = np.random.default_rng(0)
    rows, others, classes = random.normal(size=(5, 4)), random.normal(size=(30, 4)), random.integers(3, size=30)
    counts = random.uniform(size=(5, 30)) < 0.6
    counts[3] = np.arange(30) < 2  # fewer than are asked for
    counts[4] = False
    indicators = (classes[:, None] == np.arange(1, 3)).astype(float)
    found = jax.jit(class_shares, static_argnums=4)(*map(jnp.asarray, (rows, others, indicators, counts)), 4)
    for row, count, shares in zip(rows[:4], counts, found, strict=False):
        expected = shares_of(row, others[count], classes[count], 4, 3)
        np.testing.assert_allclose(shares, expected[1:], rtol=1e-10)
    assert np.isnan(found[4]).all()


def test_columns_count_by_what_lies_between_the_classes():
    """Σ_c P(c) (mean of the class − mean)², over the variance."""
    random = np.random.default_rng(1)
    classes = random.integers(3, size=200)
    x = random.normal(size=(200, 3)) + np.array([[0, 0, 0], [1, 0, 3], [-1, 0, 0]])[classes]
    indicators = (classes[:, None] == np.arange(1, 3)).astype(float)
    last = random.normal(size=(200, 2))  # is not used
    z = np.c_[x, np.ones(200), np.stack([indicators, last], axis=2).reshape(200, -1)]
    found = column_weights(jnp.asarray(z.T @ z / 200), 4)
    between = sum((classes == c).mean() * (x[classes == c].mean(axis=0) - x.mean(axis=0)) ** 2 for c in range(3))
    np.testing.assert_allclose(found, np.sqrt(0.05**2 + between / x.var(axis=0)), rtol=1e-10)
    assert found[1] < 0.3 < found[0] < found[2]


def table(rows, noise=0.0, seed=2):
    """Three classes in a ring, which no plane divides: one in the middle, two in turns around it. A lag beside."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 3))
    y = np.where(np.hypot(x[:, 0], x[:, 1]) < 0.7, 0.0, 1.0 + (x[:, 0] * x[:, 1] > 0))
    y = np.where(random.uniform(size=rows) < noise, random.integers(3, size=rows), y)
    x[:, 2] = np.r_[0.0, y[:-1]]
    return x, y


def metric_of(z, y):
    """By the rows themselves, which a memory of 64 blocks forgets."""
    weight = (1 - 2.0**-6) ** ((len(y) - 1) // 8 - np.arange(len(y)) // 8)
    z, y, weight = z[~np.isnan(y)], y[~np.isnan(y)], weight[~np.isnan(y)] / weight[~np.isnan(y)].sum()
    between = 0
    for c in range(3):
        share = weight[y == c].sum()
        between += share * (weight[y == c] @ z[y == c] / share - weight @ z) ** 2
    return np.sqrt(0.05**2 + between / (weight @ (z - weight @ z) ** 2))


@pytest.mark.parametrize("delay", [0, 1])
def test_the_experts_of_a_learner(delay):
    """The rows of the last 500 and, without a delay, of the same block before; not those whose target is missing."""
    x, y = table(8 * 70, noise=0.4)
    x[1::2, :2] = x[::2, :2] + 1e-3  # twins, with labels of their own
    y[538] = np.nan
    previous = np.r_[np.nan, y[:-1]]
    previous[539] = y[537]
    spec = Specification(**{**vars(SPEC), "delay": delay, "horizon": 1 + 8 * delay})
    found = Learner(spec).process(Rows(x, y, previous)).predictions
    for start in range(8 * 67, 8 * 70, 8):
        learnt = start - 8 * delay
        z = (x - x[:learnt].mean(axis=0)) / x[:learnt].std(axis=0)
        metrics = np.array([1.0, 1.0, 0.0]), metric_of(z[:learnt], y[:learnt])
        for name, metric, count in zip(("neighbours", "weighted_neighbours"), metrics, (3, 7), strict=True):
            for at in range(start, start + 8):
                others = np.arange(learnt - 63 * 8, at if delay == 0 else learnt)
                others = others[~np.isnan(y[others])]
                shares = shares_of(z[at] * metric, z[others] * metric, y[others], count, 3)
                assert found[NAMES.index(name), at] == shares.argmax(), (name, at)


def test_rows_without_weight_are_nobody_s_neighbours():
    x, y = table(8 * 12)
    wrong = np.r_[y[:40], (y[40:77] + 1) % 3, y[77:]]  # of the block that begins at 72, five rows
    weight = np.r_[np.ones(40), np.zeros(37), np.ones(len(y) - 77)]
    previous = np.r_[np.nan, y[:-1]]
    found = [
        Learner(SPEC).process(Rows(x, target, previous), weight).predictions[NAMES.index("neighbours"), 77:]
        for target in (y, wrong)
    ]
    np.testing.assert_array_equal(*found)


def test_references_are_only_shown():
    """Without them the same rows are kept, and the same is predicted."""
    x, y = table(8 * 40, noise=0.2)
    rows = Rows(x, y, np.r_[np.nan, y[:-1]])
    without = Specification(**{**vars(SPEC), "with_references": False})
    np.testing.assert_array_equal(
        Learner(without).process(rows).predictions[0], Learner(SPEC).process(rows).predictions[0]
    )


def test_the_nearest_rows_have_no_part_in_the_mixture():
    mixture = Rounds(SPEC).mixture
    assert len(mixture.no_weights().first.bernstein.sums) == len(SPEC.expert_names) - 2


def test_classes_that_no_plane_divides_are_learnt():
    x, y = table(1_200)
    found = Learner(SPEC).process(Rows(x, y, np.r_[np.nan, y[:-1]])).predictions[:, 400:]
    mistakes = dict(zip(NAMES, (found != y[400:]).mean(axis=1), strict=True))
    assert mistakes["neighbours"] < 0.15
    assert mistakes["smoothfbo"] < 0.15 < 0.25 < mistakes["all_past"]


def test_calibrations_keep_their_places_when_a_third_class_comes():
    """What was learnt of the nearest rows' shares is theirs afterwards, and not that of another predictor."""
    two, three = Specification(**{**vars(SPEC), "outputs": 1}), SPEC
    x, y = table(8 * 6)
    learner = Learner(two)
    learner.process(Rows(x, np.minimum(y, 1), np.r_[np.nan, np.minimum(y, 1)[:-1]]))
    before = learner.state.calibration.losses
    rounds = Rounds(three)
    fresh = rounds.init()
    after = with_more_outputs(learner.state, fresh).calibration.losses
    np.testing.assert_array_equal(after, [*before, 0.0])
    experts = jnp.asarray(np.random.default_rng(0).normal(size=(len(three.expert_names), 8, 2)))
    mixed = jax.jit(rounds.mixture.mix)(fresh, Rows(x[:8], y[:8], y[:8]), experts, jnp.ones(8))
    first, *near, mean, last = mixed.outputs
    names = ("neighbours", "weighted_neighbours")
    np.testing.assert_array_equal(near, [experts[three.expert_names.index(name)] for name in names])
    np.testing.assert_allclose(mean, (first + near[0] + near[1]) / 3)
    np.testing.assert_array_equal(last, experts[0])
