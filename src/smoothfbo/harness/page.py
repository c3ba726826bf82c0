"""The page of a run: the result first, then the evidence; one file that needs nothing else, on any screen."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from smoothfbo.harness import folders, store
from smoothfbo.harness.charts import Chart, HeatMap, draw
from smoothfbo.harness.interactive import as_plotly

GOOD, BAD, OPEN = "good", "bad", "open"
LONGEST_CELL = 48  # letters; longer text is broken into lines


@dataclass(frozen=True)
class Verdict:
    """A cell that says how something turned out, in words and in a colour."""

    text: str
    kind: str  # GOOD, BAD or OPEN

    @classmethod
    def of(cls, verdict: str, text: str) -> "Verdict":
        """A claim that holds, fails or is open."""
        return cls(text, {"holds": GOOD, "fails": BAD}.get(verdict, OPEN))


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


Part = Table | Picture | Chart | HeatMap


@dataclass(frozen=True)
class Section:
    """A part of the page. What is `folded` is for those who look it up: long tables, settings."""

    title: str
    text: Sequence[str] = ()  # paragraphs
    parts: Sequence[Part] = ()
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """`result` is one sentence; `lead` is the one picture and the one table to look at; `setting` says what was run."""

    title: str
    result: str
    setting: str
    lead: Sequence[Part]
    sections: Sequence[Section]


def write_page(path: Path, page: Page) -> None:
    """The page, and all its charts as files in figures/ beside it. All text is escaped: a name may hold anything."""
    from plotly.offline import get_plotlyjs

    figures = store.prepare(path.parent / "figures")
    every = [*page.lead, *(part for section in page.sections for part in section.parts)]
    for part in {part.name: part for part in every if isinstance(part, (Chart, HeatMap))}.values():
        draw(part, figures)
    charts: list[dict[str, Any]] = []
    lead = "".join(_part(part, charts) for part in page.lead)
    body = "".join(_section(section, charts) for section in page.sections)
    data = json.dumps(charts, allow_nan=False).replace("<", "\\u003c")  # no tag of any kind, whatever a name holds
    lost = folders.read_missing(path.parent)
    missing = "".join(f'<p class="missing">Missing: {escape(text)}.</p>\n' for text in lost)
    # The library is the last thing but one, so that text and tables are there before four megabytes are read.
    text = f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(page.title)}</title><style>{_asset("page.css")}</style></head>
<body><main><header><h1>{escape(page.title)}</h1><p class="result">{escape(page.result)}</p></header>
{missing}{lead}<p class="setting">{escape(page.setting)}</p>
{body}</main>
<script id="charts" type="application/json">{data}</script>
<script>{get_plotlyjs()}</script>
<script>{_asset("page.js")}</script></body></html>
"""
    store.write(path, lambda file: file.write_text(text, encoding="utf-8"))


def estimate_text(value: dict[str, Any] | None) -> str:
    """A mean with its interval."""
    if value is None or value["mean"] is None:
        return ""
    return f"{value['mean']:.3g}" + ("" if value["low"] is None else f" [{value['low']:.3g}, {value['high']:.3g}]")


def estimate_cell(value: dict[str, Any] | None) -> tuple[float, str] | None:
    """A mean with its interval as a cell of a table, which sorts by the mean."""
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
    table = Table("Configuration", "Complete.", ("option", "value"), options)
    return Section("How to repeat it", facts, [table], folded=True)


def _asset(name: str) -> str:
    return (resources.files("smoothfbo.harness") / name).read_text(encoding="utf-8")


def _section(section: Section, charts: list[dict[str, Any]]) -> str:
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in section.text)
    inside = paragraphs + "".join(_part(part, charts) for part in section.parts)
    title = escape(section.title)
    if section.folded:
        return f"<details><summary>{title}</summary>{inside}</details>"
    return f"<section><h2>{title}</h2>{inside}</section>"


def _part(part: Part, charts: list[dict[str, Any]]) -> str:
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
    if isinstance(value, Verdict):
        return f'<td class="{value.kind}"><span>{escape(value.text)}</span></td>'
    value, text = value if isinstance(value, tuple) else (value, None)
    if isinstance(value, (int, float)):
        return f'<td data-value="{value}">{escape(f"{value:.4g}" if text is None else text)}</td>'
    words = "" if value is None else str(value)
    kind = ' class="words"' if len(words) > LONGEST_CELL else ""
    return f"<td{kind}>{escape(words)}</td>"
