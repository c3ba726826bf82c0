"""`smoothfbo theory`."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path

from smoothfbo.studies.theory.config import TheoryConfig


@dataclass(frozen=True)
class Theory(TheoryConfig):
    __doc__ = TheoryConfig.__doc__

    out: Path = Path("out/theory")
    """Folder for summary.json, config.json, metrics.parquet (and growth, decomposition) and figures/."""

    def run(self, command: str) -> int:
        import jax
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        from smoothfbo.harness import store
        from smoothfbo.harness.console import make_console
        from smoothfbo.studies.theory import growth, statements
        from smoothfbo.studies.theory import program as theory
        from smoothfbo.studies.theory import report as report

        config = TheoryConfig(**{field.name: getattr(self, field.name) for field in fields(TheoryConfig)})
        folder = store.prepare(self.out)
        console = make_console()
        columns = (TextColumn("{task.description:42s}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, Remaining(), console=console, transient=True) as progress:
            task = progress.add_task("compiling", total=1.0)

            def tell(name: str, done: float) -> None:
                progress.update(task, description=name, completed=done)
                if not console.is_terminal:
                    print(f"{100 * done:3.0f} % {name}", file=sys.stderr, flush=True)

            results = theory.run_theory(config, tell)
        records = statements.as_records(results.checks)
        slopes = growth.growth_slopes(results.growth).to_dict("records")
        description = store.describe_run("theory", command, config, [str(d) for d in jax.devices()])
        store.write_json(folder / "config.json", description)
        store.write_json(folder / "summary.json", {"checks": records, "growth_slopes": slopes})
        store.write_table(folder / "metrics.parquet", results.lanes)
        store.write_table(folder / "growth.parquet", results.growth)
        store.write_table(folder / "decomposition.parquet", results.decomposition)
        figures = report.draw(folder)
        for table in (report.statement_table, report.growth_table):
            console.print(table(records))
        console.print(
            f"{folder}: summary.json, config.json, metrics.parquet, growth.parquet, decomposition.parquet and"
        )
        console.print(f"{len(figures)} figures in {folder}/figures")
        failed = [check for check in results.checks if check.holds is False and check.within_assumptions]
        for check in failed:
            console.print(
                f"[red]does not hold:[/] {check.name} ({check.problem} problem, window {check.window}, "
                f"drift {check.drift:g}, α·L = {check.step:g}): {check.lhs:.6g} against {check.rhs:.6g}"
            )
        return 1 if failed else 0
