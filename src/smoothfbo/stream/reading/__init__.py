"""Tables that arrive row by row: files and standard input, read block by block with constant memory."""

from smoothfbo.stream.reading.features import Encoder
from smoothfbo.stream.reading.inference import infer_schema
from smoothfbo.stream.reading.reader import open_table
from smoothfbo.stream.reading.schema import Column, Schema

__all__ = ["Column", "Encoder", "Schema", "infer_schema", "open_table"]
