"""What the documents are compared with: the stored results, and pages as one line of text."""

import json
from functools import cache
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "results"


@cache
def stored(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


@cache
def text_of(page):
    """The page on one line, without bold print."""
    return " ".join((DOCS / page).read_text().replace("**", "").split())


def missing(page, *texts):
    """Those of the texts that the page does not have; minus signs are those of print."""
    return [text for text in texts if text.replace("-", "−") not in text_of(page).replace("-", "−")]


def row(*cells):
    return f"| {' | '.join(cells)} |"
