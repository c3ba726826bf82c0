"""With a horizon of H, row t is predicted from the targets of the rows up to t − H, and from no later one."""

import io
import itertools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import stream_reference as reference
from stream_rows import KeptTables

from smoothfbo.stream.config import StreamConfig
from smoothfbo.stream.learner.files import load, save
from smoothfbo.stream.learner.learner import Learner, _rounds, double_precision
from smoothfbo.stream.learner.specification import Specification, blocks_until_known
from smoothfbo.stream.learner.waiting import prediction_of
from smoothfbo.stream.pipeline import run_stream
from smoothfbo.stream.rows import Rows

ROWS = 8 * 20 + 3
HORIZON, BLOCK = 19, 8
DELAY = blocks_until_known(HORIZON, BLOCK)
# The learner of all tests, so that it compiles once: as of a table of two features, the newest target and a season.
SPEC = Specification(
    features=4, outputs=1, is_classification=False, block=BLOCK, rates=4, windows=(2, 3), smoothing=3, lags=(2, 4),
    own=(-1, -1), seasons=(20,), delay=DELAY, horizon=HORIZON,
)  # fmt: skip
OF_SPEC = {"horizon": HORIZON, "lags": 1, "extra_lags": (20,)}


def table(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, 2))
    y = x @ [1.0, -2.0] + np.cumsum(random.normal(size=ROWS))
    return pd.DataFrame(x, columns=["a", "b"]).assign(y=y)


def predictions(frame, folder, entry="file", **options):
    text = frame.to_csv(index=False)
    (folder / "table.csv").write_text(text)
    config = {"block": 8, "rates": 4, "windows": (2, 3), "smoothing": 3, "lags": 2, "task": "regression", **options}
    data = str(folder / "table.csv") if entry == "file" else "-"
    sink, before = KeptTables(), sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    try:
        results = run_stream(StreamConfig(data, "y", **config), sink)
    finally:
        sys.stdin = before
    assert results.fault is None
    return sink.frame().drop(columns=["target", "probability_of_target"], errors="ignore")


def changed_after(frame, last_known):
    """Every target after this row is another one."""
    changed = frame.copy()
    later = np.arange(ROWS) > last_known
    if frame["y"].dtype == object:
        other = frame["y"].map({"low": "high", "high": "middle", "middle": "low"})
        changed.loc[later, "y"] = other[later]
    else:
        changed.loc[later, "y"] = 40 - 3 * frame["y"][later]
    return changed


def assert_nothing_leaks(frame, folder, rows, horizon, **options):
    whole = predictions(frame, folder, horizon=horizon, **options)
    for row in rows:
        changed = predictions(changed_after(frame, row - horizon), folder, horizon=horizon, **options)
        pd.testing.assert_frame_equal(changed[: row + 1], whole[: row + 1], check_exact=True)
        later = changed["prediction"][row + 1 :].to_numpy() != whole["prediction"][row + 1 :].to_numpy()
        assert later.any()  # the change does show, once it is known


# A horizon of 1 is another program, without a delay: test_learner.py looks for leaks there.
@pytest.mark.parametrize(
    ("options", "entry"),
    [
        *(pytest.param({"horizon": rows}, "file", marks=pytest.mark.thorough) for rows in (1, 2, 7, 16, 50)),
        (OF_SPEC, "file"),
        (OF_SPEC, "stdin"),
    ],
)
def test_no_target_is_used_before_it_is_known(tmp_path, options, entry):
    assert_nothing_leaks(table(), tmp_path, (60, 87, 120) if entry == "file" else (87,), entry=entry, **options)


@pytest.mark.thorough
def test_nor_by_a_network(tmp_path):
    options = {"predictor": "network", "width": 4, "network_blocks": 4, "network_steps": 2, "references": False}
    assert_nothing_leaks(table(), tmp_path, (87, 120), horizon=24, **options)


@pytest.mark.thorough
def test_nor_any_class(tmp_path):
    frame = table()
    frame["y"] = pd.qcut(frame["y"], 3, labels=["low", "middle", "high"]).astype(object)
    assert_nothing_leaks(frame, tmp_path, (60, 120), horizon=24, task="classification")


def test_the_newest_known_target_is_used(tmp_path):
    frame = table()
    whole = predictions(frame, tmp_path, **OF_SPEC)
    changed = predictions(changed_after(frame, 80 - HORIZON - 1), tmp_path, **OF_SPEC)  # one row less is known
    assert changed["prediction"][80] != whole["prediction"][80]
    np.testing.assert_array_equal(whole["last_value"][HORIZON:], frame["y"][:-HORIZON])


@pytest.mark.parametrize("horizon", [1, 2, 8, 9, 10, 17, 24])
def test_a_block_waits_until_its_last_target_is_known(horizon):
    """Counted row by row: which blocks of 8 are known when the first row of block 20 is predicted?"""
    known = [block for block in range(20) if 8 * block + 7 <= 8 * 20 - horizon]
    assert blocks_until_known(horizon, 8) == 19 - known[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("lags", [0, 4])
def test_of_a_random_walk_nothing_beats_the_last_value(tmp_path, lags):
    """The level is a random walk and nothing announces it: H rows ahead the error is H and the noise of the level."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"x": random.normal(size=6_000), "y": np.cumsum(random.normal(size=6_000))})
    frame.to_csv(tmp_path / "walk.csv", index=False)
    for horizon in (1, 24, 100):
        errors = run_stream(StreamConfig(str(tmp_path / "walk.csv"), "y", lags=lags, horizon=horizon)).errors
        assert errors["smoothfbo"] > 0.6 * horizon
        assert errors["smoothfbo"] < 1.05 * errors["last_value"]


def rows_of_a_walk(count=BLOCK * 30 + 3):
    random = np.random.default_rng(5)
    x = random.normal(size=(count, 4))
    y = np.cumsum(random.normal(size=count)) + x[:, 0]
    for column, lag in ((2, HORIZON), (3, 20)):
        x[:, column] = np.r_[np.full(lag, np.nan), y[:-lag]]
    previous = np.r_[np.full(HORIZON, np.nan), y[:-HORIZON]]
    y[100] = np.nan
    previous[100 + HORIZON] = y[99]
    return Rows(x, y, previous)


def part_of(rows, start, stop):
    return Rows(*(column[start:stop] for column in rows))


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def assert_same(one, other):
    for pair in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(*pair)


@pytest.fixture(scope="module")
def whole():
    learner = Learner(SPEC)
    return learner, learner.process(rows_of_a_walk())


def assert_mixed_with_late_feedback(rows, predictions, present=None):
    """The recommended prediction is the mixture, in NumPy, of the experts' predictions with feedback that is late.

    `present` is what the experts would say of a block when it is learnt, if a change shows there.
    """
    names, start = SPEC.expert_names, BLOCK * (DELAY + 1)  # of the first block that was predicted by a fit
    unit, origin = rows.target[:BLOCK].std(), rows.target[:BLOCK].mean()
    last = [name in ("last_value", "season_20") for name in names]
    prior = np.where(last, 0.5 / sum(last), 0.5 / (len(last) - sum(last)))
    end = len(rows.target) // BLOCK * BLOCK
    found = reference.late_aggregate(
        (predictions[1 : 1 + len(names), start:end] - origin) / unit, (rows.target[start:end] - origin) / unit, BLOCK,
        DELAY, prior, 1 / HORIZON, first=0,
        present={block - DELAY - 1: (predicted - origin) / unit for block, predicted in (present or {}).items()},
        since=names.index("since_change"), shortest=names.index("last_block"),
    )  # fmt: skip
    np.testing.assert_allclose(predictions[0, start:end], found * unit + origin, rtol=1e-6)


def test_experts_are_judged_by_what_they_had_said(whole):
    assert_mixed_with_late_feedback(rows_of_a_walk(), whole[1].predictions)


def rows_of_a_jump(before, after=14, slope=-4.0, seed=6):
    """The law of the first column jumps after `before` blocks."""
    random, count = np.random.default_rng(seed), BLOCK * (before + after)
    x = random.normal(size=(count, 4))
    y = np.where(np.arange(count) < BLOCK * before, 1, slope) * x[:, 0] + 0.3 * random.normal(size=count)
    return Rows(x, y, np.r_[np.full(HORIZON, np.nan), y[:-HORIZON]])


def said_at(rows, block):
    """What the experts say of a block when it is learnt: the blocks before it are learnt, and `DELAY` more wait."""
    learner = Learner(SPEC)
    learner.process(part_of(rows, 0, BLOCK * (block + DELAY)))
    predicted = learner.predict(part_of(rows, BLOCK * block, BLOCK * (block + 1)))
    return predicted.predictions[1 : 1 + len(SPEC.expert_names)]


def test_after_a_jump_experts_are_judged_by_what_they_say_now():
    """In the second block after it the fits to the first one show it. Of the next blocks all was predicted before."""
    rows, learner = rows_of_a_jump(70, slope=-2.0), Learner(SPEC)
    assert_mixed_with_late_feedback(rows, learner.process(rows).predictions, {71: said_at(rows, 71)})
    since = learner.state.since.moments[SPEC.constant, SPEC.constant]
    assert since == BLOCK * (84 - DELAY - 71)  # rows from block 71 on; what waited then has not begun it once more


def test_a_law_that_one_block_shows_is_trusted_after_this_block():
    """Half of the block is enough to find it, and the other half to see that nothing else explains the block."""
    rows = rows_of_a_jump(70, slope=-8.0)
    rows.features[:, 1:] = 0
    squares = (Learner(SPEC).process(rows).predictions[0] - rows.target) ** 2
    first = BLOCK * (70 + DELAY + 1)  # when it is predicted, the first block after the jump is learnt
    assert squares[first - BLOCK : first].mean() > 50
    assert squares[first : first + BLOCK].mean() < 1


def test_a_target_that_is_elsewhere_is_no_new_law():
    """Errors H rows ahead may be large and all alike: what is judged is how they differ, in the second half."""
    panel, random = _rounds(SPEC).panel, np.random.default_rng(0)
    y = 5 * random.normal(size=BLOCK)
    near = (y + 0.1 * (-1.0) ** np.arange(BLOCK))[:, None]
    y[-1], counts = np.nan, np.r_[np.ones(BLOCK - 1), 0]

    def is_new(*present, again=near):
        block = Rows(np.zeros((BLOCK, 4)), y, np.zeros(BLOCK))
        with double_precision():
            arrays = jax.tree.map(jnp.asarray, (block, np.stack(present), again, counts))
            return bool(panel.is_new(*arrays))

    far, constant = np.full((BLOCK, 1), 9.0), near + 9.0
    assert is_new(far, far)
    assert not is_new(far, constant)
    beginning = near + np.where(np.arange(BLOCK) < BLOCK // 2, 99.0, 0.0)[:, None]  # when it has seen too little
    assert is_new(far, again=beginning)
    assert not is_new(far, again=near + 2.0)


def test_a_change_soon_after_the_beginning_is_not_trusted():
    rows = rows_of_a_jump(40)
    assert_mixed_with_late_feedback(rows, Learner(SPEC).process(rows).predictions)


def test_a_mixture_that_does_as_well_as_before_does_not_begin_again(whole):
    """Its squared errors are compared with one and a half times s²; rows without a target do not count."""
    state, counts = whole[0].state, jnp.asarray([1.0] * (BLOCK - 1) + [0.0])
    mixture, place = _rounds(SPEC).mixture, int(state.memory.blocks)
    with double_precision():
        predicted = prediction_of(state.waiting, state.memory.blocks)
        origin, unit = (float(leaf[0]) for leaf in mixture.views.first_units_of_target(state))
        for ratio, expected in ((1.45, False), (1.55, True)):
            away = np.sqrt(ratio * float(state.aggregate.first.shared.scale))
            target = (np.asarray(predicted.advice.mixed)[:, 0] + away) * unit + origin
            target[-1] = np.nan
            block = part_of(rows_of_a_walk(), BLOCK * place, BLOCK * (place + 1))._replace(target=target)
            assert bool(mixture.is_surprised(state, jax.tree.map(jnp.asarray, block), predicted, counts)) is expected


def test_what_waits_is_the_same_for_all_portions(whole, tmp_path):
    rows, learner, at, parts = rows_of_a_walk(), Learner(SPEC), 0, []
    for size in (1, 3, 30, 7, 1, 64, 2, 5, 1000):
        here = part_of(rows, at, at + size)
        next_one = learner.predict(here).predictions[0, 0]  # which keeps nothing
        assert learner.predict_number(here.features[0], float(here.previous[0])) == pytest.approx(next_one, nan_ok=True)
        parts.append(learner.process(here).predictions)
        at += len(here.target)
        if at == 105:
            save(tmp_path / "state", learner, {})
            learner, _ = load(tmp_path / "state")
    assert at == len(rows.target)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole[1].predictions)
    assert_same(learner.state, whole[0].state)


def test_no_target_enters_what_waits():
    """Other targets of the rows that are not known when the last block begins."""
    rows, end, learners = rows_of_a_walk(), BLOCK * 20, []
    for change in (0.0, 100.0):
        target = rows.target + np.where(np.arange(len(rows.target)) > end - BLOCK - HORIZON, change, 0)
        learners.append(Learner(SPEC))
        learners[-1].process(part_of(rows._replace(target=target), 0, end))
    one, other = (learner.state for learner in learners)
    assert one.waiting.predictions.begun.shape == (DELAY,)
    assert_same(one.waiting, other.waiting)
    assert not np.array_equal(one.memory.decayed, other.memory.decayed)


@pytest.mark.thorough  # new classes, and blocks that wait, in `make test`
def test_a_new_class_while_blocks_wait():
    """There is room for it, and any portions give the same bits."""
    random = np.random.default_rng(2)
    x, y = random.normal(size=(BLOCK * 12, 2)), random.integers(0, 2, BLOCK * 12).astype(float)
    y[60:] = random.integers(0, 4, BLOCK * 12 - 60)
    rows = Rows(x, y, np.r_[np.full(9, np.nan), y[:-9]])
    spec = Specification(
        features=2, outputs=1, is_classification=True, block=BLOCK, rates=3, with_references=False, delay=1, horizon=9
    )
    learners = [Learner(spec), Learner(spec)]
    whole = learners[0].process(rows).predictions
    cuts = [0, 5, 59, 77, len(y)]
    parts = [learners[1].process(part_of(rows, *cut)).predictions for cut in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    assert learners[0].spec.outputs == 3
    assert_same(learners[1].state, learners[0].state)


@pytest.mark.thorough
def test_a_block_in_which_a_class_gets_room_is_learnt_by_what_was_predicted_of_it():
    """As if there had been room just before: only the predictions of the block that is then predicted know of none."""
    random = np.random.default_rng(2)
    x, y = random.normal(size=(BLOCK * 12, 2)), random.integers(0, 2, BLOCK * 12).astype(float)
    y[60:] = random.integers(0, 3, BLOCK * 12 - 60)
    rows = Rows(x, y, np.r_[np.full(9, np.nan), y[:-9]])
    spec = Specification(
        features=2, outputs=1, is_classification=True, block=BLOCK, rates=3, with_references=False, delay=1, horizon=9
    )
    one, other = Learner(spec), Learner(spec)
    first = int(np.flatnonzero(y == 2)[0]) // BLOCK + 1  # the block that is predicted when the class is learnt
    for learner in (one, other):
        learner.process(part_of(rows, 0, first * BLOCK))
    other._make_room(3)
    for learner in (one, other):
        learner.process(part_of(rows, first * BLOCK, None))
    assert_same(one.state, other.state)
