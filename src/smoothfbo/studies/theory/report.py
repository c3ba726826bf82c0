"""The tables and the page of the theory study, from its stored files."""

from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from smoothfbo.harness import store
from smoothfbo.harness.page import BAD, GOOD, OPEN, Page, Picture, Section, Verdict, repeat_section, write_page
from smoothfbo.harness.page import Table as PageTable
from smoothfbo.harness.study import Outcome
from smoothfbo.studies.theory.charts import draw


def statement_table(checks: list[dict[str, Any]]) -> Table:
    """One line per statement: how often it was tried and held, and the setting where it was tightest."""
    checks = [check for check in checks if check["problem"] != "growth"]
    result = Table(title="The paper's statements, measured (of all settings, the tightest is shown)", box=box.SIMPLE)
    for column, justify in (
        ("statement", "left"), ("w", "right"), ("drift", "right"), ("α·L", "right"), ("left side", "right"),
        ("right side", "right"), ("ratio", "right"), ("holds", "right"),
    ):  # fmt: skip
        result.add_column(column, justify=justify, no_wrap=column != "statement")  # pyright: ignore[reportArgumentType]
    for name in dict.fromkeys(check["name"] for check in checks):
        same = [check for check in checks if check["name"] == name]
        shown = max(same, key=lambda check: check["ratio"] if check["ratio"] is not None else 0.0)
        held = sum(check["holds"] is True for check in same)
        decided = sum(check["holds"] is not None for check in same)
        outside = any(not check["within_assumptions"] for check in same)
        verdict = "–" if not decided else f"{held}/{decided}"
        colour = "dim" if not decided else "green" if held == decided else "red"
        result.add_row(
            name + (" (step outside the assumptions)" if outside else ""),
            str(shown["window"]),
            f"{shown['drift']:g}",
            f"{shown['step']:.2g}",
            f"{shown['lhs']:.3g}",
            f"{shown['rhs']:.3g}",
            "" if shown["ratio"] is None else f"{shown['ratio']:.2g}",
            f"[{colour}]{verdict}[/]",
        )
    return result


def growth_table(checks: list[dict[str, Any]]) -> Table:
    """Slopes of log(BLR/T) over log T; a claim is judged, the rest is shown."""
    result = Table(title="Growth of the regret: slope of log(BLR/T), below 0 is sublinear", box=box.SIMPLE)
    for column in ("variation, step and window", "slope", "holds"):
        result.add_column(column, justify="left" if column.startswith("v") else "right")
    for check in checks:
        if check["problem"] == "growth":
            slope = -check["lhs"] if "slope > " in check["name"] else check["lhs"]
            verdict = {True: "[green]yes[/]", False: "[red]no[/]", None: "[dim]–[/]"}[check["holds"]]
            result.add_row(check["name"], f"{slope:+.3f} ± {1.96 * check['standard_error']:.3f}", verdict)
    return result


def as_text(folder: Path) -> list[Any]:
    """What the command prints at the end."""
    checks = store.read_json(folder / "summary.json")["checks"]
    return [statement_table(checks), growth_table(checks)]


def outcome(folder: Path) -> Outcome:
    """Status 1 if a statement does not hold within its assumptions."""
    checks = store.read_json(folder / "summary.json")["checks"]
    failed = [check for check in checks if check["holds"] is False and check["within_assumptions"]]
    lines = [
        f"does not hold: {check['name']} ({check['problem']} problem, window {check['window']}, "
        f"drift {check['drift']:g}, α·L = {check['step']:g}): {check['lhs']:.6g} against {check['rhs']:.6g}"
        for check in failed
    ]
    return Outcome(1, "; ".join(lines)) if failed else Outcome()


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    captions = {
        "bound": ("Measured regret and the theorem's bound", "Over windows; a row per problem, a column per drift."),
        "trade_off": ("Variance falls with the window, tracking grows", "Their sum has a best window."),
        "growth": (
            "Regret per round over the horizon",
            "Below a slope of 0 the regret is sublinear. Above: of the windowed objective; below: of each round's own.",
        ),
        "growth_bias": ("The same with a bias that falls and with one that stays", "Smoothing does not remove a bias."),
        "decomposition": ("The terms of one run's error over time", "Error = noise + bias + tracking, exactly."),
    }
    first, *others = (Picture(*captions[path.stem], path) for path in draw(folder))
    checks, settings = summary["checks"], config["config"]
    decided = [check for check in checks if check["holds"] is not None]
    held = sum(check["holds"] for check in decided)
    page = folder / "report.html"
    write_page(
        page,
        Page(
            title="The paper's statements, measured",
            result=f"{held:,} of {len(decided):,} comparisons with a verdict hold; {len(checks) - len(decided):,} "
            "are shown without a verdict, because the paper gives no constant or claims nothing there.",
            setting=f"{settings['lanes']} lanes of {settings['rounds']} rounds in every setting; windows "
            f"{', '.join(map(str, settings['windows']))}; drifts {', '.join(map(str, settings['drifts']))}.",
            lead=[first, verdict_table(checks)],
            sections=[
                Section("Figures", parts=others),
                Section("Every comparison", parts=[checks_table(checks)], folded=True),
                repeat_section(config),
            ],
        ),
    )
    return page


def verdict_table(checks: list[dict[str, Any]]) -> PageTable:
    """One row per statement: in how many settings it holds, and how tight it is."""
    rows = []
    for name in dict.fromkeys(check["name"] for check in checks):
        same = [check for check in checks if check["name"] == name]
        decided = [check for check in same if check["holds"] is not None]
        held = sum(check["holds"] for check in decided)
        kind = OPEN if not decided else GOOD if held == len(decided) else BAD
        verdict = Verdict(f"{held} of {len(decided)}" if decided else "no verdict", kind)
        tightest = max((check["ratio"] for check in same if check["ratio"] is not None), default=None)
        rows.append((name, verdict, tightest))
    return PageTable(
        "Statements",
        "In how many settings each holds, and the largest ratio of its left side to its right side.",
        ("statement", "holds in", "tightest ratio"),
        rows,
    )


def checks_table(checks: list[dict[str, Any]]) -> PageTable:
    rows = [
        (c["name"], c["problem"], c["window"], c["drift"], c["step"], c["lhs"], c["rhs"], c["ratio"],
         {True: "holds", False: "fails", None: "no verdict"}[c["holds"]])
        for c in checks
    ]  # fmt: skip
    columns = ("statement", "problem", "w", "drift", "α·L", "left side", "right side", "ratio", "verdict")
    return PageTable("All comparisons", "Click a heading to sort.", columns, rows)
