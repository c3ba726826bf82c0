"""The page of a run, also in a real browser."""

import json
import shutil
import subprocess
from html import unescape

import pytest

from smoothfbo.harness.charts import Chart, HeatMap, Series, as_plotly
from smoothfbo.harness.page import Section, Table, write_page

HOSTILE = '<!--<script>document.title="owned"</script>&"\'</script>'
PROBE = """
<script>
window.addEventListener("load", () => setTimeout(() => {
  const head = [...document.querySelectorAll("th button")].find(b => b.textContent === "value");
  const column = () => [...head.closest("table").tBodies[0].rows].map(r => r.cells[1].dataset.value).join(" ");
  const seen = {charts: document.querySelectorAll(".chart .main-svg").length,
    lines: document.querySelectorAll(".chart .scatterlayer .js-line").length,
    heat: document.querySelectorAll(".chart .heatmaplayer image").length,
    title: document.title, errors: window.seenErrors};
  head.click(); seen.rising = column(); head.click(); seen.falling = column();
  seen.wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const note = document.createElement("pre"); note.id = "seen"; note.textContent = JSON.stringify(seen);
  document.body.append(note);
}, 1500));
</script>
"""
WATCH = """<script>window.seenErrors = [];
window.onerror = (message) => window.seenErrors.push(String(message));
for (const kind of ["error", "warn"]) console[kind] = (...words) => window.seenErrors.push(words.join(" "));
</script>"""


def look_at(path, folder, size="1200,900"):
    """What a browser makes of a page; `folder` is for its own files."""
    page = path.read_text()
    watched = folder / "watched.html"
    watched.write_text(page.replace("<head>", "<head>" + WATCH).replace("</body>", PROBE + "</body>"))
    result = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", f"--window-size={size}", "--virtual-time-budget=15000",
            "--dump-dom", f"file://{watched}",
        ],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return json.loads(unescape(result.stdout.split('<pre id="seen">')[1].split("</pre>")[0]))


needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs chromium (Debian's package of that name)"
)


def test_names_in_charts_are_no_tags():
    line = Series(HOSTILE, [0, 1], [1.0, 10.0])
    described = json.dumps(as_plotly(Chart("line", "", "", HOSTILE, HOSTILE, [line])), ensure_ascii=False)
    assert described.count("&lt;script&gt;") == 3
    assert "<" not in described


@needs_browser
@pytest.mark.parametrize("size", ["1200,900", "400,800"])
def test_the_page_works_in_a_browser(tmp_path, size):
    line = Series(HOSTILE, [0, 1, 2], [1.0, 10.0, 100.0], [0.0, 5.0, 90.0], [2.0, 20.0, 110.0])
    parts = [
        Table(HOSTILE, HOSTILE, ("name", "value"), [("a", 10.0), (HOSTILE, 9.0), ("c", (100.0, "1e2"))]),
        Chart("line", HOSTILE, HOSTILE, HOSTILE, "y", [line], log_y=True),
        HeatMap("heat", "heat", "", "x", "y", "z", [0, 1], [0, 1], [[1.0, 2.0], [3.0, float("nan")]]),
    ]
    path = tmp_path / "page.html"
    write_page(path, "Page", HOSTILE, [Section(HOSTILE, [HOSTILE], parts)])
    assert "http://" not in path.read_text().split("<script>")[0]
    seen = look_at(path, tmp_path, size)
    assert seen["errors"] == []
    assert seen["title"] == "Page"
    assert seen["charts"] >= 2
    assert seen["lines"] >= 1
    assert seen["heat"] == 1
    assert not seen["wide"]
    values = [text.split() for text in (seen["rising"], seen["falling"])]
    assert values == [["9.0", "10.0", "100.0"], ["100.0", "10.0", "9.0"]]
