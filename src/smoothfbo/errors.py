"""Errors that the user can mend."""


class UsageError(Exception):
    """A wrong option, folder or file, as one sentence; the command line prints it and exits with status 2."""
