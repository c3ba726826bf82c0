"""What `smoothfbo.testbeds` was called before version 1.0: importing it says so in one line."""

from smoothfbo.errors import renamed_attributes

renamed_attributes("smoothfbo", {"streams": "smoothfbo.testbeds"})("streams")
