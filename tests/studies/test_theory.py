"""The laboratory as a user runs it: files, verdicts, exit status, messages."""

import contextlib
import dataclasses
import io
import json
import shutil
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pandas as pd
import pytest
from browser import check_study_page, needs_browser
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from toy_study import Kill, execute, stop_after

import smoothfbo as sf
from smoothfbo import cli
from smoothfbo.harness import folders
from smoothfbo.studies.theory import charts, lanes, report
from smoothfbo.studies.theory import program as theory
from smoothfbo.studies.theory.config import TheoryConfig
from smoothfbo.studies.theory.growth import BIASES, biased_oracle
from smoothfbo.studies.theory.growth_verdicts import growth_slopes
from smoothfbo.studies.theory.replay import draw_sample, replayed_lane, sampled_gradient
from smoothfbo.studies.theory.statements import Judge, judge_statements
from smoothfbo.testbeds import DriftingCosine, FiniteBilevel

SMALL = ["--lanes", "24", "--rounds", "40", "--windows", "1", "4", "--drifts", "0.05",
         "--horizons", "100", "316", "1000", "--exponents", "0.333", "--growth-lanes", "4"]  # fmt: skip


@contextlib.contextmanager
def jaxtyped_off():
    """As users run it: without run-time checks of types, and with the usual promotion of dtypes."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    with jax.numpy_dtype_promotion("standard"):
        yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One small run of the command as users have it: float32 by default, the usual promotion of dtypes."""
    folder = tmp_path_factory.mktemp("theory") / "run"
    printed = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        jaxtyped_off(),
        jax.enable_x64(False),
        contextlib.redirect_stdout(printed),
    ):
        # Finding room for every label takes most of the time of drawing.
        patch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda self, figure: None)
        status = cli.main(["theory", *SMALL, "--out", str(folder)])
    return status, folder, printed.getvalue()


def test_theory_writes_checks_metrics_and_figures(finished):
    status, folder, printed = finished
    assert status == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert {"name", "window", "drift", "lhs", "rhs", "holds"} <= set(summary["checks"][0])
    names = " ".join({check["name"] for check in summary["checks"]})
    for word in ("decomposition", "telescoping", "movement", "theorem (oracle)", "theorem (estimated)", "proxy",
                 "error lemma (oracle)", "error lemma (estimated)", "bias lemma", "variance lemma", "linear reduction",
                 "corollary: the variance", "corollary: tracking", "sublinear", "counter-example",
                 "theorem (replayed)", "replay, descent", "replay, ageing", "replayed, slope ≤ −0.3",
                 "replayed, BLR_1", "replayed, shifted samples", "replayed against stored (functional"):  # fmt: skip
        assert word in names
    assert all(check["holds"] is not False for check in summary["checks"])
    lanes = pd.read_parquet(folder / "metrics.parquet")
    assert len(lanes) == (6 * 2 + 1) * 2 * 24  # (problems × windows + replayed estimates) × steps × lanes
    assert lanes.groupby(["problem", "drift", "window", "step"])["regret"].nunique().min() == 24
    assert {path.name for path in (folder / "figures").iterdir()} == {
        "bound.png", "decomposition.png", "growth.png", "growth_bias.png", "trade_off.png",
        "share_of_bound.png", "regret_over_horizons.png"
    }  # fmt: skip
    assert not list(folder.glob(".*"))
    config = json.loads((folder / "config.json").read_text())
    assert config["config"]["lanes"] == 24
    assert config["command"].startswith("smoothfbo theory --lanes 24 --rounds 40")
    assert "jax" in config["versions"]
    assert "theorem (oracle)" in printed


def test_the_page_opens_with_a_sentence_a_chart_and_a_row_per_theorem(finished):
    page = (finished[1] / "report.html").read_text().split("<script")[0]
    lead, folded = page.split("<details>", 1)
    places = [lead.index(part) for part in ("comparisons with a verdict hold", 'id="chart-0"', ">What holds<")]
    assert places == sorted(places)
    assert "<img" not in lead  # pictures of many panels are folded away
    assert folded.count("<img") == 5
    checks = json.loads((finished[1] / "summary.json").read_text())["checks"]
    rows = report.group_table(checks).rows
    assert len(rows) == len(report.GROUPS) < 20
    counts = [[int(word.replace(",", "")) for word in verdict.text.split(" of ")] for _, verdict, _, _ in rows]
    judged = [check for check in checks if check["holds"] is not None]
    assert sum(number for _, number in counts) == len(judged)
    assert sum(number for number, _ in counts) == sum(check["holds"] for check in judged)
    assert sum(unjudged or 0 for _, _, unjudged, _ in rows) == len(checks) - len(judged)
    worst = {title: ratio for title, _, _, ratio in rows}
    assert worst["Theorem 4.4 (oracle)"] == max(
        check["ratio"] for check in checks if check["name"].startswith("theorem (oracle)")
    )
    assert worst["Growth of the regret, replayed windows (ours)"] is None  # slopes are no ratios


@needs_browser
def test_the_page_works_in_a_browser(finished, tmp_path):
    check_study_page(finished[1] / "report.html", tmp_path, "400,800", dark=True)


def test_a_failure_shows_in_the_row_of_its_theorem():
    def check(holds, ratio):
        return {"name": "proxy: …", "problem": "oracle", "holds": holds, "ratio": ratio}

    ((title, verdict, unjudged, ratio),) = report.group_table(
        [check(True, 0.5), check(False, 2.0), check(None, 9.0)]
    ).rows
    assert (title, verdict.text, verdict.kind, unjudged, ratio) == ("Proxy bound", "1 of 2", "bad", 1, 2.0)


def test_the_lead_chart_shows_the_largest_share_of_the_bound():
    """Of two drifts and two lanes, over one window."""
    frame = pd.DataFrame({
        "problem": "oracle", "window": 4, "step": 1.0, "drift": [0.0, 0.0, 0.1, 0.1],
        "regret": [1.0, 3.0, 4.0, 8.0], "bound": [10.0, 10.0, 5.0, 15.0],
    })  # fmt: skip
    line, limit = charts.share_of_bound(frame).series
    np.testing.assert_allclose(line.y, [0.6])
    assert list(limit.y) == [1.0]


def test_a_statement_that_fails_is_named_and_changes_the_exit_status(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(charts, "_save", lambda path, make: path)  # they are drawn
    folder = tmp_path / "run"
    shutil.copytree(finished[1], folder)
    summary = json.loads((folder / "summary.json").read_text())
    summary["checks"][0]["holds"] = False
    (folder / "summary.json").write_text(json.dumps(summary))
    with jaxtyped_off(), jax.enable_x64(False):
        assert cli.main(["theory", *SMALL, "--out", str(folder)]) == 1
    assert "smoothfbo: does not hold: decomposition" in " ".join(capsys.readouterr().err.split())
    # outside the assumptions it is only marked
    summary["checks"][0]["within_assumptions"] = False
    (folder / "summary.json").write_text(json.dumps(summary))
    assert report.outcome(folder) == (0, None)
    Console().print(report.as_text(folder)[0])
    assert "outside the assumptions" in " ".join(capsys.readouterr().out.split())


@pytest.mark.thorough  # the same resume as every study's, which the tests of the harness cover
def test_a_killed_run_resumes_to_the_same_numbers(finished, tmp_path):
    """Between two programs, to those of a run that was not killed: what was done is not done again."""
    config = folders.configuration(TheoryConfig, json.loads((finished[1] / "config.json").read_text())["config"])
    with jaxtyped_off(), jax.enable_x64(False):  # the programs of the finished run, which are compiled already
        study = theory.study(config)
        with pytest.raises(Kill):
            execute(study, tmp_path / "parts", stop_after(2))
        programs = []
        execute(study, tmp_path / "parts", lambda program, records: programs.append(program.name))
    assert programs == [program.name for program in study.programs[2:]]
    assert (finished[1] / "summary.json").read_bytes() == (tmp_path / "parts" / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lanes", "1"], "--lanes must be an integer of at least 10, got 1."),
        (["--drifts"], "--drifts must be at least one value, got nothing."),
        (["--horizons", "100", "100", "100"], "--horizons must be different values in rising order, got 100 100 100."),
        (["--windows", "500"], "--windows must be between 1 and rounds = 200, got 500."),
        (["--windows", "0"], "--windows must be between 1 and rounds = 200, got 0."),
        (["--drifts", "-0.1"], "--drifts must be finite and not negative, got -0.1."),
        (["--step", "1.5"], "--step 1.5 is more than the theorems allow (1); use at most 1, or --allow-large-step"),
        (["--step", "0"], "--step must be positive and finite, got 0.0."),
        (["--horizons", "5", "100", "200"], "--horizons must be integers of at least 10, got 5."),
        (["--exponents", "1.5"], "--exponents must be strictly between 0 and 1, got 1.5."),
    ],
)
def test_bad_options_are_one_line_and_leave_no_folder(options, message, tmp_path, capsys):
    folder = tmp_path / "run"
    assert cli.main(["theory", *options, "--out", str(folder)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with jaxtyped_off(), jax.enable_x64(False):  # as the finished run, whose programs are compiled
        assert cli.main(["theory", *SMALL, "--out", str(tmp_path / "file" / "run")]) == 2
        assert capsys.readouterr().err.startswith(f"smoothfbo: {tmp_path}")
        assert cli.main(["theory", *SMALL, "--out", str(tmp_path / "file")]) == 2
    assert "it is a file, not a folder" in capsys.readouterr().err


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("smoothfbo 1.")


def test_large_steps_are_marked():
    assert TheoryConfig(step=1.5, allow_large_step=True).step == 1.5
    judge = Judge("oracle", 1, 0.0, 1.5, within=False)
    judge.pathwise("x", np.array([2.0]), 1.0)
    assert judge.checks[0].holds is False
    assert judge.checks[0].within_assumptions is False


def test_verdicts_notice_violations():
    judge = Judge("oracle", 1, 0.0, 1.0, within=True)
    judge.pathwise("violated in one lane", np.array([0.5, 1.1]), 1.0)
    judge.pathwise("kept", np.array([0.5, 1.0]), 1.0)
    noise = np.random.default_rng(0).normal(size=400)
    judge.expectation("violated in the mean", 1.5 + noise, 1.0)
    judge.expectation("kept up to its error", 1.05 + noise, 1.0)
    judge.identity("not an identity", np.array([1e-20]), np.array([1.0]))
    judge.identity("identity", np.array([1e-28]), np.array([1.0]))
    judge.equality("different", 1.5 + noise, np.ones(400))
    judge.equality("same", 1.02 + noise, np.ones(400))
    judge.measured("no constant", 3.0, 1.0)
    assert [check.holds for check in judge.checks] == [False, True, False, True, False, True, False, True, None]


def test_slopes_are_those_of_power_laws():
    rounds = np.repeat([100, 1000, 10_000], 3)
    frame = pd.DataFrame({
        "drift": "T", "step": "1/L", "bias": "none", "smoothing": "stored", "exponent": 0.5, "rounds": rounds,
        "lane": np.tile(np.arange(3), 3),
        "regret_per_round": np.tile([1.0, 2.0, 3.0], 3) * rounds**-0.4,
        "regret_one_per_round": np.tile([1.0, 2.0, 3.0], 3) * rounds**-0.2,
    })  # fmt: skip
    np.testing.assert_allclose(growth_slopes(frame)["slope"], -0.4, rtol=1e-9)
    np.testing.assert_allclose(growth_slopes(frame)["slope_one"], -0.2, rtol=1e-9)


REPLAYED = DriftingCosine(2, curvature=1.5, noise=0.8, speed=0.3, wobble=0.2)


@jax.jit
def replayed_columns(shifted):
    """Nine rounds with a window of 3 and a step of 0.4."""
    return replayed_lane(REPLAYED, jnp.asarray(3), jnp.asarray(0.4), jax.random.key(3), 9, 4, shifted=shifted)


@pytest.mark.parametrize("shifted", [0.0, 1.0])
def test_replay_is_the_last_losses_at_the_current_point(shifted):
    """Iterates, regrets and terms against loops in NumPy; iterates against `Reevaluated`, which keeps the data."""
    rounds, window, step, curvature, noise, key = 9, 3, 0.4, 1.5, 0.8, jax.random.key(3)
    normals = np.stack([jax.random.normal(jax.random.fold_in(key, t), (2,)) for t in range(rounds)])
    times = np.arange(rounds)[:, None]
    centres = np.array([0.0, 1.0]) + 0.3 * times * np.array([1, -1]) + 0.2 * (-1.0) ** times
    variance = np.log(1 + noise**2 / (2 * curvature**2))

    def exact(t, outer):
        return curvature * np.sin(outer - centres[t])

    def sampled(t, outer):
        if shifted:
            return curvature * np.sin(outer - centres[t] - np.sqrt(variance) * normals[t]) * np.exp(variance / 2)
        return exact(t, outer) + noise / np.sqrt(2) * normals[t]

    def over_window(function, t, outer):
        return sum(function(s, outer) for s in range(max(t - window + 1, 0), t + 1)) / window

    outers = [np.zeros(2)]
    for t in range(rounds):
        outers.append(outers[-1] - step * over_window(sampled, t, outers[-1]))
    columns = replayed_columns(shifted)
    of_window, used, own = (
        np.array([function(t, outers[t]) for t in range(rounds)])
        for function in (partial(over_window, exact), partial(over_window, sampled), exact)
    )
    expected = {"regret": of_window, "regret_one": own, "error": used - of_window, "ageing": own - of_window}
    for name, values in expected.items():
        np.testing.assert_allclose(columns[name], np.sum(values**2, axis=1), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(columns["noise"], columns["error"], rtol=1e-9)

    # suprema over λ by search, each coordinate on its own
    grid = np.linspace(0, 2 * np.pi, 4000)[:, None]

    def largest(values):
        return np.sum(np.max(values**2, axis=0))

    found = [largest(over_window(sampled, t, grid) - over_window(exact, t, grid)) for t in range(rounds)]
    np.testing.assert_allclose(columns["largest_noise"], found, rtol=1e-5)
    change = [0, *(np.sqrt(largest(exact(t, grid) - exact(t - 1, grid))) for t in range(1, rounds))]
    for t in range(rounds):
        past = range(min(t + 1, window))
        bound = sum(sum(change[t - j] for j in range(i)) for i in past) / window
        bound += (1 - len(past) / window) * np.linalg.norm(own[t])
        np.testing.assert_allclose(columns["largest_ageing"][t], bound**2, rtol=1e-5)

    if shifted:
        oracle = sf.Oracle(lambda outer, sample, key: sampled_gradient(REPLAYED, outer, sample))
        _, trace = sf.run(
            sf.Online(None, sf.Reevaluated(oracle, window, refit=True), optax.sgd(step)),
            lambda t, key_of_round: draw_sample(REPLAYED, jnp.asarray(shifted), t, jax.random.fold_in(key, t)),
            REPLAYED.initial(),
            rounds=rounds,
            key=key,
        )
        np.testing.assert_allclose(trace.outer, outers[:-1], rtol=1e-9, atol=1e-12)


def test_biases_fall_or_stay_and_the_regret_with_them():
    problem = DriftingCosine(noise=0.0)
    outer, rounds = jnp.asarray([0.3, -1.0, 2.0, 0.5]), jnp.asarray([0, 15, 255])
    for bias, decay in BIASES.values():
        draw = biased_oracle(problem, jnp.asarray(bias), jnp.asarray(decay)).gradient
        found = jax.jit(jax.vmap(lambda t, draw=draw: draw(outer, t, jax.random.key(0)) - problem.gradient(t, outer)))(
            rounds
        )
        lengths = bias * np.array([1.0, 16.0, 256.0]) ** -decay
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), lengths, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found, lengths[:, None] * np.full(4, 0.5), rtol=1e-9, atol=1e-12)


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit):
        cli.main(["theory", "--help"])
    printed = capsys.readouterr().out
    for field in dataclasses.fields(TheoryConfig):
        assert f"--{field.name.replace('_', '-')}" in printed


@eqx.filter_jit
def two_lanes(problem, window, step, keys, rounds):
    return jax.vmap(lambda key: lanes.estimated_lane(problem, window, step, key, rounds, 8))(keys)


@settings(max_examples=5)
@given(
    seed=st.integers(0, 50),
    speed=st.floats(0, 1),
    window=st.integers(1, 8),
    step=st.floats(0.05, 1),
    lane=st.integers(0, 99),
)
def test_pathwise_statements_hold_for_estimated_hypergradients(seed, speed, window, step, lane):
    """Algorithm 3 on random finite problems, within the assumptions: no violation on any path."""
    rounds = 30
    problem = FiniteBilevel(points=4, seed=seed, speed=jnp.asarray(speed))
    constants = theory._constants(problem, rounds)
    alpha = step / constants["smoothness"]
    keys = jax.random.split(jax.random.key(lane), 2)
    columns = two_lanes(problem, jnp.asarray(window), jnp.asarray(alpha), keys, rounds)
    judge = Judge("functional", window, speed, step, within=True)
    here = {name: np.asarray(values) for name, values in columns.items()}
    checks = judge_statements(judge, problem, here, constants, alpha, window, estimated=True)
    for check in checks:
        assert check.kind == "expectation" or check.holds is not False, check
    assert sum(check.kind == "pathwise" for check in checks) >= 8
