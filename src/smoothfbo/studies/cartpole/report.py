"""The CartPole study's tables and page, from its stored files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from smoothfbo.harness import store
from smoothfbo.harness.methods import SMOOTH_FBO
from smoothfbo.harness.page import (
    BAD,
    GOOD,
    OPEN,
    Page,
    Picture,
    Section,
    Table,
    Verdict,
    estimate_cell,
    estimate_text,
    repeat_section,
    write_page,
)
from smoothfbo.harness.statistics import Frame
from smoothfbo.studies.cartpole import charts
from smoothfbo.studies.cartpole.animation import animate
from smoothfbo.studies.cartpole.config import GRID
from smoothfbo.studies.cartpole.methods import find


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    rounds = store.read_table(folder / "metrics.parquet")
    figures = store.prepare(folder / "figures")
    settings, seeds = config["config"], rounds["seed"]
    environment = "drifting" if "drifting" in settings["environment"] else settings["environment"][0]
    here = rounds[rounds["environment"] == environment]
    page = folder / "report.html"
    write_page(
        page,
        Page(
            title="Non-stationary CartPole",
            result=result(summary, environment),
            setting=(
                f"{settings['steps']:,} steps, {seeds.nunique()} seeds ({seeds.min()} to {seeds.max()}), evaluation "
                f"every {settings['evaluate_every']:,} steps over {settings['episodes']} episodes with the interval of "
                f"that moment. {networks_evaluated(settings)}"
            ),
            lead=[next(charts.over_training(here, environment)), ranking_table(summary)],
            sections=[
                *_sections(config, summary, rounds),
                *_animations(folder, figures),
                Section("All numbers", parts=[returns_table(summary["groups"])], folded=True),
                repeat_section(config),
            ],
        ),
    )
    return page


def result(summary: dict[str, Any], environment: str) -> str:
    """One sentence: who ends highest, and where SmoothFBO stands."""
    groups = [group for group in summary["groups"] if group["environment"] == environment]
    best = max(groups, key=lambda group: group["mean"])
    text = (
        f"In the {environment} environment {_named(best)} ends highest, with a mean last return of "
        f"{estimate_text(best['metrics']['final_return'])}"
    )
    smooth = [group for group in groups if group["method"] == SMOOTH_FBO]
    if not smooth or best["method"] == SMOOTH_FBO:
        return text + "."
    own = max(smooth, key=lambda group: group["mean"])
    return f"{text}; {_named(own)} has {estimate_text(own['metrics']['final_return'])}."


def _named(group: dict[str, Any]) -> str:
    return find(group["method"]).with_window(int(group["window"]))


def varied(groups: list[dict[str, Any]]) -> list[str]:
    """The numbers that tell settings of one method apart, beside the window, which its name has."""
    methods = {group["method"] for group in groups}
    values = {
        name: [len({group[name] for group in groups if group["method"] == method}) for method in methods]
        for name in GRID
        if name != "window"
    }
    return [name for name, counts in values.items() if max(counts, default=0) > 1]


def ranking_table(summary: dict[str, Any]) -> Table:
    """Every method, best first, and how SmoothFBO compares with it."""
    differences = {(e["environment"], e["other"], e["other_window"]): e["difference"] for e in summary["improvement"]}
    rows, numbers = [], varied(summary["groups"])
    for group in sorted(summary["groups"], key=lambda group: (group["environment"], -group["mean"])):
        key = group["environment"], group["method"], int(group["window"])
        metrics = group["metrics"]
        rows.append(
            (_named(group), *(group[name] for name in numbers), group["environment"],
             estimate_cell(metrics["final_return"]), group["min"],
             estimate_cell(metrics["newest_return"]), _difference(differences.get(key)),
             Verdict(f"{group['frozen']} of {group['seeds']}", BAD) if group["frozen"] else "none")
        )  # fmt: skip
    columns = ("method", *(charts.SYMBOLS[name] for name in numbers), "environment", "last return", "worst seed",
               "newest alone", "SmoothFBO minus it", "frozen")  # fmt: skip
    return Table(
        "Return of the last evaluation, best first",
        "Mean and 95 % interval over seeds, of the averaged networks and of the newest networks alone. Green: "
        "SmoothFBO is above the method with the whole 95 % interval; red: below; grey: not distinguishable. A lane is "
        "frozen once its parameters are not finite.",
        columns, rows,
    )  # fmt: skip


def _difference(value: dict[str, Any] | None) -> Verdict | None:
    if value is None:
        return None
    kind = OPEN if value["low"] is None else GOOD if value["low"] > 0 else BAD if value["high"] < 0 else OPEN
    return Verdict(estimate_text(value), kind)


def networks_evaluated(settings: dict[str, Any]) -> str:
    """Whose returns these are."""
    share = settings["averaged"]
    if not share:
        return "Evaluated are the newest Q networks."
    what = "the votes" if settings.get("vote") else "the mean values"
    return (
        f"Evaluated are {what} of the Q networks at the last {100 * share:g} % of the evaluations so far, "
        "and the newest networks beside them."
    )


def _sections(config: dict[str, Any], summary: dict[str, Any], rounds: Frame) -> Iterator[Section]:
    settings = config["config"]
    if len(settings["environment"]) > 1:
        yield Section("Stationary against drifting", parts=list(charts.side_by_side(rounds)))
    for environment in settings["environment"]:
        here = rounds[rounds["environment"] == environment]
        yield Section(f"{environment.capitalize()} environment", parts=list(charts.over_training(here, environment)))
    yield Section("SmoothFBO against each other method", parts=[improvement_table(summary["improvement"])])


def _animations(folder: Path, figures: Path) -> Iterator[Section]:
    """A policy at work, where the run has stored one: SmoothFBO's, or else that of the last method."""
    path = folder / "arrays.npz"
    episodes = store.read_arrays(path) if path.exists() else {}
    chosen = {name.split()[1]: name for name in episodes}
    chosen |= {name.split()[1]: name for name in episodes if name.split()[0] == SMOOTH_FBO}
    pictures = [
        Picture(
            f"{find(name.split()[0]).label}, {environment} environment",
            "The first episode of evaluations during training, first seed, twice as fast as it happens. The pole is "
            "paid for while it is inside the band; the pole is drawn at twice its length.",
            animate(figures / f"{environment}_policy.gif", episodes[name]),
        )
        for environment, name in chosen.items()
    ]  # fmt: skip
    if pictures:
        yield Section("The policy at work", parts=pictures)


def returns_table(groups: list[dict[str, Any]]) -> Table:
    rows = []
    for group in groups:
        metrics = group["metrics"]
        rows.append(
            (find(group["method"]).label, group["environment"], group["max"], group["mean"], group["min"],
             estimate_cell(metrics["final_return"]), estimate_cell(metrics["final_return_iqm"]),
             estimate_cell(metrics["mean_return"]), estimate_cell(metrics["cumulative_return"]),
             estimate_cell(metrics["newest_return"]), group["newest"]["min"],
             estimate_cell(metrics["newest_late_return"]), group["seeds"], group["frozen"],
             *(group[name] for name in GRID))
        )  # fmt: skip
    columns = ("method", "environment", "max", "mean", "min", "mean, 95 %", "interquartile mean, 95 %",
               "mean over training, 95 %", "cumulative, 95 %", "newest networks: mean, 95 %", "newest: min",
               "newest: mean over the last tenth, 95 %", "seeds", "frozen", *charts.SYMBOLS.values())  # fmt: skip
    return Table(
        "Return of the last evaluation", "Of the averaged networks, and of the newest ones where it says so. Max, mean "
        "and min over seeds as in the paper's table; Student's t interval for means, bootstrap interval for "
        "interquartile means.", columns, rows,
    )  # fmt: skip


def improvement_table(entries: list[dict[str, Any]]) -> Table:
    rows = [
        (
            find(e["other"]).with_window(e["other_window"]),
            e["environment"],
            e["window"],
            e["mix"],
            estimate_cell(e["probability"]),
            estimate_cell(e["difference"]),
            estimate_cell(e["newest"]),
        )
        for e in entries
    ]
    return Table(
        "SmoothFBO against each other method",
        ("" if rows else "Nothing: there is no other method or shorter window, or several settings of one method. ")
        + "Probability that a seed of SmoothFBO ends above a seed of the other, and difference of the mean final "
        "returns; the same probability for the newest networks alone; 95 % bootstrap intervals.",
        ("other", "environment", "w", "θ", "probability of improvement", "difference", "probability, newest"), rows,
    )  # fmt: skip


def as_text(folder: Path) -> list[Any]:
    """What the command prints at the end."""
    from rich import box
    from rich.table import Table as Printed

    summary = store.read_json(folder / "summary.json")
    printed = Printed(title="Return of the last evaluation, over seeds", box=box.SIMPLE)
    numbers = [name for name in varied(summary["groups"]) if name != "mix"]
    columns = ("method", "environment", "w", "θ", "max", "mean", "min", "interquartile mean", "newest", "frozen")
    for column in columns:
        printed.add_column(column, justify="left" if column == "method" else "right")
    for group in summary["groups"]:
        differs = [f"{charts.SYMBOLS[name]} = {group[name]:g}" for name in numbers]
        printed.add_row(
            ", ".join([find(group["method"]).label, *differs]), group["environment"], f"{group['window']:g}",
            f"{group['mix']:g}", f"{group['max']:.1f}", f"{group['mean']:.1f}", f"{group['min']:.1f}",
            estimate_text(group["metrics"]["final_return_iqm"]), f"{group['newest']['mean']:.1f}",
            f"{group['frozen']}/{group['seeds']}",
        )  # fmt: skip
    config = store.read_json(folder / "config.json")["config"]
    return [printed, networks_evaluated(config)]
