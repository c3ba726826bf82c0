"""The tables of a stream's run, written portion by portion while it goes on."""

from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from smoothfbo.errors import UsageError


class StreamFolder:
    """Appends to predictions.parquet and blocks.parquet; the files appear, complete, when it is closed.

    with StreamFolder(folder) as sink:
        results = run_stream(config, sink)
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._writers: dict[str, pq.ParquetWriter] = {}

    def predictions(self, table: pa.Table) -> None:
        self._write("predictions", table)

    def blocks(self, table: pa.Table) -> None:
        self._write("blocks", table)

    def _write(self, name: str, table: pa.Table) -> None:
        try:
            if name not in self._writers:
                # Numbers hardly repeat: dictionaries would cost time and save nothing.
                text: Any = [field.name for field in table.schema if pa.types.is_string(field.type)]
                path = self.folder / f".partial-{name}.parquet"
                self._writers[name] = pq.ParquetWriter(path, table.schema, use_dictionary=text)
            self._writers[name].write_table(table)
        except OSError as error:
            raise UsageError(f"{self.folder / name}.parquet cannot be written: {error.strerror or error}.") from error

    def __enter__(self) -> "StreamFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, writer in self._writers.items():
            writer.close()
            (self.folder / f".partial-{name}.parquet").replace(self.folder / f"{name}.parquet")
