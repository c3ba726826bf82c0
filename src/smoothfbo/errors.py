"""Errors that the user can fix."""


class UsageError(ValueError):
    """A wrong option, folder or file, as one sentence; the command line prints it and exits with status 2."""
