"""The regression's figures and page, from its stored files."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothfbo.harness import store
from smoothfbo.harness.charts import Chart
from smoothfbo.harness.page import Page, Section, Table, estimate_text, repeat_section, write_page
from smoothfbo.harness.statistics import Frame
from smoothfbo.studies.regression import charts, tables
from smoothfbo.studies.regression.claims import LOWER_OBJECTIVE, SAME_RATE, UNTUNED, at_base
from smoothfbo.studies.regression.lines import lines_of, main_lanes
from smoothfbo.studies.regression.methods import find


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    rounds, lanes = (store.read_table(folder / f"{name}.parquet") for name in ("metrics", "lanes"))
    settings, drift = config["config"], config["config"]["drift"][0]
    main = main_lanes(rounds, summary["base"], drift)
    lead: list[Any] = [charts.objective(main, drift, settings)]
    if summary["claims"]:
        lead.append(tables.verdict_table(summary["claims"]))
    page = folder / "report.html"
    write_page(
        page,
        Page(
            title="Non-stationary regression: which past batches to trust",
            result=result(summary["claims"], drift),
            setting=(
                f"{len(lanes):,} lanes of {settings['rounds']:,} rounds, {settings['seeds']} seeds from "
                f"{settings['first_seed']} on; every interval is a 95 % interval over seeds. The exact functional "
                "solution is known here, so every method is measured against the truth."
            ),
            lead=lead,
            sections=list(_sections(config, summary, rounds, lanes, lead[0].name)),
        ),
    )
    return page


def result(claims: list[dict[str, Any]], drift: str) -> str:
    """What the recommended method achieves; and what the window does to the paper's proxy, direction and objective."""
    main = [c for c in claims if c["drift"] == drift and c["regime"] == "default"]
    main = [c for c in main if (c["weights"], c["minibatch"]) == (main[0]["weights"], main[0]["minibatch"])]
    untuned = "".join(
        f"The recommended SmoothFBO, with nothing tuned, has {estimate_text(claim['value'])} times the exact objective "
        "of FBO. "
        for claim in main
        if claim["comparison"] == UNTUNED and claim["limit"] == 1
    )
    main = [claim for claim in main if claim["comparison"] == SAME_RATE]
    windows = {claim["window"] for claim in main}
    if not windows:
        return untuned or "Nothing was compared with FBO in this run; the figures show what each method achieved."
    window = 100 if 100 in windows else max(windows)
    here = [claim for claim in main if claim["window"] == window]
    found = {claim["metric"]: claim for claim in reversed(here)}  # of several claims about a metric the first one
    value = {metric: estimate_text(claim["value"]) for metric, claim in found.items()}
    objective = {"holds": "lower", "fails": "higher", "open": "not measurably different"}[found["excess"]["verdict"]]
    return (
        f"{untuned}Under {drift} drift and at the same rate, SmoothFBO with a window of {window} has {value['proxy']} "
        f"times FBO's proxy; its cosine with the exact hypergradient differs from FBO's by {value['cosine_used']}; and "
        f"its exact objective is {objective}: {value['excess']} times FBO's."
    )


def _sections(
    config: dict[str, Any], summary: dict[str, Any], rounds: Frame, lanes: Frame, lead: str
) -> Iterator[Section]:
    """What stands below the lead; its chart, of this name, is not shown again."""
    settings = config["config"]
    for drift in settings["drift"]:
        main, main_of_lanes = (main_lanes(frame, summary["base"], drift) for frame in (rounds, lanes))
        parts = [
            *(part for part in charts.over_time(main, drift, settings) if part.name != lead),
            *charts.over_windows(main_of_lanes, drift),
            *charts.trajectory(main, drift, summary),
            *charts.learned_weights(main, drift, settings),
        ]
        yield Section(f"{drift.capitalize()} drift", parts=parts)
    if settings["sweep_rates"]:
        yield Section(
            "Where smoothing helps the objective itself, and where it does not",
            parts=list(charts.over_rates(at_base(lanes, {"drift": settings["drift"][0]}, summary["base"]), settings)),
        )
    if settings["paper_values"]:
        paper = rounds[(rounds["outer_rate"] == 1e-3) & (rounds["inner_rate"] == 1e-4)]
        still = rounds[(rounds["method"] == "uniform") & (rounds["drift"] == settings["drift"][0])]
        moved = float(
            paper.groupby(["window", "seed"], observed=True)["scale"]
            .agg(lambda x: abs(x.iloc[-1] / x.iloc[0] - 1))
            .max()
        )
        text = (
            "Inner rate 1e-4, outer rate 1e-3. The sum of the weights changes by at most "
            f"{100 * moved:.2g} % in the whole run, so that the objective can hardly differ from that of uniform "
            "weights."
        )
        yield Section("At the paper's own rates", [text], list(charts.at_paper_rates(paper, still)))
    ablation = list(charts.over_factors(lanes, settings))
    if ablation:
        yield Section("Ablation", parts=ablation)
    if summary["theory"]:
        yield Section("The theorem on this task", parts=[tables.theory_table(summary["theory"])], folded=True)
    if summary["claims"]:
        yield Section("Every comparison", parts=[tables.claims_table(summary["claims"])], folded=True)
    yield Section("All numbers", parts=[tables.summary_table(summary["groups"])], folded=True)
    yield repeat_section(config)


def _verdicts(claims: list[dict[str, Any]]) -> list[str]:
    """One sentence per claim, drift and regime, with what was measured in each setting."""
    sentences = []
    for place, same in tables.places(claims):
        claim, comparison = place["claim"], place["comparison"]
        where = ", ".join(tables.place_cells(place, claims))
        found = "; ".join(
            f"{verdict}{', ' if place['comparison'] == UNTUNED else ' at '}"
            + ", ".join(_setting(c) for c in same if c["verdict"] == verdict)
            for verdict in ("holds", "fails", "open")
            if any(c["verdict"] == verdict for c in same)
        )
        sentences.append(f"{claim[0].upper()}{claim[1:]} ({comparison}; {where}): {found}.")
    return sentences


def _setting(claim: dict[str, Any]) -> str:
    sign = "×" if claim["measure"] == "ratio" else "difference "
    value = f"{sign}{estimate_text(claim['value'])}"
    if claim["comparison"] == UNTUNED:
        return value
    rate = f", rate {claim['outer_rate']:g}" if "outer_rate" in claim else ""
    return f"w = {claim['window']}{rate} ({value})"


def as_text(folder: Path) -> list[Any]:
    """What the command prints at the end: the main comparison, and the verdicts."""
    from rich import box
    from rich.table import Table as Printed

    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    settings = config["config"]
    printed = []
    for drift in settings["drift"]:
        title = (
            f"{drift.capitalize()} drift, {settings['rounds']} rounds, {settings['seeds']} seeds, outer rate "
            f"{summary['base']['outer_rate']:g}; mean ± 95 % interval; objective and cosines over the second half"
        )
        table = Printed(title=title, box=box.SIMPLE)
        shown = ("excess", "cosine_used", "cosine_raw", "proxy", "regret_1")
        for column in ("method", "w", *(tables.TABLE_METRICS[name] for name in shown)):
            table.add_column(column, justify="left" if column == "method" else "right")
        for group in _main_groups(summary["groups"], summary["base"], drift):
            values = (_plus_minus(group["metrics"].get(name)) for name in shown)
            table.add_row(find(group["method"]).label, str(group["window"]), *values)
        printed.append(table)
    main = [claim for claim in summary["claims"] if claim["claim"] != LOWER_OBJECTIVE]
    printed += [f"• {sentence}" for sentence in _verdicts(main)]
    return printed + (
        ["(The outer rates of the sweep, one by one, are on the page.)"] if len(main) < len(summary["claims"]) else []
    )


def _main_groups(groups: list[dict[str, Any]], base: dict[str, Any], drift: str) -> list[dict[str, Any]]:
    wanted = {"drift": drift, "regime": "default", **{name: base[name] for name in base if name != "outer_rate"}}
    rates = (base["outer_rate"], 0.0)
    return [
        group
        for group in groups
        if all(group[name] == value for name, value in wanted.items()) and group["outer_rate"] in rates
    ]


def _plus_minus(value: dict[str, Any] | None) -> str:
    if value is None or value["mean"] is None:
        return ""
    half = "" if value["low"] is None else f" ± {value['high'] - value['mean']:.1g}"
    return f"{value['mean']:.3g}{half}"


def compare(folders: tuple[Path, ...], out: Path) -> Path:
    """One page with the main comparison of every run side by side."""
    names = [str(folder) for folder in folders]
    configs = [store.read_json(folder / "config.json")["config"] for folder in folders]
    summaries = [store.read_json(folder / "summary.json") for folder in folders]
    metrics = [store.read_table(folder / "metrics.parquet") for folder in folders]
    options = [
        (option, *(str(config.get(option)) for config in configs))
        for option in configs[0]
        if len({str(config.get(option)) for config in configs}) > 1
    ]
    merged = [
        group | {"label": f"{name}: {find(group['method']).label}"}
        for name, summary in zip(names, summaries, strict=True)
        for group in summary["groups"]
    ]
    differences = Table("Options that differ", "All others are the same.", ("option", *names), options)
    parts: list[Any] = []
    for column, title, running in (
        ("proxy", "Cumulative proxy Σ‖g̃‖²", 1), ("excess", "Exact objective − σ²", charts.SMOOTHED),
        ("regret_1", "True regret BLR_1", 1),
    ):  # fmt: skip
        lines = []
        for index, (name, config, summary, table) in enumerate(zip(names, configs, summaries, metrics, strict=True)):
            frame = main_lanes(table, summary["base"], config["drift"][0])
            for line in lines_of(frame, column, running=running, methods=charts.PLAIN):
                lines.append(replace(line, name=f"{name}: {line.name}", dashed=index % 2 == 1))
        parts.append(Chart(f"compare_{column}", title, "Lines of every second run are dashed.", "round", title, lines,
                           log_y=True))  # fmt: skip
    sections = [Section("Runs", parts=[differences, tables.summary_table(merged)]), Section("Over time", parts=parts)]
    store.prepare(out)
    page = Page("Comparison of runs", f"{len(names)} runs side by side.", ", ".join(names), [parts[1]], sections)
    write_page(out / "report.html", page)
    return out / "report.html"
