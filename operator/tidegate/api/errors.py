"""Everything that Tidegate raises on purpose.

    TidegateError
    |-- Invalid              the user has to change something; trying again does not help
    |   |-- InvalidSpec      the LLMService's own fields
    |   |-- TemplateConflict something in the pod template that Tidegate has to decide itself
    |   `-- NameConflict     an object that Tidegate needs to create exists and is not its own
    |-- Denied               admission or RBAC refused a write: no retry before the cause is gone
    |-- Conflict             the object changed since it was read: read again, decide again
    `-- Transient            network, time-out, overload: the same call later may succeed

Whoever catches one decides by the branch: Invalid becomes a condition, Conflict a requeue at once, Transient a requeue
with backoff. Messages name the field and the remedy, since they reach users through conditions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class TidegateError(Exception):
    """Root of the tree; never raised itself."""


class Invalid(TidegateError):
    """What was asked for cannot be done until a person changes it. Its text is fit for a condition's message."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a resource: the path of the field as the user writes it, and what to write instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidSpec(Invalid):
    """Fields of the LLMService that the operator cannot work with, all of them at once.

    The schema refuses the same at apply; this is for objects stored under another version of the CRD and for files.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class TemplateConflict(Invalid):
    """The pod template sets what Tidegate sets: `field` is the path, `remedy` what to do instead."""

    def __init__(self, field: str, message: str, remedy: str) -> None:
        self.field, self.message, self.remedy = field, message, remedy
        super().__init__(f"{field}: {message}; {remedy}")


class NameConflict(Invalid):
    """An object of the name that Tidegate needs belongs to somebody else: it is left alone."""


class Denied(TidegateError):
    """The API server refused a write by admission or RBAC; the text is the server's."""


class Conflict(TidegateError):
    """The object is not as it was when the decision was taken (409, or a failed precondition)."""


class Transient(TidegateError):
    """The call may succeed later: time-outs, refused connections, 429, 5xx.

    `retry_after` is the server's own wish in seconds, or None.
    """

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)
