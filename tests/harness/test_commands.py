"""Commands as users run them: in processes of their own, killed, interrupted, resumed, reported."""

import dataclasses
import shutil
import signal
import time

import pytest
from browser import check_study_page, needs_browser
from toy_study import Kill, execute, same_results, stop_after, toy

from smoothfbo import cli
from smoothfbo.errors import as_flags
from smoothfbo.harness.texts import described
from smoothfbo.studies.regression.config import RegressionConfig

# Three lanes: on two devices one of them has a lane of padding.
SMALL = [
    "--methods", "fbo", "smooth-fbo", "uniform", "--windows", "1", "7", "--rounds", "60", "--chunk", "3",
    "--seeds", "1", "--width", "8", "--inputs", "2", "--lags", "3", "--probe-draws", "0", "--minibatch", "4",
    "--batch", "4",
]  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    process = command("regression", *SMALL, "--out", folder)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "SmoothFBO" in output
    return folder


def wait_for_records(process, folder, number):
    """Until the run has written so many chunks (a generous limit: the machine may be busy)."""
    for _ in range(6_000):
        if len(list(folder.glob("progress/000/records-*.npz"))) >= number:
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("the run wrote nothing")


@pytest.mark.parametrize(
    "interrupted",
    # Interrupted processes are among the tests of the stream command, too.
    [False, pytest.param(True, marks=pytest.mark.thorough)],
    ids=["killed", "interrupted and killed"],
)
def test_killed_it_resumes_to_the_same_bits(command, uninterrupted, tmp_path, interrupted):
    folder = tmp_path / "my run"
    process = command("regression", *SMALL, "--out", folder)
    if interrupted:
        wait_for_records(process, folder, 2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 130
        assert f"resume with: smoothfbo resume '{folder}'" in errors.splitlines()[-1]
        assert list(folder.glob("progress/000/checkpoints/*.npz"))
        process = command("regression", *SMALL, "--out", folder)  # the same command again
    wait_for_records(process, folder, 6)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "summary.json").exists()
    process = command("resume", folder, figures=False)  # the whole run has drawn
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    same_results(uninterrupted, folder)
    assert (folder / "report.html").exists()
    assert not (folder / "progress").exists()


@pytest.mark.usefixtures("no_figures")
def test_reports_are_rebuilt_from_stored_files_and_compare_runs(uninterrupted, tmp_path, capsys):
    drawn = {path.name: path.stat().st_size for path in (uninterrupted / "figures").iterdir()}
    assert min(drawn.values()) > 5_000
    folders = []
    for name in ("one", "two"):
        shutil.copytree(uninterrupted, tmp_path / name)
        (tmp_path / name / "report.html").unlink()
        shutil.rmtree(tmp_path / name / "figures")
        folders.append(str(tmp_path / name))
    assert cli.main(["report", folders[0]]) == 0
    assert (tmp_path / "one" / "report.html").exists()
    assert {path.name for path in (tmp_path / "one" / "figures").iterdir()} == set(drawn)
    assert cli.main(["report", *folders, "--out", str(tmp_path / "both")]) == 0
    page = (tmp_path / "both" / "report.html").read_text()
    assert "two: SmoothFBO" in page
    assert capsys.readouterr().err == ""


@needs_browser
def test_the_regressions_page_works_in_a_browser(uninterrupted, tmp_path):
    check_study_page(uninterrupted / "report.html", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resume", "nowhere"], "nowhere is not the folder of a run: it has no config.json."),
        (["report", "nowhere"], "nowhere is not the folder of a run: it has no config.json."),
        (["report"], "report needs the folder of a run"),
        (["resume"], "smoothfbo: Missing from smoothfbo resume: FOLDER (see smoothfbo resume --help).\n"),
        (["stream"], "Missing from smoothfbo stream: DATA, --target STR (see smoothfbo stream --help).\n"),
        (
            ["regression", "--metods", "fbo"],
            "Unrecognized options: --metods, fbo (did you mean --methods? see smoothfbo regression --help).\n",
        ),
        (["nonsense"], "nonsense"),
        ([], "Expected one of"),
    ],
)
def test_bad_commands_are_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_an_unfinished_run_has_no_report_yet(tmp_path, capsys):
    folder = tmp_path / "run"
    with pytest.raises(Kill):
        execute(dataclasses.replace(toy(), name="regression"), folder, stop_after(1))
    assert cli.main(["report", str(folder)]) == 2
    assert f"{folder} is not finished: resume it with `smoothfbo resume {folder}`." in capsys.readouterr().err


@dataclasses.dataclass(frozen=True)
class Base:
    outer_rate: float = 0.1
    """A number."""


@dataclasses.dataclass(frozen=True)
class Options(Base):
    """What a command takes."""

    steps: int = 3
    """How many, which is told in more than
    one line; with `outer_rate`, not `other`."""
    silent: bool = False


def test_help_has_the_texts_of_all_options_in_one_paragraph_each():
    kind = described(Options)
    assert kind() == kind(outer_rate=0.1, steps=3, silent=False)
    assert isinstance(kind(), Options)
    texts = {name: hint.__metadata__[0].help for name, hint in kind.__annotations__.items()}
    assert texts == {
        "outer_rate": "A number.",
        "steps": "How many, which is told in more than one line; with --outer-rate, not `other`.",
    }


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["smoothfbo --version"]),
        (["resume"], ["smoothfbo resume [-h] FOLDER"]),
        (["report"], ["smoothfbo report [-h] FOLDER [FOLDER ...]", "One folder or several. (required)"]),
        (["cartpole"], ["--preset NAME ", "A multiple of --evaluate-every."]),
        (["regression"], ["--preset demo|paper|ablation|tune "]),
        (["stream"], ["--out STR Folder of the run", "--task {regression,classification} ", "--block INT Rows"]),
    ],
)
def test_help_says_what_to_write(arguments, parts, capsys):
    with pytest.raises(SystemExit):
        cli.main([*arguments, "--help"])
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for part in parts:
        assert part in printed


def test_options_are_flags_on_the_command_line_alone():
    assert as_flags("`outer_rate` must be positive; see `help` and `out`.", {"outer_rate", "out"}) == (
        "--outer-rate must be positive; see `help` and --out."
    )
    with pytest.raises(ValueError, match=r"^`outer_rate` must be positive and finite, got -1\.0\.$"):
        RegressionConfig(outer_rate=(-1.0,))


@pytest.mark.parametrize(("given", "question"), [("regresion", " (did you mean regression?)"), ("--preset", "")])
def test_a_wrong_command_is_one_line_with_all_commands(given, question, capsys):
    assert cli.main([given]) == 2
    known = "arena, cartpole, regression, theory, stream, report, resume"
    assert capsys.readouterr().err == f"smoothfbo: the command must be one of {known}, got {given}{question}.\n"
