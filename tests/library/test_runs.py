"""Long runs in pieces, live data and memory maps: the same bits as one scan, by one compiled program."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import RIDGE_PROBLEM, linear, ridge_data
from reference import Ridge

import smoothfbo as sf
from smoothfbo import compiled
from smoothfbo.source import _copied

OUTER = jnp.asarray([0.4, -0.7, 0.2])
ROUNDS = 7
EACH = [jax.tree.map(np.asarray, ridge_data(Ridge.draw(seed, n_in=12, n_out=9))) for seed in range(ROUNDS)]
RECORDED = jax.tree.map(lambda *rows: np.stack(rows), *EACH)
TRACED = []  # one entry whenever what is recorded is traced: nothing is added by a program that exists


def record(state, info):
    TRACED.append(1)
    return info._replace(gradient=None, smoothed=None)


SGD = optax.sgd(0.1)
ALGORITHM = sf.Online(
    RIDGE_PROBLEM,
    sf.Functional(linear(), linear(), batch_size=5),
    optax.chain(sf.window_average(3), optax.sgd(0.1)),
)


@pytest.fixture(scope="module")
def whole():
    return sf.run(ALGORITHM, RECORDED, OUTER, rounds=ROUNDS, key=jax.random.key(3), record=record)


def same(one, other, tolerance=0.0):
    """In form, and in bits; a step that is compiled alone may round its last bit otherwise than in a scan."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert isinstance(a, jax.Array)
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def start(source, **options):
    return sf.run(ALGORITHM, source, OUTER, key=jax.random.key(3), record=record, **options)


def test_pieces_are_one_run(whole):
    """3 + 3 + 1 rounds, by one program; then continued, by the same one."""
    seen = []
    found = start(RECORDED, rounds=ROUNDS, every=3, callback=lambda state, trace: seen.append((state, trace)))
    same(found, whole)
    assert [trace.round.tolist() for _, trace in seen] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [int(state.learner.round) for state, _ in seen] == [3, 6, 7]
    before = len(TRACED)
    state, first = start(RECORDED, rounds=4, every=3)
    final, rest = sf.run(ALGORITHM, RECORDED, state=state, every=3, record=record)  # to the end of the recording
    assert len(TRACED) == before
    same(final, whole[0])
    same(jax.tree.map(lambda *parts: jnp.concatenate(parts), first, rest), whole[1])


def test_a_callback_ends_a_run(whole):
    state, trace = start(RECORDED, rounds=ROUNDS, every=3, callback=lambda state, trace: trace.round[-1] >= 3)
    assert trace.round.tolist() == [0, 1, 2, 3, 4, 5]
    np.testing.assert_array_equal(trace.outer, whole[1].outer[:6])
    assert int(state.learner.round) == 6


def test_an_iterable_is_the_recorded_run(whole):
    """A list, a generator that writes into one buffer, and one that is continued: one compiled step for all."""
    found = start(EACH)
    same(found, whole, 1e-12)
    before, buffer = len(TRACED), jax.tree.map(np.copy, EACH[0])

    def overwriting():
        for data in EACH:
            jax.tree.map(np.copyto, buffer, data)
            yield buffer

    same(start(overwriting(), every=2), found)
    source = iter([sf.Round(data) for data in EACH])
    state, first = start(source, rounds=2)
    assert next(source).data is EACH[2]  # nothing was fetched that was not used
    final, rest = sf.run(ALGORITHM, iter(EACH[2:]), state=state, rounds=5, record=record)
    assert len(TRACED) == before
    same(final, found[0])
    same(jax.tree.map(lambda *parts: jnp.concatenate(parts), first, rest), found[1])


def test_arrays_of_a_live_round_are_copied():
    """Whether a device would share their memory depends on where they lie."""
    array = np.arange(64.0)
    assert not np.shares_memory(_copied(array), array)


def test_an_iterable_that_ends_stops_or_raises():
    with pytest.warns(UserWarning, match="the iterable ended after 2 of rounds=5 rounds"):
        _, trace = start(iter(EACH[:2]), rounds=5)
    assert trace.round.tolist() == [0, 1]

    def broken():
        yield from EACH[:3]
        raise OSError("the sensor is gone")

    with pytest.raises(OSError, match="the sensor is gone"):
        start(broken())
    seen = []
    with pytest.raises(OSError, match="the sensor is gone"):  # the rounds before are not lost
        start(broken(), every=2, callback=lambda state, trace: seen.append((state, trace)))
    assert [trace.round.tolist() for _, trace in seen] == [[0, 1], [2]]
    rest, _ = sf.run(ALGORITHM, iter(EACH[3:]), state=seen[-1][0], record=record)
    same(rest, start(EACH)[0])
    seen.clear()
    ragged = EACH[0]._replace(outer=jax.tree.map(lambda leaf: leaf[:0], EACH[0].outer))
    with pytest.raises(ValueError, match=r"data\.outer is an empty batch"):
        start(iter([EACH[0], ragged]), callback=lambda state, trace: seen.append((state, trace)))
    assert [int(state.learner.round) for state, _ in seen] == [1]
    closed = []

    def endless():
        try:
            while True:
                yield EACH[0]
        finally:
            closed.append(True)

    source = endless()
    _, trace = start(source, every=2, callback=lambda state, trace: True)
    assert len(trace.round) == 2
    source.close()
    assert closed
    with pytest.raises(ValueError, match="the iterable of rounds is empty"):
        start([])
    with pytest.raises(TypeError, match="start would use up the first round of an iterable"):
        sf.start(ALGORITHM, iter(EACH), OUTER, jax.random.key(0))


@pytest.mark.usefixtures("as_users_call")
def test_text_in_a_live_round_is_one_sentence():
    data = ridge_data(Ridge.draw(0))
    text = data._replace(outer=sf.Samples(data.outer.x, np.array(["yes"] * 30)))
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"data\.outer\.y has dtype <U3, and JAX computes with numbers only"):
        sf.run(algorithm, [text], jnp.zeros(3), key=jax.random.key(0))


class Tensor:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.usefixtures("as_users_call")
def test_integers_that_would_wrap_around_are_one_sentence():
    """Time in milliseconds does not fit into the 32 bits that JAX computes with by default."""
    data = jax.tree.map(np.asarray, ridge_data(Ridge.draw(0)))
    stamps = 1_700_000_000_000 + np.arange(30)
    late = data._replace(outer=data.outer._replace(y={**data.outer.y, "group": stamps}))
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.sgd(0.1))
    recorded, sentence = jax.tree.map(lambda leaf: leaf[None], late), r"y\['group'\] has the integer 1700000000000"
    with jax.enable_x64(False):
        for source in ([late], recorded, lambda round, key: late):
            with pytest.raises(ValueError, match=sentence):
                sf.run(algorithm, source, jnp.zeros(3), rounds=1, key=jax.random.key(0))
        with pytest.raises(ValueError, match=sentence):
            algorithm.init(jnp.zeros(3), late, jax.random.key(0))
        with pytest.raises(ValueError, match="has the integer 1700000000000"):
            sf.run(algorithm, [jax.tree.map(Tensor, late)], jnp.zeros(3), key=jax.random.key(0))
        small = sf.as_source(jax.tree.map(lambda leaf: leaf[None], data))  # 64 bits, but small numbers
    assert small.rounds == 1


@pytest.mark.usefixtures("as_users_call")
def test_a_table_in_a_live_round_is_one_sentence():
    pandas = pytest.importorskip("pandas")
    data = ridge_data(Ridge.draw(0))
    frame = data._replace(inner=sf.Samples(pandas.DataFrame(np.asarray(data.inner.x)), data.inner.y))
    algorithm = sf.Online(RIDGE_PROBLEM, sf.Functional(linear(), linear()), optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"data\.inner\.x is a DataFrame; give an array: data\.inner\.x\.to_numpy\(\)"):
        sf.run(algorithm, [frame], jnp.zeros(3), key=jax.random.key(0))
    column = data._replace(
        outer=sf.Samples(data.outer.x, jax.tree.map(lambda y: pandas.Series(np.asarray(y)), data.outer.y))
    )
    final, same = (sf.run(algorithm, [each], jnp.zeros(3), key=jax.random.key(0))[0] for each in (column, data))
    np.testing.assert_array_equal(final.learner.outer, same.learner.outer)


def test_a_problem_of_its_own_in_a_live_round():
    doubled = sf.Problem(lambda outer, v, x, y: 2 * RIDGE_PROBLEM.inner_loss(outer, v, x, y), RIDGE_PROBLEM.outer_loss)
    _, usual = start(EACH[:2])
    _, trace = start([EACH[0], sf.Round(EACH[1], doubled)])
    np.testing.assert_array_equal(trace.inner_loss[0], usual.inner_loss[0])
    assert abs(trace.inner_loss[1] - usual.inner_loss[1]) > 1e-3


class Watched(np.memmap):
    """A memory map that tells which rounds were read."""

    read: list

    def __getitem__(self, index):
        if isinstance(index, (slice, int)):
            type(self).read.append(index)
        return super().__getitem__(index)


def test_of_a_memory_map_only_the_pieces_are_read(tmp_path, monkeypatch, whole):
    """Sparse files of 4 GiB each, of which seven rounds are written; more would take minutes, and the memory."""

    def on_disk(path, rows):
        rounds = 2**32 // rows[0].nbytes
        file = Watched(tmp_path / path, rows.dtype, "w+", shape=(rounds, *rows.shape[1:]))
        np.ndarray.__setitem__(file, slice(0, len(rows)), rows)
        return file

    Watched.read = []
    names = iter("abcdefgh")
    leaves, structure = jax.tree.flatten(RECORDED)
    data = jax.tree.unflatten(structure, [on_disk(next(names), leaf) for leaf in leaves])
    shortest = min(len(leaf) for leaf in jax.tree.leaves(data))
    data = jax.tree.map(lambda leaf: np.ndarray.__getitem__(leaf, slice(0, shortest)), data)
    Watched.read = []
    of_a_round = sum(leaf.nbytes for leaf in jax.tree.leaves(EACH[0]))
    monkeypatch.setattr("smoothfbo.pieces.MAPPED_BYTES", 3 * of_a_round)
    state, first = start(data, rounds=5)
    assert {str(each) for each in Watched.read} == {"0", "slice(0, 3, None)", "slice(3, 5, None)"}
    final, rest = sf.run(ALGORITHM, data, state=state, rounds=2, every=3, record=record)
    assert "slice(5, 7, None)" in {str(each) for each in Watched.read}
    same(final, whole[0])
    same(jax.tree.map(lambda *parts: jnp.concatenate(parts), first, rest), whole[1])


def test_tensors_come_through_dlpack(whole):
    """Whatever exports DLPack; PyTorch's tensors are tested where PyTorch is installed."""
    same(start(jax.tree.map(Tensor, data) for data in EACH), whole, 1e-12)


def test_tensors_of_pytorch(whole):
    torch = pytest.importorskip("torch")
    rounds = [jax.tree.map(lambda leaf: torch.from_numpy(np.array(leaf)), data) for data in EACH]
    loader = torch.utils.data.DataLoader(rounds, batch_size=None, shuffle=False)
    same(start(loader), whole, 1e-12)


def test_pieces_cannot_be_traced_and_say_so(as_users_call):
    for options in ({"every": 2}, {"progress": True}, {"callback": print}):
        with pytest.raises(TypeError, match="cannot be traced by jit or vmap"):
            jax.vmap(lambda key, options=options: sf.run(ALGORITHM, RECORDED, OUTER, rounds=2, key=key, **options))(
                jax.random.split(jax.random.key(0), 2)
            )
    with pytest.raises(ValueError, match="every must be an integer >= 1, got every=0"):
        start(RECORDED, rounds=2, every=0)
    with pytest.raises(TypeError, match=r"record must be a function of state and info, got 'gradient'\."):
        sf.run(ALGORITHM, RECORDED, OUTER, rounds=2, key=jax.random.key(3), record="gradient")
    with pytest.raises(TypeError, match="callback must be a function of state and trace, got 3"):
        start(RECORDED, rounds=2, callback=3)
    with pytest.raises(ValueError, match="run needs rounds: a FunctionSource has no end"):
        start(lambda round, key: EACH[0])


@pytest.mark.parametrize("installed", [True, False], ids=["rich", "no rich"])
def test_progress_says_how_fast_and_how_long(capsys, monkeypatch, installed, whole):
    if not installed:
        monkeypatch.setattr("smoothfbo.views.progress.find_spec", lambda name: None)
    same(start(RECORDED, rounds=ROUNDS, every=3, progress=True), whole)
    shown = capsys.readouterr().err
    assert "rounds/s" in shown
    assert "7" in shown


def test_a_step_leaves_the_algorithm_as_it_was(whole):
    """A run after a step compiles nothing; and what is kept for an algorithm goes with it."""
    before = jax.tree.structure(ALGORITHM)
    sf.start(ALGORITHM, RECORDED, OUTER, jax.random.key(0))
    ALGORITHM.step(whole[0].learner, EACH[0])
    assert jax.tree.structure(ALGORITHM) == before
    traced = len(TRACED)
    same(start(RECORDED, rounds=ROUNDS), whole)
    assert len(TRACED) == traced
    kept = len(compiled._KNOWN)
    passing = sf.Online(ALGORITHM.problem, ALGORITHM.estimator, ALGORITHM.optimiser)
    passing.step(whole[0].learner, EACH[0])
    assert len(compiled._KNOWN) == kept + 1
    del passing
    assert len(compiled._KNOWN) == kept


def test_numbers_that_are_equal_but_of_other_types_compile_apart():
    """1, 1.0 and True are equal and have one hash."""
    gradient = lambda factor: lambda outer, data, key: outer * factor  # noqa: E731
    seen = []

    class Typed(sf.Oracle):
        factor: object = 1

        def __call__(self, problem, outer, state, data, key):
            seen.append(type(self.factor))
            return super().__call__(problem, outer, state, data, key)

    shared = gradient(1.0)
    for factor in (1, 1.0, True, 1):
        algorithm = sf.Online(estimator=Typed(shared, None, factor), optimiser=SGD)
        algorithm.step(algorithm.init(jnp.zeros(2), 0, jax.random.key(0)), 0)
    assert seen == [int, float, bool]


def test_what_runs_once_works_alone_and_in_other_programs():
    draw = compiled.run_once(lambda scale, key: scale * jax.random.normal(key, (3,)))
    scale, key = jnp.asarray(2.0), jax.random.key(0)
    expected = 2 * jax.random.normal(key, (3,))
    others = (
        draw,
        jax.jit(draw),
        jax.jit(lambda *_: draw(scale, key)),
        jax.jit(jax.vmap(draw, in_axes=(None, None), axis_size=1)),
    )
    for each in others:
        np.testing.assert_allclose(jnp.ravel(each(scale, key)), expected, rtol=1e-6)
    lanes = jax.vmap(draw, in_axes=(0, None))(jnp.arange(2.0), key)
    np.testing.assert_allclose(lanes[1], expected / 2, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda scale: draw(scale, key)[0])(scale), expected[0] / 2, rtol=1e-6)


def test_a_run_is_differentiable_in_what_its_losses_close_over():
    """All arguments of what runs once are known then, but the losses, which are static, are not."""

    def outer_loss(scale):
        problem = sf.Problem(
            lambda outer, v, x, y: scale * (v - outer * y) ** 2, lambda outer, v, x, y: (v - scale) ** 2
        )
        inner = sf.Linear(lambda x: x, ridge=1.0)
        algorithm = sf.Online(problem, sf.Functional(inner, inner), optax.sgd(0.1))
        samples = sf.Samples(jnp.linspace(1, 2, 8)[:, None], jnp.linspace(1, 3, 8))
        source = sf.RepeatedSource(sf.Data(samples, samples))
        return sf.run(algorithm, source, jnp.ones(()), rounds=2, key=jax.random.key(0))[1].outer_loss[-1]

    slope = (outer_loss(1.01) - outer_loss(0.99)) / 0.02
    assert abs(slope) > 0.1
    np.testing.assert_allclose(jax.grad(outer_loss)(1.0), slope, rtol=1e-2)
    np.testing.assert_allclose(jax.vmap(outer_loss)(jnp.array([0.9, 1.0]))[1], outer_loss(1.0), rtol=1e-5)


def test_an_mlp_of_many_samples_sees_what_its_activation_closes_over():
    x = jnp.linspace(-1, 1, 12).reshape(4, 3)

    def total(scale):
        mlp = eqx.nn.MLP(3, "scalar", 5, 1, lambda v: jnp.tanh(scale * v), key=jax.random.key(1))
        own = jnp.sum(sf.batched(mlp)(x) + sf.batched(mlp)(2 * x))
        return own, jnp.sum(jax.vmap(mlp)(x) + jax.vmap(mlp)(2 * x))

    np.testing.assert_allclose(*total(0.5), rtol=1e-5)
    traced, slope = jax.jit(total), jax.jit(jax.grad(lambda scale: total(scale)[0] - total(scale)[1]))
    for scale in (0.5, 2.0):
        np.testing.assert_allclose(*traced(scale), rtol=1e-5)
        np.testing.assert_allclose(slope(scale), 0.0, atol=1e-6)
    own, plain = jax.jit(jax.vmap(total))(jnp.array([0.5, 2.0]))
    np.testing.assert_allclose(own, plain, rtol=1e-5)
