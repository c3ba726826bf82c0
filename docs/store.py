"""Keeps the results of finished runs, small, as docs/results/NAME.json: python docs/store.py NAME RUN [RUN ...]

The file names every run's command, commit, versions and devices; a commit with changes or a missing version is refused.
Numbers have six digits.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

STATED = ("command", "commit", "versions", "python", "devices")
PARTS = ("groups", "improvement", "claims", "theory", "growth_slopes")  # of a summary


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
    return {name: run[name] for name in STATED}


def main(name: str, *folders: str) -> None:
    """One file with all parts of all summaries, each entry with the run it is of where there are several."""
    places = [Path(folder) for folder in folders]
    content: dict[str, Any] = {"runs": {place.name: described(place) for place in places}}
    for place in places:
        summary = json.loads((place / "summary.json").read_text(encoding="utf-8"))
        content |= {key: summary[key] for key in ("base", "truth") if key in summary}
        for part in PARTS:
            mark = {"run": place.name} if len(places) > 1 else {}
            content.setdefault(part, []).extend(mark | rounded(entry) for entry in summary.get(part, []))
    content = {key: value for key, value in content.items() if value}
    target = Path(__file__).parent / "results" / f"{name}.json"
    target.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
