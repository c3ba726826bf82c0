"""The tables of docs/stream.md, from the stored result: `python -m benchmarks.stream_page` prints them.

A test looks for every line of them in the page.
"""

import json
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.stream_generated import SPANS

KINDS = ("held out", "development")


def stored() -> dict[str, Any]:
    return json.loads((measure.FOLDER / "stream.json").read_text(encoding="utf-8"))


def page(content: dict[str, Any]) -> list[list[str]]:
    """The tables, each a list of lines."""
    cases = content["cases"]
    tables = [case for case in cases if "table" in case]
    return [
        goals(content["ratios"], tables),
        *(each(case for case in tables if case["kind"] == kind) for kind in (*KINDS, "generated classes")),
        bands([case for case in tables if case.get("covered_rows", 0) >= 5_000]),
        jumps([case for case in cases if "jumps every" in case]),
        events([case for case in cases if "event" in case]),
        alarms([case for case in cases if "noise" in case]),
    ]


def goals(ratios: list[dict[str, Any]], tables: list[dict[str, Any]]) -> list[str]:
    numbers = [str(sum(case["kind"] == kind for case in tables)) for kind in KINDS]
    lines = _head("error relative to", "goal", f"{numbers[0]} held-out tables", f"{numbers[1]} development tables")
    names = {
        "best fixed expert": "the best of all fixed experts in hindsight, geometric mean",
        "worst": "the same, worst table with 1,000 rows or more",
        "BOA on the same experts": "BOA per row on the same experts (regression), geometric mean",
        "best of eight river models": "the best of eight river models in hindsight, geometric mean",
    }
    for key, name in names.items():
        found = []
        for kind in KINDS:
            chosen = [line for line in ratios if line["what"].startswith(kind) and line["subject"] == "SmoothFBO"]
            if key == "worst":
                chosen = [line for line in chosen if "worst" in line["what"]]
            else:
                chosen = [line for line in chosen if line["reference"] == key and "worst" not in line["what"]]
            found += chosen[:1]
        values = [f"{line['value']:.3f}" + ("" if "river" in key else f" ({_range(line)})") for line in found]
        values += ["–"] * (len(KINDS) - len(values))
        lines.append(_row(name, found[0]["goal"], *values))
    return lines


def each(cases: Any) -> list[str]:
    lines = _head("table", "rows", "of the best fixed expert (95 %)", "which is", "of BOA", "of the best river model")
    for case in cases:
        boa = f"{case['ratio_to_boa']:.3f}" if "ratio_to_boa" in case else "–"
        river = f"{case['ratio_to_river']:.3f} ({case['river_best']})" if "river" in case else "–"
        ratio = f"{case['ratio']:.3f} ({_range(case)})"
        lines.append(_row(case["table"], f"{case['rows']:,}", ratio, case["best"].replace("_", " "), boa, river))
    return lines


def bands(cases: list[dict[str, Any]]) -> list[str]:
    lines = _head("table", "rows", "50 %", "80 %", "95 %")
    for case in cases:
        lines.append(_row(case["table"], f"{case['covered_rows']:,}", *(f"{part:.1f}" for part in case["covered"])))
    return lines


def jumps(cases: list[dict[str, Any]]) -> list[str]:
    lines = _head(
        "jumps every", "size", "horizon", "of the best fixed expert", "rows until recovered", "learned memory alone"
    )
    for case in cases:
        lines.append(
            _row(
                f"{case['jumps every']:,} rows",
                f"{case['size']:g}",
                str(case.get("horizon", 1)),
                f"{case['ratio']:.3f} ({min(case['ratios']):.3f} to {max(case['ratios']):.3f})",
                f"{case['recovered_after']}",
                f"{case['learned_memory']:.2f}",
            )
        )
    return lines


def events(cases: list[dict[str, Any]]) -> list[str]:
    lines = _head("at row 3,000", *(f"rows {span} after" for span in SPANS))
    for case in cases:
        lines.append(_row(case["event"], *(f"{case[f'excess of rows {span} after']:.3f}" for span in SPANS)))
    return lines


def alarms(cases: list[dict[str, Any]]) -> list[str]:
    lines = _head("noise", "rows", "false alarms")
    return lines + [_row(case["noise"], f"{case['rows']:,}", str(case["alarms"])) for case in cases]


def learned_memory(content: dict[str, Any]) -> tuple[float, float]:
    """Its error over that of the best fixed expert, and BOA with it over BOA without; regression, held-out tables."""
    cases = [case for case in content["cases"] if case.get("kind") == "held out" and "boa" in case]
    alone = [case["errors"]["learned_memory"] / case["errors"][case["best"]] for case in cases]
    added = [case["boa"] / case["boa_without_learned_memory"] for case in cases]
    return float(np.exp(np.mean(np.log(alone)))), float(np.exp(np.mean(np.log(added))))


def _range(values: dict[str, Any]) -> str:
    return f"{values['low']:.3f} to {values['high']:.3f}"


def _head(*names: str) -> list[str]:
    return [_row(*names), "|---|" + "---:|" * (len(names) - 1)]


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    content = stored()
    print("\n\n".join("\n".join(table) for table in page(content)))
    alone, added = learned_memory(content)
    print(f"\nlearned memory: {alone:.2f} of the best fixed expert; BOA with it {added:.4f} of BOA without")


if __name__ == "__main__":
    main()
