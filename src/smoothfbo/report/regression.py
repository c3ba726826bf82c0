"""The regression's figures and page, from its stored files."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothfbo.experiments.statistics import Frame
from smoothfbo.report import regression_charts as charts
from smoothfbo.report.charts import Chart, draw
from smoothfbo.report.page import Section, Table, write_page
from smoothfbo.runs import store

TABLE_METRICS = {
    "excess": "exact objective − σ²", "cosine_used": "cosine, used", "cosine_raw": "cosine, raw",
    "proxy": "proxy Σ‖g̃‖²",
    "raw": "Σ‖ĝ‖²", "regret": "regret BLR_w", "tracking": "tracking D", "error": "error Γ", "variance": "variance of g̃",
    "bias_squared": "bias ‖b‖²", "noise_squared": "noise E‖ζ‖²", "outer_loss": "hold-out loss",
    "inner_error": "‖ĥ − h*‖²", "truth_error": "‖ĥ − f‖²", "skipped": "skipped rounds",
}  # fmt: skip


def build(folder: Path) -> Path:
    """All figures, and the page; returns the page's path."""
    config, summary = (store.read_json(folder / f"{name}.json") for name in ("config", "summary"))
    rounds, lanes = (store.read_table(folder / f"{name}.parquet") for name in ("metrics", "lanes"))
    sections = list(_sections(config, summary, rounds, lanes))
    figures = store.prepare(folder / "figures")
    for part in (part for section in sections for part in section.parts):
        if not isinstance(part, Table):
            draw(part, figures)
    page = folder / "report.html"
    settings = config["config"]
    title = "Non-stationary regression: which past batches to trust"
    text = (
        f"{len(lanes):,} lanes of {settings['rounds']:,} rounds, {settings['seeds']} seeds from "
        f"{settings['first_seed']} on; every interval is a 95 % interval over seeds. The exact functional solution "
        "is known here, so every method is measured against the truth."
    )
    write_page(page, title, text, sections)
    return page


def _sections(config: dict[str, Any], summary: dict[str, Any], rounds: Frame, lanes: Frame) -> Iterator[Section]:
    settings = config["config"]
    yield Section("What holds", _verdicts(summary["claims"]), [claims_table(summary["claims"])])
    yield Section("All numbers", parts=[summary_table(summary["groups"])])
    for drift in settings["drift"]:
        main = charts.base_lanes(rounds, settings, drift)
        main_lanes = charts.base_lanes(lanes, settings, drift)
        first = drift == settings["drift"][0]
        parts = [
            *charts.over_time(main, drift, settings),
            *charts.over_windows(main_lanes, drift),
            *charts.trajectory(main, drift, summary),
            *(charts.learned_weights(main, drift, settings) if first else ()),
        ]
        yield Section(f"{drift.capitalize()} drift", parts=parts)
    if settings["sweep_rates"]:
        yield Section(
            "Where smoothing helps the objective itself, and where it does not",
            parts=list(charts.over_rates(lanes[lanes["drift"] == settings["drift"][0]], settings)),
        )
    if settings["paper_values"]:
        paper = rounds[(rounds["outer_rate"] == 1e-3) & (rounds["inner_rate"] == 1e-4)]
        yield Section(
            "At the paper's own rates",
            [
                "Inner rate 1e-4, outer rate 1e-3. The hypergradient is of the size of a few hundredths here, so in "
                "1,000 rounds the weights move by a few hundredths: whatever the proxy does, the objective stays "
                "that of uniform weights."
            ],
            list(charts.at_paper_rates(paper)),
        )
    ablation = list(charts.over_factors(lanes, settings))
    if ablation:
        yield Section("Ablation", parts=ablation)
    facts = [f"{name}: {value}" for name, value in config.items() if name not in ("config", "versions")]
    facts += [f"versions: {', '.join(f'{k} {v}' for k, v in config['versions'].items())}"]
    rows = [(name, " ".join(map(str, v)) if isinstance(v, list) else str(v)) for name, v in settings.items()]
    yield Section("How to repeat it", facts, [Table("Configuration", "Complete.", ("option", "value"), rows)])


def _verdicts(claims: list[dict[str, Any]]) -> list[str]:
    """One sentence per claim: in how many settings it holds, fails, or is open."""
    sentences = []
    for claim in dict.fromkeys((c["claim"], c["comparison"]) for c in claims):
        same = [c for c in claims if (c["claim"], c["comparison"]) == claim]
        counts = {v: sum(c["verdict"] == v for c in same) for v in ("holds", "fails", "open")}
        sentences.append(
            f"{claim[0][0].upper()}{claim[0][1:]} ({claim[1]}): holds in {counts['holds']} of {len(same)} settings, "
            f"fails in {counts['fails']}, open in {counts['open']}."
        )
    return sentences


def claims_table(claims: list[dict[str, Any]]) -> Table:
    rows = []
    for claim in claims:
        where = ", ".join(
            f"{k} {claim[k]}" for k in ("drift", "regime", "window", "outer_rate", "other_rate") if k in claim
        )
        rows.append((claim["claim"], where, _estimate(claim["ratio"]), claim["verdict"]))
    return Table(
        "The paper's claims and the truth, seed by seed",
        "Ratio of SmoothFBO to the other, geometric mean of paired ratios with its 95 % interval. A claim holds if the "
        "whole interval is on its side of 1, fails if it is on the other, and is open in between.",
        ("claim", "where", "ratio", "verdict"), rows,
    )  # fmt: skip


def summary_table(groups: list[dict[str, Any]]) -> Table:
    keys = ("method", "window", "drift", "regime", "outer_rate", "inner_rate", "batch", "inner_steps")
    keys = [key for key in keys if key in ("method", "window") or len({group[key] for group in groups}) > 1]
    names = [name for name in TABLE_METRICS if any(name in group["metrics"] for group in groups)]
    rows = [
        (*(group[key] for key in keys), *(_estimate(group["metrics"].get(name)) for name in names)) for group in groups
    ]
    return Table(
        "Mean and 95 % interval over seeds",
        "Sums are over all rounds; objective, cosines, losses and errors are means over the second half. Click a "
        "heading to sort.",
        (*(key.replace("_", " ") for key in keys), *(TABLE_METRICS[name] for name in names)),
        rows,
    )  # fmt: skip


def _estimate(value: dict[str, Any] | None) -> Any:
    if value is None or value["mean"] is None:
        return None
    if value["low"] is None:
        return value["mean"], f"{value['mean']:.3g}"
    return value["mean"], f"{value['mean']:.3g} [{value['low']:.3g}, {value['high']:.3g}]"


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
            f"{settings['outer_rate'][0]:g}; mean ± 95 % interval; objective and cosines over the second half"
        )
        table = Printed(title=title, box=box.SIMPLE)
        shown = ("excess", "cosine_used", "cosine_raw", "proxy", "regret")
        for column in ("method", "w", *(TABLE_METRICS[name] for name in shown)):
            table.add_column(column, justify="left" if column == "method" else "right")
        for group in _main_groups(summary["groups"], settings, drift):
            values = (_plus_minus(group["metrics"].get(name)) for name in shown)
            table.add_row(charts.NAMES[group["method"]], str(group["window"]), *values)
        printed.append(table)
    return printed + [f"• {sentence}" for sentence in _verdicts(summary["claims"])]


def _main_groups(groups: list[dict[str, Any]], settings: dict[str, Any], drift: str) -> list[dict[str, Any]]:
    wanted = {"drift": drift, "regime": "default"}
    wanted |= {name: settings[name][0] for name in ("weights", "inner_rate", "batch", "inner_steps")}
    rates = (settings["outer_rate"][0], 0.0)
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


def compare(folders: list[Path], out: Path) -> Path:
    """One page with the main comparison of every run side by side."""
    names = [str(folder) for folder in folders]
    configs = [store.read_json(folder / "config.json")["config"] for folder in folders]
    summaries = [store.read_json(folder / "summary.json") for folder in folders]
    tables = [store.read_table(folder / "metrics.parquet") for folder in folders]
    options = [
        (option, *(str(config.get(option)) for config in configs))
        for option in configs[0]
        if len({str(config.get(option)) for config in configs}) > 1
    ]
    merged = [
        group | {"method": f"{name}: {group['method']}"}
        for name, summary in zip(names, summaries, strict=True)
        for group in summary["groups"]
    ]
    differences = Table("Options that differ", "All others are the same.", ("option", *names), options)
    parts: list[Any] = []
    for column, title, running in (
        ("proxy", "Cumulative proxy Σ‖g̃‖²", 1), ("excess", "Exact objective − σ²", charts.SMOOTHED),
        ("regret", "True regret BLR_w", 1),
    ):  # fmt: skip
        lines = []
        for index, (name, config, table) in enumerate(zip(names, configs, tables, strict=True)):
            frame = charts.base_lanes(table, config, config["drift"][0])
            for line in charts.lines(frame, column, running=running, methods=charts.PLAIN):
                lines.append(replace(line, name=f"{name}: {line.name}", dashed=index % 2 == 1))
        parts.append(Chart(f"compare_{column}", title, "Lines of every second run are dashed.", "round", title, lines,
                           log_y=True))  # fmt: skip
    sections = [Section("Runs", parts=[differences, summary_table(merged)]), Section("Over time", parts=parts)]
    figures = store.prepare(store.prepare(out) / "figures")
    for part in parts:
        draw(part, figures)
    write_page(out / "report.html", "Comparison of runs", ", ".join(names), sections)
    return out / "report.html"
