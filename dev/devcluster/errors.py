"""The one error that people see: a sentence that says what is wrong and what to do."""


class ClusterError(Exception):
    """Something the user can act on. Its text is printed as it is, without a traceback."""
