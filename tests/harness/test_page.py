"""The page of a run, also in a real browser."""

import json

import pytest
from browser import HOSTILE, look_at, needs_browser, printed_pages

from smoothfbo.harness.charts import Chart, HeatMap, Series
from smoothfbo.harness.interactive import as_plotly
from smoothfbo.harness.page import BAD, GOOD, Page, Section, Table, Verdict, write_page


def test_names_in_charts_are_no_tags():
    line = Series(HOSTILE, [0, 1], [1.0, 10.0])
    described = json.dumps(as_plotly(Chart("line", "", "", HOSTILE, HOSTILE, [line])), ensure_ascii=False)
    assert described.count("&lt;script&gt;") == 3
    assert "<" not in described


def test_a_logarithmic_chart_shows_what_is_positive_and_names_its_few_places():
    line = Series("one", [1, 10, 100], [0.0, 1.0, 10.0])
    chart = as_plotly(Chart("line", "", "", "x", "y", [line], log_x=True, log_y=True))
    assert chart["data"][0]["y"] == [None, 1.0, 10.0]  # a zero would be drawn as a fall to the bottom
    assert chart["layout"]["xaxis"]["ticktext"] == ["1", "10", "100"]
    assert not chart["layout"]["showlegend"]
    linear = as_plotly(Chart("line", "", "", "x", "y", [line]))
    assert linear["data"][0]["y"] == [0.0, 1.0, 10.0]
    assert "ticktext" not in linear["layout"]["xaxis"]


def test_a_band_without_its_line_is_in_the_legend_by_itself():
    line = Series("line", [0, 1], [1.0, 2.0])
    band = Series("band", [0, 1], [1.0, 2.0], [0.0, 1.0], [2.0, 3.0], only_band=True)
    traces = as_plotly(Chart("line", "", "", "x", "y", [line, band]))["data"]
    named = [trace["name"] for trace in traces if trace.get("showlegend", True)]
    assert named == ["line", "band"]
    assert [trace["y"] for trace in traces] == [[1.0, 2.0], [0.0, 1.0], [2.0, 3.0]]


LINE = Series(HOSTILE, [0, 1, 2], [1.0, 10.0, 100.0], [0.0, 5.0, 90.0], [2.0, 20.0, 110.0])


def page(folded_title=HOSTILE, **changes):
    parts = [
        Table(HOSTILE, HOSTILE, ("name", "value"), [("a", 10.0), (HOSTILE, 9.0), ("c", (100.0, "1e2"))]),
        HeatMap("heat", "heat", "", "x", "y", "z", [0, 1], [0, 1], [[1.0, 2.0], [3.0, float("nan")]]),
    ]
    verdicts = Table("verdicts", "", ("claim", "w = 1"), [("one", Verdict(HOSTILE, GOOD)), ("two", Verdict("no", BAD))])
    folded = Section(folded_title, parts=[Chart("inside", "inside", "", "x", "y", [LINE])], folded=True)
    content = {
        "title": "Page", "result": HOSTILE, "setting": HOSTILE,
        "lead": [Chart("line", HOSTILE, HOSTILE, HOSTILE, "y", [LINE], log_y=True), verdicts],
        "sections": [Section(HOSTILE, [HOSTILE], parts), folded],
    }  # fmt: skip
    return Page(**content | changes)


def test_the_page_says_the_result_first(tmp_path):
    write_page(tmp_path / "page.html", page("Folded <b>", result="It works."))
    text = (tmp_path / "page.html").read_text().split("<script")[0]
    parts = ("It works.", 'id="chart-0"', ">verdicts<", ">heat<", "<summary>Folded &lt;b&gt;<")
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "http://" not in text
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"line.png", "heat.png", "inside.png"}


@needs_browser
@pytest.mark.parametrize(
    ("size", "dark"),
    [
        ("1200,900", False),
        ("400,800", True),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in (("1200,900", True), ("400,800", False))),
    ],
)
def test_the_page_works_in_a_browser(tmp_path, size, dark):
    path = tmp_path / "page.html"
    write_page(path, page())
    seen = look_at(path, tmp_path, size, dark=dark)
    assert seen["errors"] == []
    assert seen["title"] == "Page"
    assert seen["charts"] >= 2
    assert seen["lines"] >= 1
    assert seen["heat"] == 1
    assert not seen["wide"]
    assert seen["folded"] > 200  # the width of a chart in a fold, once it is opened
    background, ink = (sum(seen[name]) / 3 for name in ("background", "ink"))
    assert (background < 60 < 200 < ink) if dark else (ink < 60 < 200 < background)
    values = [text.split() for text in (seen["rising"], seen["falling"])]
    assert values == [["9.0", "10.0", "100.0"], ["100.0", "10.0", "9.0"]]


@needs_browser
@pytest.mark.usefixtures("no_figures")
def test_folds_are_open_on_paper(tmp_path):
    path = tmp_path / "page.html"
    long = Table("long", "", ("name", "value"), [(f"row {index}", float(index)) for index in range(400)])
    write_page(path, page(sections=[Section("Folded", parts=[long], folded=True)]))
    assert printed_pages(path, tmp_path) >= 6  # the lead fills one
