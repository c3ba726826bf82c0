"""The CartPole study's statistics, tables, pages and command line; training is tested elsewhere."""

import json
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from browser import check_study_page, needs_browser
from PIL import Image
from scipy import stats
from toy_study import execute

from smoothfbo import cli
from smoothfbo.environments.cartpole import CartPole
from smoothfbo.harness import charts, chunks, commands, folders, store
from smoothfbo.harness.statistics import bands, bootstrap, interquartile_mean, probability_of_improvement
from smoothfbo.harness.study import Program
from smoothfbo.studies.cartpole import charts as cartpole_charts
from smoothfbo.studies.cartpole import measure, report
from smoothfbo.studies.cartpole import program as cartpole
from smoothfbo.studies.cartpole import settings as settings_files
from smoothfbo.studies.cartpole.config import GRID, LARGEST_RETURN, CartPoleConfig


def test_interquartile_mean_is_the_mean_of_the_middle_half():
    np.testing.assert_allclose(interquartile_mean([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0]), np.mean([2, 3, 4, 5]))


def test_probability_of_improvement_counts_pairs():
    ours, theirs = np.array([[3.0, 1.0]]), np.array([[2.0, 1.0, 0.0]])
    np.testing.assert_allclose(probability_of_improvement(ours, theirs), [(3 + 1 + 0.5) / 6])
    u = stats.mannwhitneyu(ours[0], theirs[0]).statistic
    np.testing.assert_allclose(probability_of_improvement(ours, theirs), [u / 6])


def test_bootstrap_intervals_are_near_those_of_the_normal_distribution():
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    result = bootstrap([values], lambda x: x.mean(axis=-1))
    np.testing.assert_allclose(result["mean"], values.mean())
    half = 1.96 * values.std() / np.sqrt(400)
    np.testing.assert_allclose([result["low"], result["high"]], values.mean() + np.array([-half, half]), atol=0.03)
    assert bootstrap([[5.0]], interquartile_mean)["low"] is None


def test_geometric_bands_are_those_of_the_logarithms():
    frame = pd.DataFrame({"round": [0, 0, 0, 1, 1], "size": [1.0, 10.0, 100.0, 5.0, 5.0]})
    band = bands(frame, "round", "size", geometric=True)
    half = stats.t.ppf(0.975, 2) * np.log(10) / np.sqrt(3)
    np.testing.assert_allclose(band.loc[0], 10 * np.exp([0, -half, half]))
    np.testing.assert_allclose(band.loc[1], [5, 5, 5])


def program(method, environment, seeds, first=0):
    lanes = tuple(
        {"method": method, "environment": environment, "inner_rate": 1e-3, "outer_rate": 3e-4, "target_rate": 0.01,
         "temperature": 0.01, "final_rate": 0.1, "window": 1, "mix": 1.0, "seed": seed}
        for seed in range(first, first + seeds)
    )  # fmt: skip
    return Program(method, lanes, {"seed": jnp.arange(seeds)}, lambda n: n, lambda n, s: (s, {}), 30, 10)


def records(returns):
    """Of three evaluations: `returns` has axes (lane, evaluation)."""
    returns = np.asarray(returns, float)
    names = ("pole_angle", "hypergradient_norm", "used_norm", "skipped")
    rows = {name: np.ones_like(returns) for name in names}
    finite = np.ones_like(returns, bool)
    finite[0, -1] = False
    return rows | {
        "round": np.tile([9, 19, 29], (len(returns), 1)), "return_mean": returns,
        "newest_return": returns / 2, "used_squares": returns * 0 + 2.0,
        "hypergradient_squares": returns * 0 + 3.0, "finite": finite, "reward_low": returns * 0 - 0.2,
        "clipped": returns / 100, "reward_high": returns * 0 + 0.1, "shown": np.zeros((*returns.shape, 5, 2)),
    }  # fmt: skip


@pytest.fixture
def tables():
    fbo = measure.measure(program("fbo", "drifting", 2), records([[1, 2, 3], [4, 5, 6]]))
    smooth = measure.measure(program("smooth-fbo", "drifting", 2), records([[10, 20, 30], [40, 50, 60]]))
    return tuple(
        pd.concat([part.tables[name] for part in (fbo, smooth)], ignore_index=True) for name in ("metrics", "lanes")
    )


def summary_of(config, rounds, lanes):
    return measure.summarise(config, {"metrics": rounds, "lanes": lanes})["summary"]


def test_headlines_of_a_lane(tables):
    rounds, lanes = tables
    first = lanes.iloc[0]
    assert (first["final_return"], first["mean_return"], first["cumulative_return"]) == (3, 2, 6)
    assert (first["newest_return"], first["newest_late_return"]) == (1.5, 1)
    assert (first["proxy"], first["raw"]) == (6, 9)
    assert first["clipped"] == pytest.approx(0.02)
    long = measure.measure(program("fbo", "drifting", 1), {
        name: np.concatenate([values[:, :1]] * 2 + [2 * values[:, :1]] * 98, axis=1)
        for name, values in records([[1, 2, 3]]).items() if name not in ("shown", "finite")
    } | {"shown": np.zeros((1, 100, 5, 2)), "finite": np.ones((1, 100), bool)})  # fmt: skip
    assert long.tables["lanes"].iloc[0]["clipped"] == pytest.approx(0.02)  # without the first fiftieth
    assert lanes["frozen"].tolist() == [1, 0, 1, 0]
    assert rounds["cumulative_return"].tolist()[:3] == [1, 3, 6]


def test_summary_says_max_mean_min_and_the_probability_of_improvement(tables):
    summary = summary_of(CartPoleConfig(), *tables)
    json.dumps(summary, allow_nan=False)
    smooth = next(group for group in summary["groups"] if group["method"] == "smooth-fbo")
    assert (smooth["max"], smooth["mean"], smooth["min"], smooth["frozen"]) == (60, 45, 30, 1)
    assert smooth["newest"] == {"max": 30, "mean": 22.5, "min": 15}
    (entry,) = summary["improvement"]
    assert (entry["other"], entry["probability"]["mean"], entry["difference"]["mean"]) == ("fbo", 1.0, 40.5)
    assert entry["newest"]["mean"] == 1.0


def test_windows_are_compared_and_settings_under_trial_are_not(tables):
    _, lanes = tables
    longer = lanes[lanes["method"] == "smooth-fbo"].assign(window=5, final_return=[70.0, 80.0])
    entries = list(measure.improvements(pd.concat([lanes, longer])))
    compared = {(e["window"], e["other"], e["other_window"]): e["difference"]["mean"] for e in entries}
    assert compared == {(1, "fbo", 1): 40.5, (5, "fbo", 1): 70.5, (5, "smooth-fbo", 1): 30.0}
    assert not list(measure.improvements(pd.concat([lanes, longer.assign(window=1, inner_rate=0.5)])))


def test_a_run_of_another_version_is_not_drawn(tmp_path, capsys):
    description = folders.describe("cartpole", "smoothfbo cartpole", CartPoleConfig(), ["cpu"])
    del description["config"]["final_rate"]
    store.write_json(store.prepare(tmp_path / "old") / "config.json", description)
    store.write_json(tmp_path / "old" / "summary.json", {})
    assert cli.main(["report", str(tmp_path / "old")]) == 2
    assert "of another version of smoothfbo (it differs in final_rate)" in capsys.readouterr().err


def test_the_page_is_made_of_stored_files(tables, tmp_path):
    rounds, lanes = tables
    config = CartPoleConfig(methods=("fbo", "smooth-fbo"), environment=("drifting",))
    store.write_json(tmp_path / "config.json", folders.describe("cartpole", "smoothfbo cartpole", config, ["cpu"]))
    store.write_table(tmp_path / "metrics.parquet", rounds)
    store.write_table(tmp_path / "lanes.parquet", lanes)
    store.write_json(tmp_path / "summary.json", summary_of(config, rounds, lanes))
    page = report.build(tmp_path).read_text()
    assert "SmoothFBO" in page
    assert ">1 of 2<" in page  # frozen lanes
    assert {path.name for path in (tmp_path / "figures").iterdir()} >= {
        "drifting_return.png", "drifting_angle.png", "drifting_interval.png"
    }  # fmt: skip


def test_settings_of_one_method_are_told_apart_in_its_tables(tables):
    rounds, lanes = (
        pd.concat([table, table[table["method"] == "fbo"].assign(inner_rate=0.5, window=3)]) for table in tables
    )
    summary = summary_of(CartPoleConfig(), rounds, lanes)
    assert report.varied(summary["groups"]) == ["inner_rate"]  # the name of a method has its window
    table = report.ranking_table(summary)
    place = table.columns.index("inner rate")
    assert {(row[0], row[place]) for row in table.rows if row[0].startswith("FBO")} == {
        ("FBO", lanes["inner_rate"].iloc[0]), ("FBO", 0.5)
    }  # fmt: skip
    assert "inner rate" not in report.ranking_table(summary_of(CartPoleConfig(), *tables)).columns


@pytest.mark.filterwarnings("error")
def test_a_study_whose_lanes_are_all_frozen_has_its_page(tmp_path):
    write_run(tmp_path, "itd", [[1, 2, 3], [4, 5, 6]])
    for name in ("hypergradient_norm", "used_norm", "proxy"):
        change(tmp_path, "metrics", lambda table, name=name: table.assign(**{name: np.nan}))
    change(tmp_path, "lanes", lambda table: table.assign(proxy=np.nan, raw=np.nan, frozen=1.0))
    assert cli.main(["report", str(tmp_path)]) == 0
    assert ">2 of 2<" in (tmp_path / "report.html").read_text()  # frozen lanes


@needs_browser
@pytest.mark.usefixtures("no_figures")
def test_the_page_works_in_a_browser(tmp_path):
    write_run(tmp_path, "smooth-fbo", [[1, 2, 3], [4, 5, 6]])
    check_study_page(report.build(tmp_path), tmp_path, "400,800")


@pytest.mark.usefixtures("no_figures")
def test_both_environments_stand_in_one_picture(tmp_path):
    write_run(tmp_path / "a", "fbo", [[1, 2, 3], [4, 5, 6]])
    write_run(tmp_path / "b", "fbo", [[7, 8, 9], [4, 5, 6]])
    for name in ("metrics", "lanes"):
        change(tmp_path / "b", name, lambda table: table.assign(environment="stationary"))
    change_config(tmp_path / "b", environment=["stationary"])
    assert cli.main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "both")]) == 0
    (chart,) = cartpole_charts.side_by_side(store.read_table(tmp_path / "both" / "metrics.parquet"))
    lines = {line.name: (line.y.iloc[-1], line.dashed) for line in chart.series}
    assert lines == {"FBO, drifting": (4.5, False), "FBO, stationary": (7.5, True)}
    assert "Stationary against drifting" in (tmp_path / "both" / "report.html").read_text()


def test_lines_are_named_by_what_differs_and_averaged_over_evaluations(tables, monkeypatch):
    rounds, _ = tables
    monkeypatch.setattr(cartpole_charts, "POINTS", 2)
    other = rounds[rounds["method"] == "smooth-fbo"].assign(window=7)
    frame = pd.concat([rounds, other], ignore_index=True)
    chart = next(cartpole_charts.over_training(frame, "drifting"))
    assert [line.name for line in chart.series] == ["FBO", "SmoothFBO, w = 1", "SmoothFBO, w = 7"]
    assert "2 evaluations" in chart.caption
    np.testing.assert_allclose(chart.series[0].y, [(1 + 2 + 4 + 5) / 4, (3 + 6) / 2])
    np.testing.assert_allclose(chart.series[0].x, [19, 29])
    assert all(line.low is not None for line in chart.series)
    assert chart.series[0].low.min() == 0  # the interval of two seeds is wider than returns can be
    assert all(line.high.max() <= LARGEST_RETURN == CartPole().step_limit for line in chart.series)
    monkeypatch.setattr(cartpole_charts, "MOST_WITH_INTERVALS", 2)
    frame["method"] = frame["method"].replace("smooth-fbo", "smooth-mle")
    kept = {line.name: line.low is not None for line in next(cartpole_charts.over_training(frame, "drifting")).series}
    assert kept == {"FBO": True, "Smoothed MLE, w = 1": False, "Smoothed MLE, w = 7": False}


def test_many_lines_are_drawn_without_a_legend_that_hides_them(tmp_path):
    name = "Smoothed MLE, inner rate = 0.003, outer rate = 0.0001, τ = 0.001, α = 0.01, final rate = 0.1, w = "
    lines = [charts.Series(f"{name}{n}", [0, 1], [n, n]) for n in range(40)]
    path = charts.draw(charts.Chart("many", "Many", "", "x", "y", lines), tmp_path)  # warnings are errors
    with Image.open(path) as picture:
        colours = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert (colours == tuple(bytes.fromhex(charts.PALETTE[0][1:]))).all(axis=1).mean() > 0.1  # lines, not names


def write_run(folder, method, returns, first=0, **changes):
    """The files of a finished run of one method; returns have axes (lane, evaluation)."""
    store.prepare(folder)
    seeds = {"first_seed": first, "seeds": len(returns)}
    config = CartPoleConfig(methods=(method,), environment=("drifting",), **seeds, **changes)
    measured = measure.measure(program(method, "drifting", len(returns), first), records(returns))
    rounds, lanes = measured.tables["metrics"], measured.tables["lanes"]
    store.write_json(folder / "config.json", folders.describe("cartpole", f"run {method}", config, ["cpu"]))
    store.write_table(folder / "metrics.parquet", rounds)
    store.write_table(folder / "lanes.parquet", lanes)
    store.write_arrays(folder / "arrays.npz", {name: values + first for name, values in measured.arrays.items()})
    store.write_json(folder / "summary.json", summary_of(config, rounds, lanes))


@pytest.mark.usefixtures("no_figures")
def test_runs_of_several_methods_are_put_together(tmp_path):
    results = {"fbo": [[1, 2, 3], [4, 5, 6]], "smooth-fbo": [[10, 20, 30], [40, 50, 60]]}
    for method, returns in results.items():
        write_run(tmp_path / method, method, returns)
    folders = [str(tmp_path / method) for method in results]
    assert cli.main(["report", *folders, "--out", str(tmp_path / "both")]) == 0
    summary = store.read_json(tmp_path / "both" / "summary.json")
    assert [group["mean"] for group in summary["groups"]] == [4.5, 45.0]
    (entry,) = summary["improvement"]
    assert (entry["other"], entry["difference"]["mean"]) == ("fbo", 40.5)
    assert set(store.read_arrays(tmp_path / "both" / "arrays.npz")) == {"fbo drifting", "smooth-fbo drifting"}
    assert set(settings_files.read_settings(str(tmp_path / "both" / "best.json"))) == {"fbo", "smooth-fbo"}
    assert store.read_json(tmp_path / "both" / "config.json")["config"]["methods"] == list(results)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "lanes.parquet").unlink(), "lanes.parquet cannot be read"),
        (lambda run: change(run, "lanes", lambda table: table.drop(columns="raw")), "it has no raw."),
        (lambda run: change(run, "lanes", lambda table: table.drop(columns="seed")), "it has no seed."),
        (lambda run: change(run, "metrics", lambda table: table.drop(columns="return_mean")), "it has no return_mean."),
        (lambda run: change(run, "lanes", lambda table: table[:0]), "lanes.parquet is not what this version"),
        (lambda run: (run / "arrays.npz").write_bytes(b"nothing"), "arrays.npz cannot be read"),
        (lambda run: change_config(run, averaged="much"), "the stored configuration cannot be read"),
        (lambda run: change_config(run, None), "config.json is not the description of a run."),
    ],
)  # fmt: skip
def test_spoilt_runs_are_one_line_and_lose_nothing(tmp_path, capsys, spoil, message):
    run, other, both = tmp_path / "run", tmp_path / "other", tmp_path / "both"
    write_run(run, "fbo", [[1, 2, 3], [4, 5, 6]])
    write_run(other, "mle", [[1, 2, 3], [4, 5, 6]])
    summary = (run / "summary.json").read_bytes()
    spoil(run)
    for command in (["report", str(run)], ["report", str(other), str(run), "--out", str(both)]):
        assert cli.main(command) == 2
        assert message in capsys.readouterr().err
    assert (run / "summary.json").read_bytes() == summary
    assert not both.exists()


def change(run, name, how):
    store.write_table(run / f"{name}.parquet", how(store.read_table(run / f"{name}.parquet")))


def change_config(run, *nothing, **changes):
    description = store.read_json(run / "config.json")
    config = nothing[0] if nothing else description["config"] | changes
    store.write_json(run / "config.json", description | {"config": config})


@pytest.mark.usefixtures("no_figures")
def test_runs_of_other_seeds_are_put_together(tmp_path):
    write_run(tmp_path / "a", "fbo", [[1, 2, 3], [4, 5, 6]], window=(7,))
    write_run(tmp_path / "b", "fbo", [[7, 8, 9]], first=5)
    folders = [str(tmp_path / name) for name in "ab"]
    assert cli.main(["report", *folders, "--out", str(tmp_path / "both")]) == 0
    (group,) = store.read_json(tmp_path / "both" / "summary.json")["groups"]
    assert (group["seeds"], group["mean"]) == (3, 6.0)
    config = store.read_json(tmp_path / "both" / "config.json")["config"]
    assert (config["first_seed"], config["seeds"], config["window"]) == (0, 3, [1])  # the lanes', not the options'
    assert "3 seeds (0 to 5)" in (tmp_path / "both" / "report.html").read_text()
    assert store.read_json(tmp_path / "both" / "best.json")["seeds"] == [0, 5]
    first, both = (store.read_arrays(tmp_path / name / "arrays.npz")["fbo drifting"] for name in ("a", "both"))
    np.testing.assert_array_equal(both, first)
    assert cli.main(["report", *folders, "--out", str(tmp_path / "both")]) == 0  # again


def test_runs_are_not_put_together_in_the_folder_of_another(tmp_path, capsys):
    for first, name in enumerate("ab"):
        write_run(tmp_path / name, "fbo", [[1, 2, 3]], first)
    before = (tmp_path / "b" / "lanes.parquet").read_bytes()
    folders = [str(tmp_path / name) for name in "ab"]
    assert cli.main(["report", *folders, "--out", folders[1]]) == 2
    assert f"{folders[1]} is the folder of a run, which would be lost" in capsys.readouterr().err
    assert (tmp_path / "b" / "lanes.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("first", "changes", "message"),
    [
        (2, {"steps": 20_000}, "they differ in steps."),
        (1, {}, "a lane is in two of them (method fbo, environment drifting, seed 1)."),
    ],
)
def test_runs_that_are_not_parts_of_one_study_are_not(tmp_path, capsys, first, changes, message):
    write_run(tmp_path / "a", "fbo", [[1, 2, 3], [4, 5, 6]])
    write_run(tmp_path / "b", "fbo", [[1, 2, 3], [4, 5, 6]], first, **changes)
    assert cli.main(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "both")]) == 2
    assert f"these runs cannot be put together: {message}" in capsys.readouterr().err
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vary", "windows"], "(did you mean window?)"),
        (["--settings", "none", "--vary", "window"], "--vary must be used together with --settings, got none."),
        (
            ["--outer-rate", "0.9"],
            "--outer-rate has no effect: --settings tuned says what it is. Add --vary outer_rate",
        ),
        (["--first-seed", "4294967296"], "--first-seed must be at most 2³¹ − seeds"),
        (["--first-interval", "0.0", "inf"], "--first-interval must be a low below a high, both finite"),
        (["--settings", "none", "--trials", "2"], "--trials must be used together with --settings, got none."),
        (["--settings", "tuned", "--methods", "omd-cg"], "--settings tuned has no settings of omd-cg; known there are"),
        (["--trials", "0"], "--trials must be an integer of at least 1, got 0."),
        (["--averaged", "1.5"], "--averaged must be between 0 and 1, got 1.5."),
        (["--environment", "moon"], "--environment must be one or more of stationary, drifting, got moon."),
        (["--methods", "smoth-fbo"], "(did you mean smooth-fbo?)"),
        (["--capacity", "10"], "--capacity must be at least batch = 256, got 10."),
        (["--outer-rate", "0"], "--outer-rate must be positive and finite, got 0.0."),
        (["--first-interval", "0.2", "0.1"], "--first-interval must be a low below a high, both finite, got 0.2 0.1."),
        (["--settings", "nowhere.json"], "--settings nowhere.json does not exist."),
        (["--preset", "huge"], "--preset must be one of quick, paper"),
    ],
)
def test_bad_options_are_one_line_and_make_no_folder(options, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["cartpole", *options]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


# The same for all commands, so that their programs are compiled once.
SIZES = [
    "--steps", "40", "--evaluate-every", "20", "--episodes", "2", "--seeds", "2", "--random-steps", "20",
    "--batch", "8", "--capacity", "64", "--q-hidden", "4",
]  # fmt: skip


@pytest.mark.usefixtures("no_figures")
def test_the_command_runs_reports_and_keeps_the_best_settings(tmp_path, capsys):
    options = ["--methods", "fbo", "smooth-fbo", "--environment", "drifting", "--settings", "none", *SIZES]
    options += ["--window", "3"]
    assert cli.main(["cartpole", *options, "--tensorboard", "--out", str(tmp_path)]) == 0
    assert list((tmp_path / "tensorboard").rglob("events*"))
    assert "SmoothFBO" in capsys.readouterr().out
    assert "SmoothFBO" in (tmp_path / "report.html").read_text()
    settings = settings_files.read_settings(str(tmp_path / "best.json"))
    assert settings["smooth-fbo"][0]["window"] == 3
    metrics = store.read_table(tmp_path / "metrics.parquet")
    assert len(metrics) == 2 * 2 * 2  # methods × seeds × evaluations
    summary = store.read_json(tmp_path / "summary.json")
    store.write_json(tmp_path / "summary.json", {"groups": []})  # as of a program that summarised less
    assert cli.main(["report", str(tmp_path)]) == 0
    assert store.read_json(tmp_path / "summary.json") == summary
    (stored,) = [values for name, values in store.read_arrays(tmp_path / "arrays.npz").items() if "smooth" in name]
    with Image.open(tmp_path / "figures" / "drifting_policy.gif") as animation:
        assert animation.n_frames > np.isfinite(stored[:, :, -1]).sum() / 2  # equal frames become one


@pytest.mark.usefixtures("no_figures")
def test_a_run_has_its_settings_with_it(tmp_path):
    file, run = tmp_path / "best.json", tmp_path / "run"
    setting = dict(zip(GRID, (1e-3, 1e-4, 0.01, 0.1, 0.5, 3.0, 0.4), strict=True))
    store.write_json(file, {"version": 2, "methods": {"smooth-fbo": [setting], "mle": [setting]}})
    options = ["--methods", "smooth-fbo", "--environment", "drifting", "--settings", str(file), *SIZES]
    assert cli.main(["cartpole", *options, "--out", str(run)]) == 0
    assert store.read_json(run / "config.json")["settings"] == {"smooth-fbo": [setting]}
    lanes = store.read_table(run / "lanes.parquet")
    file.unlink()
    for name in ("summary.json", "metrics.parquet", "lanes.parquet"):
        (run / name).unlink()
    assert cli.main(["resume", str(run)]) == 0
    pd.testing.assert_frame_equal(store.read_table(run / "lanes.parquet"), lanes)
    assert cli.main(["cartpole", *options, "--out", str(tmp_path / "new")]) == 2


@pytest.mark.thorough  # the harness resumes, and other studies show it
def test_a_run_that_died_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    """With several networks kept, whose average is judged."""
    config = CartPoleConfig(
        methods=("smooth-fbo",), environment=("drifting",), steps=60, evaluate_every=10, episodes=2, seeds=2,
        averaged=0.5, random_steps=20, batch=8, capacity=64, window=(3,), q_hidden=(4,),
    )  # fmt: skip
    monkeypatch.setattr(chunks, "CHECKPOINT_SHARE", float("inf"))  # a checkpoint after every chunk
    done = []

    def on_progress(progress):
        if not progress.compiling:
            done.append(progress.done)
            if len(done) == 4:
                raise KeyboardInterrupt

    execute(cartpole.study(config), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        execute(cartpole.study(config), tmp_path / "parts", on_progress=on_progress)
    execute(cartpole.study(config), tmp_path / "parts", on_progress=on_progress)
    assert done == [20, 40, 60, 80, 80, 100, 120]  # the fourth chunk is run again, and nothing before it
    for name in ("metrics", "lanes"):
        whole, parts = (store.read_table(tmp_path / folder / f"{name}.parquet") for folder in ("whole", "parts"))
        pd.testing.assert_frame_equal(whole, parts, check_exact=True)


def test_resume_goes_on_with_tensorboard_files(tmp_path, monkeypatch):
    config = CartPoleConfig()
    store.write_json(tmp_path / "config.json", folders.describe("cartpole", "smoothfbo cartpole", config, ["cpu"]))
    calls = []
    monkeypatch.setattr(commands, "run", lambda *arguments, **options: calls.append((arguments, options)) or 0)
    assert cli.main(["resume", str(tmp_path)]) == 0
    (tmp_path / "tensorboard").mkdir()
    assert cli.main(["resume", str(tmp_path)]) == 0
    assert [options["tensorboard"] for _, options in calls] == [False, True]
    assert calls[0][0][1:] == (config, str(tmp_path), "smoothfbo cartpole")


def test_a_reader_that_stops_reading_is_no_error():
    command = f"{sys.executable} -m smoothfbo cartpole --help | head -1"
    outcome = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert outcome.stdout.startswith("usage: smoothfbo cartpole")
    assert outcome.stderr == ""
