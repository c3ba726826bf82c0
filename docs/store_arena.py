"""Keeps the result of a whole run of the arena, and writes its part of docs/arena.md: python docs/store_arena.py RUN

The file is docs/results/arena_full.json. Numbers of the page are made here, the sentences around them by hand. With
another name, python docs/store_arena.py RUN repeated, only docs/results/arena_repeated.json is written; with the name
map the map of RUN takes the place of that of the whole run.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from store import described, rounded

from smoothfbo.harness.methods import RECOMMENDED, SMOOTH_FBO
from smoothfbo.studies.arena.charts import label_of, rows_of, standings
from smoothfbo.studies.arena.tables import equal_time, is_tied, relative_costs

DOCS = Path(__file__).parent
ORDER = ("sources", "regression", "decay", "instruments", "support", "families", "corruption", "cosine")
BEGIN, END = "<!-- from results/arena_full.json: begin -->", "<!-- end -->"


def content(folder: Path, name: str) -> dict[str, Any]:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    lanes, cost = pd.read_parquet(folder / "lanes.parquet"), relative_costs(folder, summary)
    for row in summary["board"]:
        if row["method"] in cost[row["problem"]]:
            row["cost_to_fbo"] = cost[row["problem"]][row["method"]]
    for row in summary["untuned"]:
        problem, method = row["problem"], row["method"]
        row["equal_time"] = equal_time(summary, lanes, cost[problem], problem, method)
        row["cost_to_fbo"] = cost[problem][method]
    summary["untuned"].sort(key=lambda row: ORDER.index(row["problem"]))
    order = [
        {"method": method["name"], "mean_rank": method["mean_rank"], "problems": method["problems"]}
        for method in standings(summary)
    ]
    run = described(folder) | {key: config[key] for key in ("wall_seconds", "cpu_seconds") if key in config}
    return rounded({"runs": {name: run}, "config": config["config"], "standings": order} | summary)


def gap(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    value = row["gap"]
    if row["diverged"]:
        return f"diverged ({row['diverged']})"
    text = f"{value['mean']:.3g} [{value['low']:.3g}, {value['high']:.3g}]"
    return f"**{text}**" if "to_best" in row and is_tied(row) else text


def ratio(value: dict[str, Any]) -> str:
    if value["mean"] is None:
        return "–"
    return "> 1000" if value["mean"] > 1000 else f"{value['mean']:.2f} [{value['low']:.2f}, {value['high']:.2f}]"


def against(rival: dict[str, Any] | None, label: Callable[[str], str]) -> str:
    return f"{ratio(rival['ratio'])} ({label(rival['method'])})" if rival else "–"


def listed(names: list[str]) -> str:
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    text = "\n".join("| " + " | ".join(row) + " |" for row in lines)
    return text.replace("| --- |", "|---|").replace(" ---: |", "---:|")


def page(result: dict[str, Any]) -> str:
    """The part of docs/arena.md that a run says."""
    rows = {name: rows_of(result, name) for name in ORDER}
    label = lambda name: label_of(result, "methods", name)  # noqa: E731
    first = result["standings"][0]
    mine = {name: rows[name][RECOMMENDED] for name in ORDER}
    tied = [name for name in ORDER if is_tied(rows[name][first["method"]])]
    ratios = {row["problem"]: row["to_best_tuned"] for row in result["untuned"]}
    ahead = [name for name, value in ratios.items() if value["high"] < 1]
    open_ = [name for name, value in ratios.items() if value["low"] <= 1 <= value["high"]]
    better = [name for name in ORDER if (mine[name]["to_fbo"]["high"] or np.inf) < 1]
    at_time = [r["problem"] for r in result["untuned"] if r["equal_time"] and r["equal_time"]["ratio"]["low"] <= 1]
    stored = [
        rows[name][SMOOTH_FBO]["to_fbo"] for name in ORDER if rows[name][SMOOTH_FBO]["to_fbo"]["mean"] is not None
    ]
    run = result["runs"]["full"]
    parts = [
        f"**No method wins everywhere.** “{label(first['method'])}” has the best mean rank, {first['mean_rank']:.1f} "
        f"of {len(result['standings'])}; it is best, or tied with the\nbest, on {len(tied)} of {len(ORDER)} problems.\n"
        f"A window of stored gradients beats FBO on {sum(r['high'] < 1 for r in stored)} of {len(stored)} problems and "
        f"loses on {sum(r['low'] > 1 for r in stored)}.",
        "The recommended SmoothFBO is not tuned at all. It is ahead of the best *tuned* method on "
        f"{len(ahead)} of {len(ORDER)} problems\n({listed(ahead)}), tied with it on {len(open_)} ({listed(open_)}: the "
        "interval of the ratio holds 1), and better than tuned FBO on "
        f"{len(better)}\n({listed(better)}). "
        f"At equal time nothing clearly beats it on {len(at_time)} ({listed(at_time)}).",
        table(
            ["problem", "gap", "times that of the best tuned method", "times FBO's", "cost of a round, times FBO's",
             "at equal time"],
            [
                [row["problem"], gap(mine[row["problem"]]).replace("*", ""),
                 f"{ratio(row['to_best_tuned'])} ({label(row['best_tuned'])})", ratio(mine[row["problem"]]["to_fbo"]),
                 f"{row['cost_to_fbo']:.2g}",
                 against(row["equal_time"], label)]
                for row in result["untuned"]
            ],
        ),
        "Brackets are paired 95 % intervals over 20 fresh seeds. *At equal time*: against the best other method that "
        "costs no more a round.",
        f"```console\n$ {run['command']}\n```",
        "![Every method's gap as a ratio to FBO's](figures/arena_leaderboard.png)",
        "### All methods",
        "Mean gap over the second half of the rounds with 95 % bootstrap intervals. Bold: best, or tied with the best. "
        "Sorted by mean rank;\nreferences in italics. A dash: no closed form is known there, or there is no inner "
        "function.",
    ]  # fmt: skip
    ranked = [(entry["method"], label(entry["method"]), f"{entry['mean_rank']:.1f}") for entry in result["standings"]]
    names = [method["name"] for method in result["methods"] if method["is_reference"]]
    ranked += [(name, f"*{label(name)}*", "–") for name in names]
    parts.append(
        table(
            ["method", "mean rank", *ORDER[:4]],
            [[text, rank, *(gap(rows[p].get(name)) for p in ORDER[:4])] for name, text, rank in ranked],
        )
    )
    parts.append(
        table(
            ["method", *ORDER[4:]], [[text, *(gap(rows[p].get(name)) for p in ORDER[4:])] for name, text, _ in ranked]
        )
    )
    parts.append(
        "Cost of a round as a ratio to FBO's; then, after the semicolon, the range of rates within 10 % of the "
        "method's own best, as a\nfactor:"
    )
    parts.append(table(["method", *ORDER], [
        [label(entry["method"]), *(spent(rows[p].get(entry["method"])) for p in ORDER)] for entry in result["standings"]
    ]))  # fmt: skip
    parts.append(
        f"{result['config']['rounds']} rounds, {result['config']['trials']} settings for each tuned method on "
        f"{result['config']['tuning_seeds']} tuning seeds, {result['config']['seeds']} fresh seeds. "
        "[All numbers](results/arena_full.json)."
    )
    words = ", ".join(
        f"{row['spearman_gap']['mean']:.2f} ({row['problem']})".replace("-", "−")
        for row in sorted(result["correlations"], key=lambda row: ORDER.index(row["problem"]))
    )
    parts.append("The proxy Σ‖g̃‖² does not rank methods. Its rank correlation with the gap is " + words + ".")
    cells = {(e["noise"], e["period"], e["method"]): e["ratio"] for e in result["map"] if e["rate"] is None}
    places = sorted({key[:2] for key in cells})
    pays = [sum(cells[*place, name]["high"] < 1 for place in places) for name in (SMOOTH_FBO, RECOMMENDED)]
    parts.append("### When smoothing pays")
    parts.append(
        f"On the moving sources, a window of 16 stored gradients pays at {pays[0]} of {len(places)} places of "
        f"noise and speed, the recommended method at {pays[1]}.\nThe table has the ratio of gaps to FBO at its "
        "best rate; a star marks an interval without 1, a dagger a best rate at an end of those that were tried."
    )
    if "map" in result["runs"]:
        parts.append(f"```console\n$ {result['runs']['map']['command']}\n```")
    edges = {(e["noise"], e["period"], e["method"]) for e in result["map"] if e.get("is_edge")}
    star = lambda key: (  # noqa: E731
        f"{cells[key]['mean']:.2f}{'' if cells[key]['low'] <= 1 <= cells[key]['high'] else '*'}"
        f"{'†' if key in edges else ''}"
    )
    parts.append(table(["noise", "period", "SmoothFBO, window of 16", "recommended"], [
        [f"{noise:g}", f"{period:g}", *(star((noise, period, name)) for name in (SMOOTH_FBO, RECOMMENDED))]
        for noise, period in places
    ]).replace("|---|---:|---:|---:|", "|---:|---:|---:|---:|"))  # fmt: skip
    return "\n\n".join(parts)


def spent(row: dict[str, Any] | None) -> str:
    if row is None:
        return "–"
    cost, found = f"{row.get('cost_to_fbo', float('nan')):.2g}", row.get("range")
    return f"{cost}; {'≥ ' if found['is_open'] else ''}{10 ** found['decades']:.2g}" if found else f"{cost}; –"


def lines(result: dict[str, Any]) -> str:
    """JSON with a line for every entry of a list."""
    parts = []
    for name, value in result.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in value) + "\n ]"
        parts.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}"


def with_map(run: Path) -> dict[str, Any]:
    """The stored whole run with the map of another one."""
    result = json.loads((DOCS / "results" / "arena_full.json").read_text(encoding="utf-8"))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))["config"]
    own = {name: value for name, value in config.items() if name.startswith("map_")}
    runs = result["runs"] | {"map": described(run)}
    return result | {"runs": runs, "config": result["config"] | own, "map": rounded(summary["map"])}


def main(run: str, name: str = "full") -> None:
    result = with_map(Path(run)) if name == "map" else content(Path(run), name)
    name = "full" if name == "map" else name
    (DOCS / "results" / f"arena_{name}.json").write_text(lines(result) + "\n", encoding="utf-8")
    if name != "full":
        return
    document = DOCS / "arena.md"
    text = document.read_text(encoding="utf-8")
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    text = pattern.sub(lambda _: f"{BEGIN}\n\n{page(result)}\n\n{END}", text)
    document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
