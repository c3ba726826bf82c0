"""Tables that arrive row by row: files and standard input, read block by block with constant memory."""

from smoothfbo.stream.reading.features import Encoder
from smoothfbo.stream.reading.reader import open_table
from smoothfbo.stream.reading.schema import Column, Schema, infer_schema

__all__ = ["Column", "Encoder", "Schema", "infer_schema", "open_table"]
