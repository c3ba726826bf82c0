"""The product for drifting tables: predict every row before its target is used, learn how much past to trust."""

from smoothfbo.errors import renamed_attributes

# Before version 1.0 this was the name of the module of sources.
__getattr__ = renamed_attributes(
    __name__,
    {
        "AbstractStream": "smoothfbo.source.AbstractSource",
        "FunctionStream": "smoothfbo.source.FunctionSource",
        "RecordedStream": "smoothfbo.source.RecordedSource",
        "as_stream": "smoothfbo.source.as_source",
    },
)
