"""The command line. jax is imported only when something runs, so that `--help` answers at once."""

import sys
from dataclasses import dataclass, fields
from pathlib import Path

from smoothfbo.errors import UsageError
from smoothfbo.experiments.config import TheoryConfig


@dataclass(frozen=True)
class Theory(TheoryConfig):
    __doc__ = TheoryConfig.__doc__

    out: Path = Path("out/theory")
    """Folder for summary.json, metrics.parquet and figures/."""

    def run(self) -> int:
        import json

        import jax
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        from smoothfbo.experiments import growth, statements, theory
        from smoothfbo.report import theory as report
        from smoothfbo.runs import store

        config = TheoryConfig(**{field.name: getattr(self, field.name) for field in fields(TheoryConfig)})
        folder = store.prepare(self.out)
        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, 120)
        columns = (TextColumn("{task.description:42s}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, Remaining(), console=console, transient=True) as progress:
            task = progress.add_task("compiling", total=1.0)
            results = theory.run_theory(
                config, lambda name, done: progress.update(task, description=name, completed=done)
            )
        command = f"smoothfbo theory --out {self.out}"
        records = json.loads(json.dumps(statements.as_records(results.checks)).replace("Infinity", "null"))
        slopes = growth.growth_slopes(results.growth).to_dict("records")
        store.write_json(folder / "config.json", store.describe_run(command, config, [str(d) for d in jax.devices()]))
        store.write_json(folder / "summary.json", {"checks": records, "growth_slopes": slopes})
        store.write_table(folder / "metrics.parquet", results.lanes)
        store.write_table(folder / "growth.parquet", results.growth)
        store.write_table(folder / "decomposition.parquet", results.decomposition)
        figures = report.draw(folder)
        for table in (report.statement_table, report.growth_table):
            console.print(table(statements.as_records(results.checks)))
        console.print(f"{folder}/summary.json, metrics.parquet and {len(figures)} figures in {folder}/figures")
        failed = [check for check in results.checks if check.holds is False and check.within_assumptions]
        for check in failed:
            console.print(
                f"[red]does not hold:[/] {check.name} ({check.problem} problem, window {check.window}, "
                f"drift {check.drift:g}, α·L = {check.step:g}): {check.lhs:.6g} against {check.rhs:.6g}"
            )
        return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    try:
        import tyro
    except ImportError:
        print("smoothfbo: the command line needs more packages: pip install 'smoothfbo[experiments]'", file=sys.stderr)
        return 2
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        command = tyro.extras.subcommand_cli_from_dict(
            {"theory": Theory},
            prog="smoothfbo",
            description="Non-stationary functional bilevel optimisation: the paper's experiments and checks.",
            args=arguments,
        )
        return command.run()
    except KeyboardInterrupt:
        print("smoothfbo: stopped; nothing was written", file=sys.stderr)
        return 130
    except UsageError as error:
        print(f"smoothfbo: {error}", file=sys.stderr)
        return 2
