"""The one error that people see: a sentence that says what is wrong and what to do."""


class ClusterError(Exception):
    """Something the user can act on. Its text is printed as it is, without a traceback."""


class Interrupted(ClusterError):
    """The user or the system told us to stop."""
