"""Pages in a real browser, where there is one."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

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
  const fold = document.querySelector("details");
  if (fold && fold.querySelector(".chart")) {
    fold.open = true;
    const inside = fold.querySelector(".chart"); Plotly.Plots.resize(inside);
    seen.folded = inside.querySelector(".main-svg").getBoundingClientRect().width;
  }
  seen.lead = [...document.querySelectorAll("main > figure")].map(figure =>
    figure.querySelector(".chart .main-svg") ? "chart" : figure.querySelector("table") ? "table" : "picture");
  const colour = name => getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3).map(Number);
  seen.background = colour("backgroundColor"); seen.ink = colour("color");
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


def call(folder, page, *options):
    """The browser with these options; `folder` is for its own files. Returns what it printed."""
    result = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=15000", *options, f"file://{page}",
        ],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    return result.stdout


def look_at(path, folder, size="1200,900", *, dark=False):
    """What a browser makes of a page."""
    page = path.read_text()
    watched = folder / "watched.html"
    watched.write_text(page.replace("<head>", "<head>" + WATCH).replace("</body>", PROBE + "</body>"))
    darkness = ["--blink-settings=preferredColorScheme=0"] if dark else []
    printed = call(folder, watched, f"--window-size={size}", *darkness, "--dump-dom")
    return json.loads(unescape(printed.split('<pre id="seen">')[1].split("</pre>")[0]))


def check_study_page(path, folder, size="1200,900", *, dark=False):
    """A study's page opens with a chart and a table, without an error and without a horizontal scroll bar."""
    seen = look_at(path, folder, size, dark=dark)
    assert seen["errors"] == []
    assert seen["lead"][:2] == ["chart", "table"]
    assert "picture" not in seen["lead"]
    assert not seen["wide"]


def printed_pages(path, folder):
    """How many sheets of paper a page fills."""
    file = folder / "page.pdf"
    call(folder, path, f"--print-to-pdf={file}")
    content = file.read_bytes()
    assert content.startswith(b"%PDF")
    return len(re.findall(rb"/Type\s*/Page\b", content))


needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="needs chromium (Debian's package of that name)"
)
