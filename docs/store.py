"""Keeps the results of finished runs, small, as docs/results/NAME.json: python docs/store.py NAME RUN [RUN ...]

The file names every run's command, commit, versions and devices; a commit with changes or a missing version is refused.
Numbers have six digits. Of the theory's checks the worst of each statement and problem is kept, of settings beside the
main comparison the headline figures, of a table's run errors, coverage and changes. The seeds of CartPole are kept one
by one, as NAME_lanes.csv.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd

STATED = ("command", "commit", "versions", "python", "devices")
PARTS = ("groups", "improvement", "claims", "theory", "checks", "growth_slopes")  # of a summary
TABLE = ("rows", "block", "errors", "best_reference", "ratio_to_best_reference", "coverage", "changes")
LANE = ("method", "environment", "window", "mix", "seed", "final_return", "late_return", "mean_return", "newest_return",
        "newest_late_return", "clipped")  # fmt: skip
HEADLINES = ("excess", "cosine_used", "proxy", "regret_1", "regret_100")  # of a group beside the main comparison


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def described(folder: Path) -> dict[str, Any]:
    run = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    clean = re.fullmatch(r"[0-9a-f]{40}", run.get("commit") or "") and run["versions"].get("smoothfbo")
    if not clean:
        raise SystemExit(
            f"{folder}: commit {run.get('commit')}, version {run['versions'].get('smoothfbo')}: run it again"
        )
    command = re.sub(r" --out \S+", "", run["command"])  # the folder is anybody's own
    return {name: run[name] for name in STATED} | {"command": command}


def is_main(group: dict[str, Any], base: dict[str, Any] | None) -> bool:
    """Whether a group has the usual value of every factor; the kinds of weights and mini-batches are all usual."""
    factors = {name: value for name, value in (base or {}).items() if name not in ("weights", "minibatch")}
    usual = all(group[name] == value or (name, group[name]) == ("outer_rate", 0.0) for name, value in factors.items())
    return usual and group.get("regime", "default") == "default"


def short(group: dict[str, Any], base: dict[str, Any] | None) -> dict[str, Any]:
    if is_main(group, base):
        return group
    return group | {"metrics": {name: group["metrics"][name] for name in HEADLINES if name in group["metrics"]}}


def worst(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry for each statement and problem: how many settings, in how many it holds, and the largest ratio."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for check in checks:
        key = tuple(check[name] for name in ("name", "kind", "problem", "within_assumptions"))
        groups.setdefault(key, []).append(check)
    return [
        dict(zip(("name", "kind", "problem", "within_assumptions"), key, strict=True))
        | {"settings": len(same), "hold": sum(bool(check["holds"]) for check in same)}
        | {"worst": max((check["ratio"] for check in same if check["ratio"] is not None), default=None)}
        for key, same in groups.items()
    ]


def main(name: str, *folders: str) -> None:
    """One file with all parts of all summaries, each entry with the run it is of where there are several."""
    places = [Path(folder) for folder in folders]
    content: dict[str, Any] = {"runs": {place.name: described(place) for place in places}}
    for place in places:
        summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
        base = summary.get("base")
        content |= {key: summary[key] for key in ("base", "truth") if key in summary and key not in content}
        entries = {part: summary.get(part, []) for part in PARTS}
        entries["groups"] = [short(group, base) for group in entries["groups"]]
        entries["checks"] = worst(entries["checks"])
        mark = {"run": place.name} if len(places) > 1 else {}
        if "coverage" in summary:  # a run of `smoothfbo stream`
            content.setdefault("tables", []).append({"run": place.name} | rounded({key: summary[key] for key in TABLE}))
        for part in PARTS:
            content.setdefault(part, []).extend(mark | rounded(entry) for entry in entries[part])
    target = Path(__file__).parent / "results" / f"{name}.json"
    target.write_text(written({key: value for key, value in content.items() if value}), encoding="utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes")
    lanes = {place.name: pd.read_parquet(place / "lanes.parquet") for place in places if (place / "best.json").exists()}
    if lanes:  # a run of CartPole
        table = pd.concat([frame[[*LANE]].assign(run=name) for name, frame in lanes.items()])
        table[["run", *LANE]].to_csv(target.with_name(f"{name}_lanes.csv"), index=False, float_format="%.5g")


def text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def written(content: dict[str, Any]) -> str:
    """JSON with an entry on each line."""

    def one(value: Any) -> str:
        if isinstance(value, list):
            return "[\n" + ",\n".join(f"  {text(each)}" for each in value) + "\n ]"
        if all(isinstance(each, dict) for each in value.values()):
            return "{\n" + ",\n".join(f"  {text(name)}: {text(each)}" for name, each in value.items()) + "\n }"
        return text(value)

    return "{\n" + ",\n".join(f" {json.dumps(key)}: {one(value)}" for key, value in content.items()) + "\n}\n"


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
