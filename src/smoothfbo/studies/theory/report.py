"""The tables and the page of the theory study, from its stored files."""

from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from smoothfbo.harness import store
from smoothfbo.harness.page import BAD, GOOD, OPEN, Page, Picture, Section, Verdict, repeat_section, write_page
from smoothfbo.harness.page import Table as PageTable
from smoothfbo.harness.study import Outcome
from smoothfbo.studies.theory.charts import draw, regret_over_horizons, share_of_bound

# The rows of the page's first table: a name, and how the names of its comparisons begin.
GROUPS = {
    "Decomposition (Lemma 5.1)": ("decomposition:",),
    "Error of the smoothed oracle (Lemma 4.2)": ("error lemma (oracle)",),
    "Error of the smoothed estimate (Lemma 5.2)": ("error lemma (estimated)",),
    "Theorem 4.4 (oracle)": ("theorem (oracle)",),
    "Theorem 5.3 (estimates)": ("theorem (estimated)",),
    "Telescoping lemma": ("telescoping lemma:",),
    "Descent": ("descent:",),
    "Movement bound": ("movement bound:",),
    "Proxy bound": ("proxy:",),
    "Gradient norm and projection lemmas": ("gradient norm lemma:", "projection lemma:"),
    "Bias lemma": ("bias lemma",),
    "Variance lemma": ("variance lemma",),
    "Linear reduction (Lemma 5.5)": ("linear reduction", "historical-point premise"),
    "Corollary: variance against tracking": ("corollary:",),
    "Growth of the regret, stored windows": ("sublinear", "counter-example", "a bias that stays", "no claim: V₁"),
    "Growth of the regret, replayed windows (ours)": ("replayed,", "no claim: replayed"),
    "Bounds for replayed windows (ours)": ("replay:", "replay,", "theorem (replayed)", "measured: E BLR, replayed"),
}


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
    lanes, growth = (store.read_table(folder / f"{name}.parquet") for name in ("metrics", "growth"))
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
    checks, settings = summary["checks"], config["config"]
    page = folder / "report.html"
    write_page(
        page,
        Page(
            title="The paper's statements, measured",
            result=result(checks),
            setting=f"{settings['lanes']} lanes of {settings['rounds']} rounds in every setting; windows "
            f"{', '.join(map(str, settings['windows']))}; drifts {', '.join(map(str, settings['drifts']))}.",
            lead=[share_of_bound(lanes), group_table(checks)],
            sections=[
                Section("Is the regret sublinear?", parts=[regret_over_horizons(growth, summary["growth_slopes"])]),
                Section(
                    "Every problem, drift and step",
                    parts=[Picture(*captions[path.stem], path) for path in draw(folder)],
                    folded=True,
                ),
                Section("Every statement", parts=[verdict_table(checks)], folded=True),
                Section("Every comparison", parts=[checks_table(checks)], folded=True),
                repeat_section(config),
            ],
        ),
    )
    return page


def result(checks: list[dict[str, Any]]) -> str:
    """One sentence: how many comparisons hold."""
    decided = [check for check in checks if check["holds"] is not None]
    held = sum(check["holds"] for check in decided)
    count = f"All {held:,}" if held == len(decided) else f"{held:,} of {len(decided):,}"
    return (
        f"{count} comparisons with a verdict hold; {len(checks) - len(decided):,} have no verdict, because the paper "
        "gives no constant or claims nothing there."
    )


def group_of(check: dict[str, Any]) -> str:
    """The lemma or theorem that a comparison belongs to."""
    return next((title for title, starts in GROUPS.items() if check["name"].startswith(starts)), "Others")


def group_table(checks: list[dict[str, Any]]) -> PageTable:
    """One row per lemma or theorem: how many of its comparisons hold, and the worst of them."""
    groups: dict[str, list[dict[str, Any]]] = {title: [] for title in (*GROUPS, "Others")}
    for check in checks:
        groups[group_of(check)].append(check)
    rows = [
        (title, _verdict(same), sum(check["holds"] is None for check in same) or None, _worst_ratio(same))
        for title, same in groups.items()
        if same
    ]
    return PageTable(
        "What holds",
        "How many comparisons with a verdict hold, and the largest ratio of a left side to its right side among them. "
        "An inequality holds up to a ratio of 1; means over lanes may exceed it by three standard errors. Slopes have "
        "no ratio. Single statements and comparisons are further below.",
        ("statement", "holds in", "no verdict", "worst ratio"),
        rows,
    )


def _verdict(checks: list[dict[str, Any]]) -> Verdict:
    decided = [check for check in checks if check["holds"] is not None]
    held = sum(check["holds"] for check in decided)
    kind = OPEN if not decided else GOOD if held == len(decided) else BAD
    return Verdict(f"{held:,} of {len(decided):,}" if decided else "no verdict", kind)


def _worst_ratio(checks: list[dict[str, Any]]) -> float | None:
    """The worst of the comparisons with a verdict, or of all without one; slopes of the growth are not ratios."""
    checks = [check for check in checks if check["ratio"] is not None and check["problem"] != "growth"]
    decided = [check for check in checks if check["holds"] is not None]
    return max((check["ratio"] for check in decided or checks), default=None)


def verdict_table(checks: list[dict[str, Any]]) -> PageTable:
    """One row per statement: in how many settings it holds, and how tight it is."""
    names = dict.fromkeys(check["name"] for check in checks)
    statements = {name: [check for check in checks if check["name"] == name] for name in names}
    return PageTable(
        "Statements",
        "In how many settings each holds, and the largest ratio of its left side to its right side.",
        ("statement", "holds in", "worst ratio"),
        [(name, _verdict(same), _worst_ratio(same)) for name, same in statements.items()],
    )


def checks_table(checks: list[dict[str, Any]]) -> PageTable:
    rows = [
        (c["name"], c["problem"], c["window"], c["drift"], c["step"], c["lhs"], c["rhs"], c["ratio"],
         {True: "holds", False: "fails", None: "no verdict"}[c["holds"]])
        for c in checks
    ]  # fmt: skip
    columns = ("statement", "problem", "w", "drift", "α·L", "left side", "right side", "ratio", "verdict")
    return PageTable("All comparisons", "Click a heading to sort.", columns, rows)
