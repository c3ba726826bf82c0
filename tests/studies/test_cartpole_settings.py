"""The CartPole study's settings: how they are chosen, tried and stored."""

import pandas as pd
import pytest

from smoothfbo.errors import UsageError
from smoothfbo.studies.cartpole import program as cartpole
from smoothfbo.studies.cartpole import settings as settings_files
from smoothfbo.studies.cartpole.config import GRID, CartPoleConfig
from smoothfbo.studies.cartpole.methods import METHODS
from smoothfbo.studies.cartpole.presets import PRESETS


def grid_lanes(scores, seeds):
    """Lanes over two inner rates and three target rates with the given late returns."""
    rows = []
    for (inner, target), score in scores.items():
        for seed in range(seeds):
            base = {"method": "fbo", "environment": "stationary", "outer_rate": 1.0, "temperature": 1.0}
            rows.append(base | {"inner_rate": inner, "target_rate": target, "final_rate": 1.0, "window": 1, "mix": 1.0,
                                "seed": seed, "late_return": score})  # fmt: skip
    return pd.DataFrame(rows)


def test_tuning_prefers_a_good_region_when_seeds_are_few_and_the_mean_when_they_are_many():
    lucky, plateau = (1.0, 1.0), (2.0, 1.0)
    scores = {(1.0, 1.0): 10, (1.0, 2.0): 0, (1.0, 3.0): 0, (2.0, 1.0): 8, (2.0, 2.0): 9, (2.0, 3.0): 8}
    for seeds, expected in ((2, plateau), (8, lucky)):
        config = CartPoleConfig(seeds=seeds)
        best = settings_files.best_settings(config, grid_lanes(scores, seeds))
        setting, *others = best["methods"]["fbo"]
        assert (setting["inner_rate"], setting["target_rate"]) == expected
        assert len(others) == len(scores) - 1
        assert set(setting) == set(GRID)


def test_shipped_settings_cover_the_paper_and_were_not_tuned_on_reported_seeds():
    settings = settings_files.read_settings("tuned")
    assert set(PRESETS["paper"].methods) <= set(settings) <= set(METHODS)
    reported = range(PRESETS["paper"].first_seed, PRESETS["paper"].first_seed + PRESETS["paper"].seeds)
    for name in ("tune", "retune", "choose"):
        preset = PRESETS[name]
        assert not set(reported) & set(range(preset.first_seed, preset.first_seed + preset.seeds))
        assert preset.environment == ("stationary",)


def test_trials_are_as_many_for_each_method_whatever_varies():
    settings = {
        "fbo": [{"inner_rate": rate, "final_rate": 1.0} for rate in (1e-1, 1e-2, 1e-3, 1e-4)],
        "smooth-fbo": [{"inner_rate": r, "final_rate": 1.0, "window": w} for r in (1e-1, 1e-2) for w in (5, 7)],
    }
    config = CartPoleConfig(
        methods=("fbo", "smooth-fbo"), environment=("drifting",), seeds=1,
        vary=("final_rate", "window"), final_rate=(0.5, 0.0), window=(10, 20), trials=4, settings="tuned",
    )  # fmt: skip
    plain, smooth = cartpole.programs(config, settings_files.settings_to_try(config, settings))
    assert len(plain.lanes) == len(smooth.lanes) == config.trials
    assert {(lane["inner_rate"], lane["final_rate"]) for lane in plain.lanes} == {
        (rate, final) for rate in (1e-1, 1e-2) for final in (0.5, 0.0)
    }
    assert {(lane["inner_rate"], lane["window"]) for lane in smooth.lanes} == {(1e-1, 10), (1e-1, 20)}
    best = settings_files.settings_to_try(CartPoleConfig(), settings)
    assert best == {method: known[:1] for method, known in settings.items()}
    several = settings_files.settings_to_try(
        CartPoleConfig(vary=("window",), window=(10,), trials=9, settings="tuned"), settings
    )
    assert [each["inner_rate"] for each in several["smooth-fbo"]] == [1e-1, 1e-2]  # those of two windows are one now


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"version": 99, "methods": {}}', "is of version 99; this smoothfbo reads version 2"),
        ('{"version": 2}', "names no methods; give the best.json of a run"),
        ("[]", "is of version None"),
        ("{", "cannot be read"),
    ],
)
def test_settings_files_are_checked(tmp_path, content, message):
    path = tmp_path / "settings.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        settings_files.read_settings(str(path))
    with pytest.raises(UsageError, match=r"nowhere.json does not exist\."):
        settings_files.read_settings(str(tmp_path / "nowhere.json"))
    with pytest.raises(UsageError, match="the preset tune writes it: run that first"):
        settings_files.read_settings(PRESETS["retune"].settings)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("[]", "has no settings of fbo"),
        ("{}", "has no settings of fbo"),
        ("[3]", "has no settings of fbo"),
        ('[{"inner_rate": "abc"}]', "inner_rate of fbo must be a number, got 'abc'"),
        ('[{"inner_rate": true}]', "inner_rate of fbo must be a number, got True"),
        ('[{"inner_rate": -1}]', "fbo: `inner_rate` must be positive and finite, got -1"),
        ('[{"final_rate": 7}]', "fbo: `final_rate` must be between 0 and 1, got 7"),
        ('[{"window": 2.5}]', "window of fbo must be a whole number, got 2.5"),
        ('[{"window": Infinity}]', "window of fbo must be a whole number, got inf"),
        ('[{"speed": 7}]', "unknown speed of fbo; known are inner_rate"),
    ],
)
def test_the_numbers_of_settings_files_are_checked(tmp_path, entries, message):
    path = tmp_path / "settings.json"
    path.write_text(f'{{"version": {settings_files.SETTINGS_VERSION}, "methods": {{"fbo": {entries}}}}}')
    with pytest.raises(UsageError, match=message):
        cartpole.study(CartPoleConfig(methods=("fbo",), settings=str(path)))
