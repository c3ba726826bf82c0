"""The arena: its problems with other knobs, its lanes against the library, its page, plug-ins, resuming."""

import dataclasses
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from browser import check_study_page, needs_browser
from small_arena import EXAMPLE, SMALL, frame
from toy_study import Kill, stop_after

import smoothfbo as sf
from smoothfbo import cli
from smoothfbo.errors import UsageError
from smoothfbo.harness import chunks, runner
from smoothfbo.harness.study import Run
from smoothfbo.studies.arena import ArenaMethod, contestants, knobs, leaderboard, plugins, report, trials
from smoothfbo.studies.arena.config import PRESETS, ArenaConfig
from smoothfbo.studies.arena.costs import timed
from smoothfbo.studies.arena.measure import study
from smoothfbo.studies.arena.methods import METHODS
from smoothfbo.studies.arena.plugins import Failure, Plugin
from smoothfbo.studies.arena.problems import PROBLEMS
from smoothfbo.studies.arena.program import fresh_programs, programs, run_key, with_length
from smoothfbo.studies.arena.references import constants, smallest
from smoothfbo.studies.arena.tables import board_table


@pytest.fixture(autouse=True, scope="module")
def as_users_have_it():
    """The arena runs in float32; a plug-in is a user's code, with JAX's usual promotion."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def no_processes(monkeypatch):
    """Trials of plug-ins in this process."""
    monkeypatch.setattr(plugins, "trial", lambda task, limit: trials.run_task(task))


@pytest.fixture(scope="module")
def players(as_users_have_it):
    """The methods and the problem of the small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "trial", lambda task, limit: None)
        return contestants.gather(SMALL, Path("nowhere"))


def execute(folder, players, on_records=lambda program, records: None):
    run = Run(SMALL, folder, "smoothfbo arena", lambda progress: None, on_records)
    runner.execute(study(SMALL, players), timed(run, time.perf_counter))


@pytest.fixture(scope="module")
def complete(tmp_path_factory, players):
    folder = tmp_path_factory.mktemp("arena") / "run"
    execute(folder, players)
    return folder


# Knobs


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_every_problem_has_every_kind_of_drift(problem):
    """With a period of 40 rounds, s_t = t/40 (smooth), ⌊t/10⌋/4 in the calm rounds of bursts, constant for ten rounds
    between jumps, and 0 at the start of a walk: the truth of one kind is that of another in another round."""
    assert list(problem.knobs) == ["noise", "dimension", "drift", "period"]
    rounds, seed = jnp.asarray([0, 5, 10, 15, 18, 25]), jnp.uint32(3)

    def truths(rounds):
        def truth(kind):
            (changed,) = knobs.with_knobs([problem], [f"drift={kind}", "period=40"])
            bed = changed.testbed(seed)
            if problem.name == "corruption":  # whose objective takes long to compile
                return jax.vmap(lambda round: jnp.sum(bed.is_corrupted(round) * 1.5 ** jnp.arange(5.0)))(rounds)
            outer = bed.project(jax.tree.map(lambda leaf: leaf + 0.3 * jnp.arange(leaf.size * 1.0).reshape(leaf.shape),
                                             bed.initial()))  # fmt: skip
            return jax.vmap(bed.objective, in_axes=(0, None))(rounds, outer)

        return [truth(kind) for kind in ("smooth", "bursts", "jumps", "walk")]

    smooth, bursts, jumps, walk = map(np.asarray, jax.jit(truths)(rounds))
    has_memory = problem.name in ("regression", "decay")  # the truth of a round is that of the last ones as well
    same = {"rtol": 1e-4, "atol": 1e-6}
    if not has_memory:
        np.testing.assert_allclose(bursts[[0, 1, 2, 3]], smooth[[0, 0, 2, 2]], **same)
        np.testing.assert_allclose(jumps[[0, 2, 2]], jumps[[1, 3, 4]], **same)
        np.testing.assert_allclose(walk[0], smooth[0], **same)
    else:
        np.testing.assert_allclose(bursts[[1, 3]], jumps[[1, 3]], **same)  # at rest for longer than the memory
    for other in (bursts, jumps, walk):
        assert np.abs(other - smooth).max() > 1e-4
    assert np.ptp(jumps) + np.ptp(walk) > 1e-4


def test_knobs_change_the_size_and_the_noise():
    for problem in PROBLEMS:
        (changed,) = knobs.with_knobs([problem], ["dimension=7", f"{problem.name}.noise=0.5"])
        assert (changed.knobs["dimension"], changed.knobs["noise"]) == (7, 0.5)
        bed = jax.eval_shape(changed.testbed, jnp.uint32(0))
        assert problem.name == "corruption" or bed.noise.shape == ()
        size = jax.eval_shape(lambda problem=changed: problem.testbed(jnp.uint32(0)).initial()).size
        assert size == {"decay": 1, "families": 15}.get(problem.name, 7)
    assert PROBLEMS[-1].testbed(jnp.uint32(0), noise=0.9).noise == 0.9  # as a lane of the map has it


# Lanes


def test_normalised_steps_have_the_length_of_the_rate():
    change = {"a": jnp.asarray([3.0, 0.0]), "b": jnp.asarray(4.0)}
    for flag, factor in ((1.0, 0.1), (0.0, 1.0)):
        transformation = with_length(jnp.asarray(0.5), jnp.asarray(flag))
        got, _ = transformation.update(change, transformation.init(change), change)
        np.testing.assert_allclose(got["b"], 4 * factor, rtol=1e-6)
    zero = jax.tree.map(jnp.zeros_like, change)
    np.testing.assert_array_equal(with_length(0.5, 1.0).update(zero, (), change)[0]["a"], 0.0)


def test_lanes_are_plain_runs_of_the_library_and_gaps_those_of_the_testbed(complete, players):
    """The lane of FBO at its first setting against `sf.run`, and its headlines against NumPy."""
    problem = players.problem("target")
    seed = SMALL.tuning[0]
    testbed = problem.build(jnp.uint32(seed))
    estimator = sf.Functional(testbed.inner(), testbed.adjoint())
    algorithm = sf.Online(testbed.problem(), estimator, optax.sgd(problem.rates[0]), testbed.project)
    _, trace = sf.run(algorithm, testbed.source(), testbed.initial(), rounds=80, key=run_key(jnp.uint32(seed)))
    outers = np.asarray(trace.outer, float)[::10]
    angles = 2 * np.pi * np.arange(0, 80, 10) / 300 + float(testbed.phase)
    away = outers - np.stack([np.cos(angles), np.sin(angles)], axis=1)
    gaps = np.sum(away**2, axis=1)
    lanes = pd.read_parquet(complete / "lanes.parquet")
    lane = lanes[(lanes["method"] == "fbo") & (lanes["rule"] == "plain") & (lanes["seed"] == seed)].iloc[0]
    np.testing.assert_allclose(lane["gap"], gaps[4:].mean(), rtol=1e-4)
    np.testing.assert_allclose(lane["gap_all"], gaps.mean(), rtol=1e-4)
    np.testing.assert_allclose(lane["regret_1"], 10 * np.sum(4 * gaps), rtol=1e-4)
    np.testing.assert_allclose(lane["proxy"], np.sum(np.asarray(trace.gradient_norm, float) ** 2), rtol=1e-4)
    still = lanes[(lanes["method"] == "still") & (lanes["seed"] == 0)].iloc[0]
    np.testing.assert_allclose(still["gap"], 1.0, rtol=1e-5)  # λ stays 0, the target on its circle


def test_references_are_the_best_of_every_round_and_the_best_constant(players):
    problem, rounds = players.problem("target"), np.arange(0, 300, 20)
    seeds = np.array([0, 7])
    np.testing.assert_allclose(smallest(problem, seeds, rounds, {}), 0.09, rtol=1e-5)
    found = constants(problem, seeds, rounds)
    np.testing.assert_allclose(found.still, 1.09, rtol=1e-5)
    part = rounds[:8]  # half of the circle: the best constant is the mean of the targets
    halves = constants(problem, seeds, part).constant
    angles = 2 * np.pi * part / 300
    centre = np.exp(1j * angles).mean()
    np.testing.assert_allclose(
        halves.mean(axis=1), 0.09 + np.mean(np.abs(np.exp(1j * angles) - centre) ** 2), rtol=1e-3
    )
    late = np.exp(2j * np.pi * rounds[8:] / 300)  # and of the second half alone
    np.testing.assert_allclose(
        found.late[:, 8:].mean(axis=1), 0.09 + np.mean(np.abs(late - late.mean()) ** 2), rtol=1e-3
    )


def test_methods_of_one_structure_share_a_program(players):
    names = [program.name for program in programs(SMALL, players.pairs())]
    assert names == ["target: fbo, smooth-fbo", "target: exact", "target: momentum"]
    static = dataclasses.replace(players.methods[1], static_window=True, windows=(2, 3))
    problem = players.problem("target")
    assert [program.name for program in programs(SMALL, [(problem, static)])] == [
        "target: smooth-fbo, w = 2", "target: smooth-fbo, w = 3",
    ]  # fmt: skip
    chosen = [{"problem": "target", "method": "smooth-fbo", "rule": "normalised", "window": 3, "rate": 0.5}]
    (fresh,) = fresh_programs(SMALL, [(problem, static)], chosen)
    assert fresh.name == "fresh seeds, target: smooth-fbo, w = 3"
    assert [lane["seed"] for lane in fresh.lanes] == list(SMALL.fresh)
    assert {(lane["rule"], lane["rate"]) for lane in fresh.lanes} == {("normalised", 0.5)}
    (same,) = fresh_programs(SMALL, [(problem, players.methods[1])], [chosen[0] | {"window": 4}])
    assert same.width == programs(SMALL, [(problem, players.methods[1])])[0].width  # one compilation for both


def test_only_the_chosen_setting_runs_on_fresh_seeds(complete, players):
    lanes = pd.read_parquet(complete / "lanes.parquet")
    counts = lanes.groupby(["method", "seed"]).size().unstack()
    tried = {name: sum(counts.loc[name, list(SMALL.tuning)]) for name in ("fbo", "smooth-fbo", "momentum", "exact")}
    assert tried["fbo"] == tried["exact"] == SMALL.trials * SMALL.tuning_seeds
    assert (counts[list(SMALL.fresh)] == 1).all().all()


def test_methods_that_do_not_apply_are_left_out_with_a_reason():
    config = ArenaConfig(problems=("cosine",), methods=("fbo", "aid"), map_noises=())
    found = study(config, contestants.gather(config, Path("nowhere")))
    assert [program.name for program in found.programs] == ["cosine: fbo"]
    (absent,) = found.summarise.args[1]["absent"]
    assert absent["method"] == "aid"
    assert "has no inner function" in absent["why"]


# Runs


def test_the_page_and_the_table_name_every_method(complete):
    page = report.build(complete).read_text()
    for text in ("FBO with momentum", "Moving target", "Best constant λ", "the cost of a round", "range of good rates"):
        assert text in page
    summary = json.loads((complete / "summary.json").read_text())
    board = {row["method"]: row for row in summary["board"]}
    assert set(board) == {"fbo", "smooth-fbo", "momentum", "exact", "still", "constant"}
    assert "rank" not in board["exact"]
    assert {row["rank"]["mean"] for row in board.values() if "rank" in row} == {1, 2, 3}
    assert board["exact"]["gap"]["mean"] < board["still"]["gap"]["mean"]
    table, sentence = report.as_text(complete)
    assert table.row_count == 3
    assert sentence.count("best or tied with the best on") == 1
    assert (complete / "figures" / "leaderboard.png").stat().st_size > 5_000


@needs_browser
@pytest.mark.usefixtures("no_figures")
def test_the_page_works_in_a_browser(complete, tmp_path):
    check_study_page(report.build(complete), tmp_path)


def test_a_best_rank_that_is_shared_is_said_to_be():
    methods = [{"name": name, "label": name.upper(), "is_reference": False} for name in ("a", "b", "c")]
    ranks = {"x": {"a": 1.0, "b": 2.0, "c": 3.0}, "y": {"a": 2.0, "b": 1.0, "c": 3.0}}
    board = [
        {"problem": problem, "method": method, "rank": {"mean": rank}, "to_best": {"mean": rank, "low": rank}}
        for problem, of_methods in ranks.items()
        for method, rank in of_methods.items()
    ]
    summary = {"methods": methods, "problems": [{"name": "x"}, {"name": "y"}], "board": board}
    assert report.result(summary).startswith("A has the best mean rank, 1.5 of 3 (shared with B), and is best")


def test_a_run_that_died_goes_on_without_its_plug_in_to_the_same_bits(complete, players, tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", np.inf)
    for number in (6, 10):  # among the tuning seeds, and then among the fresh ones
        with pytest.raises(Kill):
            execute(tmp_path, players, stop_after(number))
    monkeypatch.setattr(plugins, "read", None)
    monkeypatch.setattr(plugins, "trial", None)
    again = contestants.gather(SMALL, tmp_path)
    assert [method.name for method in again.methods] == [method.name for method in players.methods]
    execute(tmp_path, again)
    for name in ("lanes.parquet", "curves.parquet", "summary.json"):
        assert (tmp_path / name).read_bytes() == (complete / name).read_bytes(), name


# Plug-ins

TEXT = EXAMPLE.read_text()
BAD = {
    "def (": ("import", "SyntaxError"),
    "import there_is_no_such_module": ("import", "No module named 'there_is_no_such_module'"),
    "raise SystemExit('no')": ("import", "SystemExit"),
    "x = 1": ("import", "it defines neither METHOD nor PROBLEM"),
    "METHOD = 'momentum'": ("import", "METHOD must be an ArenaMethod or a list of them, got a str"),
    TEXT.replace("windows=(4, 16)", "windows=(400,)"): ("import", "windows of method momentum must be integers"),
    TEXT.replace("    def best(self", "    def worst(self"): ("PROBLEM target", "abstract"),
    TEXT.replace("return self.centre(round)", "return self.centre(round)[:1]"): ("PROBLEM target", "best must return"),
    TEXT.replace("optimiser = optax.sgd", "optimiser = jnp.sin"): ("METHOD momentum", "momentum"),
    TEXT.replace("return sf.Online(testbed", "return 3 or sf.Online(testbed"): ("METHOD momentum", "int"),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD, ids=[f"{part}-{why[:20]}" for part, why in BAD.values()])
def test_bad_plug_ins_are_one_line_and_the_others_go_on(text, tmp_path, no_processes):
    file = tmp_path / "mine.py"
    file.write_text(text)
    config = dataclasses.replace(SMALL, add=(str(file),), problems=("cosine",), methods=("fbo",))
    with pytest.warns(UserWarning, match=r"mine\.py, ") as seen:
        found = contestants.gather(config, tmp_path / "run")
    part, why = BAD[text]
    lines = [failure.line for failure in found.failures]
    assert any(f"mine.py, {part}" in line and why in line for line in lines), lines
    assert all("\n" not in line for line in lines)
    assert len(seen) == len(lines)
    assert ("cosine", "fbo") in {(problem.name, method.name) for problem, method in found.pairs()}
    assert found.inputs["plugins"][0]["text"] == text
    assert len(found.inputs["failures"]) == len(lines)


def test_a_method_that_gives_nothing_finite_fails():
    method = ArenaMethod("nan", lambda testbed, rate, window: sf.Online(
        testbed.problem(), sf.Oracle(lambda outer, data, key: outer * jnp.nan), optax.sgd(rate)))  # fmt: skip
    cosine = next(problem for problem in PROBLEMS if problem.name == "cosine")
    with pytest.raises(UsageError, match="its hypergradient is not finite in any of the first 10 rounds"):
        trials.run_rounds(method, cosine)


def test_a_plug_in_that_never_ends_is_stopped():
    """In a process of its own, which can be ended whatever it does."""
    endless = dataclasses.asdict(Plugin("endless.py", "while True: pass"))
    assert plugins.trial({"plugins": [endless]}, 1.5) == "it did not end within 1.5 s"


def test_what_failed_does_not_play_and_is_on_the_page(players):
    failed = dataclasses.replace(players, failures=(Failure("mine.py", "METHOD momentum", "no", "target", "momentum"),))
    assert ("target", "momentum") not in {(problem.name, method.name) for problem, method in failed.pairs()}
    found = study(SMALL, failed)
    known = found.summarise.args[1]
    assert known["failures"] == ["mine.py, METHOD momentum on target: no"]
    lanes = pd.concat([frame([1.0] * 3, list(SMALL.fresh), method=name, problem="target") for name in ("fbo", "exact")])
    summary = leaderboard.summarise(SMALL, known, {"lanes": lanes})["summary"]
    rows = {row[0]: row[2:] for row in board_table(summary).rows}
    assert [cell.text for cell in rows["FBO with momentum"]] == ["failed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "smoth-fbo"], "--methods must be one or more of fbo, smooth-fbo,"),
        (["--methods", "smoth-fbo"], "got smoth-fbo (did you mean smooth-fbo?)."),
        (["--problems", "source"], "got source (did you mean sources?)."),
        (["--add", "nowhere.py"], "--add nowhere.py cannot be read: No such file or directory."),
        (["--rounds", "50"], "--rounds must be a multiple of 4 × --record-every = 40, at least 80, got 50."),
        (["--trials", "3", "--methods", "smooth-fbo"], "--trials must be at least 4, for the 2 windows of smooth-fbo"),
        (
            ["--knobs", "noice=1"],
            "--knobs noice=1: noice is not a knob of a problem of this run, one of noise, dimension",
        ),
        (["--knobs", "noice=1"], "period (did you mean noise?)."),
        (["--knobs", "source.noise=1"], "source is not a problem of this run, one of sources, instruments, families"),
        (["--knobs", "sources.dimension=2.5"], "--knobs sources.dimension=2.5: 2.5 is not a whole number."),
        (["--knobs", "drift"], "--knobs must be NAME=VALUE or PROBLEM.NAME=VALUE, got drift."),
        (["--knobs", "drift=jump"], "got 'jump' (did you mean 'jumps'?)."),
        (["--knobs", "noise=-1"], "--knobs noise=-1: sources refuses them: noise must be"),
        (["--time-limit", "0"], "--time-limit must be positive and finite, got 0.0."),
        (["--preset", "fast"], "--preset must be one of quick, full, got fast."),
    ],
)
def test_bad_options_are_one_line_and_make_no_folder(options, message, capsys, tmp_path):
    folder = tmp_path / "run"
    assert cli.main(["arena", *options, "--out", str(folder)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not folder.exists()


def test_tables_and_help_agree():
    fields = Path(ArenaConfig.__module__.replace(".", "/"))
    text = (Path(__file__).parents[2] / "src" / fields.with_suffix(".py")).read_text()
    for entry in (*METHODS, *PROBLEMS):
        assert entry.name in text.split("rounds: int")[0], f"the help does not name {entry.name}"
    for config in PRESETS.values():
        assert set(config.methods) <= {method.name for method in METHODS}
        assert set(config.problems) <= {problem.name for problem in PROBLEMS}
    assert PRESETS["full"].seeds >= 20
    assert not set(PRESETS["full"].fresh) & set(PRESETS["full"].tuning)
