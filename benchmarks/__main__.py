"""All benchmarks, one after the other, each in a process of its own; one table of ratios at the end.

    python -m benchmarks              # docs/benchmarks.md says how long the stored run took
    python -m benchmarks --quick      # about 3
    python -m benchmarks --only study hypergradients

Results go to benchmarks/results/NAME.json, figures beside them; a quick run leaves both as they are.
"""

import argparse
import importlib
import subprocess
import sys
import time

from benchmarks import measure

NAMES = ("study", "hypergradients", "functional", "smoothing", "scaling", "loop", "readme", "recommended", "workers")


def run_one(name: str, quick: bool) -> None:
    """A benchmark is a module with `run(quick) -> Result` and `charts(result) -> list[Chart]`."""
    module = importlib.import_module(f"benchmarks.{name}")
    begin = time.perf_counter()
    result = module.run(quick)
    if not quick:
        measure.write(name, result, command=f"python -m benchmarks --only {name}", seconds=time.perf_counter() - begin)
        draw(name)
    show(f"{name} ({time.perf_counter() - begin:.0f} s)", result)


def draw(name: str) -> None:
    """The figures of a stored result."""
    from smoothfbo.harness import charts

    module = importlib.import_module(f"benchmarks.{name}")
    for chart in module.charts(measure.read(name)):
        charts.draw(chart, measure.FOLDER)


def show(title: str, result: measure.Result) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "", "of", "ratio", "range", "goal", "", title=title, title_justify="left")
    marks = {True: "met", False: "missed", None: ""}
    for line in result.ratios:
        spread = f"{line.low:.3g} to {line.high:.3g}"
        table.add_row(line.what, line.subject, line.reference, f"{line.value:.3g}", spread, line.goal, marks[line.met])
    console = Console()
    if not console.is_terminal:
        console.width = 160
    console.print(table)
    for note in result.notes:
        console.print(note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases and repetitions; nothing is written")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", default=NAMES, help=", ".join(NAMES))
    parser.add_argument("--here", action="store_true", help="in this process (with one NAME)")
    parser.add_argument("--draw", action="store_true", help="only draw the figures of the stored results again")
    options = parser.parse_args()
    if options.draw:
        for name in options.only:
            draw(name)
    elif options.here:
        run_one(options.only[0], options.quick)
    else:
        failed = []
        for name in options.only:
            command = [sys.executable, "-m", "benchmarks", "--here", "--only", name, *["--quick"] * options.quick]
            if subprocess.run(command, check=False).returncode != 0:
                failed.append(name)
        if failed:
            sys.exit(f"benchmarks: {', '.join(failed)} failed; the other results stand.")


if __name__ == "__main__":
    main()
