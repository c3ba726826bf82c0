"""The arena's leaderboard page, from its stored files. No jax here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoothfbo.harness import store
from smoothfbo.harness.charts import Chart
from smoothfbo.harness.methods import SMOOTH_FBO
from smoothfbo.harness.page import Page, Section, Table, repeat_section, write_page
from smoothfbo.harness.statistics import Frame
from smoothfbo.studies.arena import charts
from smoothfbo.studies.arena.charts import Summary, label_of, rows_of, standings
from smoothfbo.studies.arena.tables import (
    board_table,
    cost_table,
    is_tied,
    number_table,
    proxy_table,
    range_table,
    relative_costs,
    untuned_table,
)


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    lanes, curves = (store.read_table(folder / f"{name}.parquet") for name in ("lanes", "curves"))
    settings = config["config"]
    page, cost = folder / "report.html", relative_costs(folder, summary)
    untuned = untuned_table(summary, lanes, cost)
    write_page(
        page,
        Page(
            title="The arena: online bilevel methods on problems whose answer moves",
            result=result(summary),
            setting=(
                f"{len(lanes):,} lanes of {settings['rounds']:,} rounds. Every method tried {settings['trials']} "
                f"settings on each problem on {settings['tuning_seeds']} tuning seeds; the best one is reported on "
                f"{settings['seeds']} fresh seeds. Intervals are 95 % bootstrap intervals over seeds."
            ),
            lead=[charts.leaderboard(summary), board_table(summary), *([untuned] if untuned else [])],
            sections=list(_sections(config, summary, lanes, curves, cost)),
        ),
    )
    return page


def result(summary: Summary) -> str:
    """One sentence: who wins, and what a window of stored gradients does."""
    order = standings(summary)
    problems = [problem["name"] for problem in summary["problems"] if rows_of(summary, problem["name"])]
    if not order:
        return "No method could be ranked in this run."
    first = order[0]
    played = [rows[first["name"]] for problem in problems if first["name"] in (rows := rows_of(summary, problem))]
    tied = sum(is_tied(row) for row in played)
    rank = f"{first['mean_rank']:.1f}"
    equals = [other["label"] for other in order[1:] if f"{other['mean_rank']:.1f}" == rank]
    shared = f" (shared with {', '.join(equals)})" if equals else ""
    text = (
        f"{first['label']} has the best mean rank, {rank} of {len(order)}{shared}, and is best or tied with "
        f"the best on {tied} of {len(played)} problems"
    )
    smooth = [rows[SMOOTH_FBO] for problem in problems if SMOOTH_FBO in (rows := rows_of(summary, problem))]
    smooth = [row["to_fbo"] for row in smooth if row.get("to_fbo", {}).get("low") is not None]
    if not smooth:
        return f"{text}."
    better, worse = sum(ratio["high"] < 1 for ratio in smooth), sum(ratio["low"] > 1 for ratio in smooth)
    return (
        f"{text}; SmoothFBO's window of stored gradients beats FBO on {better} and loses to it on {worse} of "
        f"{len(smooth)}."
    )


def _sections(
    config: dict[str, Any], summary: Summary, lanes: Frame, curves: Frame, cost: dict[str, dict[str, float]]
) -> Iterator[Section]:
    settings = config["config"]
    if summary["failures"]:
        yield Section("What failed", summary["failures"])
    yield Section("Over time", parts=list(charts.over_time(summary, curves)))
    if summary.get("map"):
        text = (
            "The moving sources at several noises and speeds: SmoothFBO with a window of stored gradients of "
            f"{settings['map_window']} against FBO, plain steps; and the recommended method, which is not tuned, "
            "against FBO at its best rate."
        )
        drawn: dict[bool, list[Any]] = {True: [], False: []}
        for picture in charts.maps(summary):
            drawn[picture.name.endswith("_best")].append(picture)
        yield Section("When smoothing pays", [text], drawn[True])
        yield Section("When smoothing pays, rate by rate", parts=drawn[False], folded=True)
    fresh = range(settings["first_seed"], settings["first_seed"] + settings["seeds"])
    yield from _table_and_charts("Ranges of rates", range_table(summary), charts.over_rates(summary, lanes, fresh))
    if cost:
        yield from _table_and_charts(
            "Cost, and equal time", cost_table(summary, lanes, cost), charts.against_cost(summary, cost)
        )
    if any(len(each) > 1 for each in summary["correlations"]):
        yield from _table_and_charts(
            "The proxy against the truth", proxy_table(summary), charts.proxy_against_truth(summary)
        )
    yield Section("All numbers", parts=[number_table(summary)], folded=True)
    if summary["absent"]:
        rows = [
            (*(label_of(summary, f"{kind}s", each[kind]) for kind in ("method", "problem")), each["why"])
            for each in summary["absent"]
        ]
        table = Table(
            "What does not apply",
            "A dash in the tables: no closed form is known there, or there is no inner function. It is no failure: "
            "what failed is listed under that name.",
            ("method", "problem", "reason"),
            rows,
        )
        yield Section("What does not apply", parts=[table], folded=True)
    yield repeat_section({name: value for name, value in config.items() if name not in ("plugins", "failures")})


def _table_and_charts(title: str, table: Table, pictures: Iterator[Chart]) -> Iterator[Section]:
    """A table, and a chart for each problem for those who open the fold."""
    yield Section(title, parts=[table])
    yield Section(f"{title}, problem by problem", parts=list(pictures), folded=True)


def as_text(folder: Path) -> list[Any]:
    """What the command prints at the end: the leaderboard, and the sentence."""
    from rich import box
    from rich.table import Table as Printed
    from rich.text import Text

    summary = store.read_json(folder / "summary.json")
    problems = [problem for problem in summary["problems"] if rows_of(summary, problem["name"])]
    table = Printed(title="Gap to the best possible answer, second half of the rounds (* best or tied)", box=box.SIMPLE)
    for column in ("method", "rank", *(problem["name"] for problem in problems)):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method in standings(summary):
        cells = []
        for problem in problems:
            row = rows_of(summary, problem["name"]).get(method["name"])
            if row is None or row["gap"]["mean"] is None:
                cells.append(Text("–" if row is None else "diverged"))
            else:
                cells.append(Text(f"{row['gap']['mean']:.3g}{'*' if is_tied(row) else ' '}"))
        table.add_row(Text(method["label"]), f"{method['mean_rank']:.1f}", *cells)
    return [table, result(summary), *(f"Failed: {line}" for line in summary["failures"])]
