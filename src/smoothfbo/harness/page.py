"""The page of a run: one file that needs nothing else, interactive, readable on a phone."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from smoothfbo.harness import store
from smoothfbo.harness.charts import Chart, HeatMap, as_plotly, draw


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers; numbers may come as (value, text) so that they sort by value."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Picture:
    """A file that a browser shows, such as an animation; it becomes a part of the page."""

    title: str
    caption: str
    file: Path


@dataclass(frozen=True)
class Section:
    title: str
    text: Sequence[str] = ()  # paragraphs
    parts: Sequence[Table | Picture | Chart | HeatMap] = ()


def write_page(path: Path, title: str, summary: str, sections: Sequence[Section]) -> None:
    """The page, and all its charts as files in figures/ beside it. All text is escaped: a name may hold anything."""
    from plotly.offline import get_plotlyjs

    figures = store.prepare(path.parent / "figures")
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, (Chart, HeatMap)):
            draw(part, figures)
    charts: list[dict[str, Any]] = []
    body = "".join(_section(section, charts) for section in sections)
    data = json.dumps(charts, allow_nan=False).replace("<", "\\u003c")  # no tag of any kind, whatever a name holds
    # The library is the last thing but one, so that text and tables are there before four megabytes are read.
    page = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title><style>{_STYLE}</style></head>
<body><main><h1>{escape(title)}</h1><p class="summary">{escape(summary)}</p>
{body}</main>
<script id="charts" type="application/json">{data}</script>
<script>{get_plotlyjs()}</script>
<script>{_SCRIPT}</script></body></html>
"""
    store.write(path, lambda file: file.write_text(page, encoding="utf-8"))


def estimate_text(value: dict[str, Any] | None) -> str:
    """A mean with its interval."""
    if value is None or value["mean"] is None:
        return ""
    return f"{value['mean']:.3g}" + ("" if value["low"] is None else f" [{value['low']:.3g}, {value['high']:.3g}]")


def estimate_cell(value: dict[str, Any] | None) -> tuple[float, str] | None:
    """The same for a table, where it sorts by the mean."""
    text = estimate_text(value)
    return (value["mean"], text) if value is not None and text else None


def repeat_section(description: dict[str, Any]) -> Section:
    """All that is needed to repeat the run, from its config.json."""
    facts = [f"{name}: {value}" for name, value in description.items() if not isinstance(value, dict)]
    facts += [f"versions: {', '.join(f'{name} {version}' for name, version in description['versions'].items())}"]
    options = [
        (name, " ".join(map(str, value)) if isinstance(value, list) else str(value))
        for name, value in description["config"].items()
    ]
    return Section("How to repeat it", facts, [Table("Configuration", "Complete.", ("option", "value"), options)])


def _section(section: Section, charts: list[dict[str, Any]]) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in section.text)
    parts = "".join(_part(part, charts) for part in section.parts)
    return f"<section><h2>{escape(section.title)}</h2>{paragraphs}{parts}</section>"


def _part(part: Table | Picture | Chart | HeatMap, charts: list[dict[str, Any]]) -> str:
    if isinstance(part, Table):
        return _table(part)
    return _picture(part) if isinstance(part, Picture) else _chart(part, charts)


def _picture(picture: Picture) -> str:
    content = base64.b64encode(picture.file.read_bytes()).decode("ascii")
    source = f"data:image/{picture.file.suffix.removeprefix('.')};base64,{content}"
    return (
        f'<figure><h3>{escape(picture.title)}</h3><img alt="{escape(picture.title)}" src="{source}">'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _chart(chart: Chart | HeatMap, charts: list[dict[str, Any]]) -> str:
    charts.append(as_plotly(chart))
    return (
        f'<figure><h3>{escape(chart.title)}</h3><div class="chart" id="chart-{len(charts) - 1}"></div>'
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th><button type="button">{escape(str(column))}</button></th>' for column in table.columns)
    rows = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in table.rows)
    return (
        f"<figure><h3>{escape(table.title)}</h3><div class='scroll'><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div><figcaption>{escape(table.caption)}</figcaption></figure>"
    )


def _cell(value: Any) -> str:
    value, text = value if isinstance(value, tuple) else (value, None)
    if isinstance(value, (int, float)):
        return f'<td data-value="{value}">{escape(f"{value:.4g}" if text is None else text)}</td>'
    return f"<td>{escape('' if value is None else str(value))}</td>"


_STYLE = """
:root{color-scheme:light}
body{margin:0;background:#fafafa;color:#1d1d1f;font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:62rem;margin:0 auto;padding:1rem}
h1{font-size:1.6rem;margin:.5rem 0}h2{margin:2rem 0 .5rem;border-bottom:1px solid #ddd;padding-bottom:.2rem}
h3{font-size:1rem;margin:.2rem 0}
.summary{color:#555}
figure{margin:1rem 0;padding:.8rem;background:#fff;border:1px solid #e5e5e5;border-radius:.5rem}
figcaption{font-size:.88rem;color:#555;margin-top:.4rem}
.chart{width:100%;min-height:420px}
.scroll{overflow-x:auto;max-height:34rem}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}
th,td{padding:.25rem .6rem;text-align:right;white-space:nowrap;border-bottom:1px solid #eee}
td:first-child,th:first-child{text-align:left}
thead th{position:sticky;top:0;background:#f3f3f5}
th button{all:unset;cursor:pointer;font-weight:600}th button:focus-visible{outline:2px solid #0072b2}
th[aria-sort=ascending] button::after{content:" ▲"}th[aria-sort=descending] button::after{content:" ▼"}
code{overflow-wrap:anywhere}
"""

_SCRIPT = """
"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
charts.forEach((chart, index) => Plotly.newPlot("chart-" + index, chart.data, chart.layout,
  {responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"]}));
document.querySelectorAll("th button").forEach(button => button.addEventListener("click", () => {
  const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
  const column = [...head.parentElement.children].indexOf(head);
  const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  table.querySelectorAll("th").forEach(other => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
  const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => {
    const x = key(a), y = key(b), difference = parseFloat(x) - parseFloat(y);
    return direction * (Number.isNaN(difference) ? String(x).localeCompare(String(y)) : difference);
  };
  body.append(...[...body.rows].sort(compare));
}));
"""
