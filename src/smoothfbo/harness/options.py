"""What the commands of all studies have in common. No jax here: `--help` must be quick."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunOptions:
    """The last base of a command, so that its options come first."""

    preset: str
    out: Path | None = None
    """Folder of the run: config.json, metrics.parquet, lanes.parquet, summary.json, figures/, report.html.
    Default: out/COMMAND-PRESET."""
    tensorboard: bool = False
    """Also write TensorBoard files, into the folder's tensorboard/."""

    def folder(self, command: str) -> Path:
        return self.out or Path(f"out/{command}-{self.preset}")
