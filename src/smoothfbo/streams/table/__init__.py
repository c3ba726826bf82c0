"""Tables that arrive row by row: files and standard input, read block by block with constant memory."""

from smoothfbo.streams.table.features import Encoder, Features
from smoothfbo.streams.table.reader import open_table
from smoothfbo.streams.table.schema import Column, Schema, infer_schema

__all__ = ["Column", "Encoder", "Features", "Schema", "infer_schema", "open_table"]
