"""Errors that the user can fix."""


class UsageError(ValueError):
    """A wrong option, folder or file, as one sentence that names an option in backticks.

    The command line prints it, with options as flags, and exits with status 2.
    """
