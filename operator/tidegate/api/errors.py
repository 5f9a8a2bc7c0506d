"""Everything that Tidegate raises on purpose.

    TidegateError
    |-- InvalidSpec          fields of an LLMService: a person has to change them
    |-- ClusterError         the API server's answer is not the wished one
    |   |-- NotFound         404: it is gone; for a delete that means done
    |   |-- Conflict         409, or a failed `test` of a JSON patch: read again, then decide again
    |   |-- Denied           401 or 403: RBAC or an admission policy said no; the text is the server's
    |   |-- Rejected         400 or 422: the object is invalid; `causes` holds (field, message)
    |   `-- Unavailable      429, 5xx, no answer: the write may or may not have happened
    |-- TemplateRefused      a dry run of a new revision was refused; `causes` holds (field, message)
    |-- CannotListen         an address of this process that it cannot have: a person has to give another one
    `-- PodTrouble           a pod that cannot be asked, or an answer that cannot be believed
        |-- KeyRefused       401: the key is not, or no longer, the pod's
        `-- TooLate          409 to an undrain: it is sealed, or drains under another id

Whoever catches one decides by the branch: InvalidSpec and TemplateRefused become conditions, Conflict a pass at once,
the rest a pass after a backoff; PodTrouble never leaves its session. Texts reach users: they name field and remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class TidegateError(Exception):
    """Root of the tree; never raised itself."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a resource: the path of the field as the user writes it, and what to write instead."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidSpec(TidegateError):
    """Fields of the LLMService that the operator cannot work with, all of them at once.

    The schema refuses the same at apply; this is for objects stored under another version of the CRD and for files.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class ClusterError(TidegateError):
    """An answer of the API server that is not the wished one."""


class NotFound(ClusterError):
    """The object is not there."""


class Conflict(ClusterError):
    """The object is not as it was when the decision was taken."""


class Denied(ClusterError):
    """RBAC or admission refused; no use in trying again before the cause is gone."""


class Rejected(ClusterError):
    """The object is invalid: `causes` holds (field, message) as the API server gave them."""

    def __init__(self, message: str, causes: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)


class Unavailable(ClusterError):
    """No answer, or not now. `retry_after` is the server's own wish in seconds, or None."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TemplateRefused(TidegateError):
    """The API server's dry run of a new revision said no; `causes` holds (field, message)."""

    def __init__(self, causes: Iterable[tuple[str, str]]) -> None:
        self.causes = tuple(causes)
        super().__init__("; ".join(f"{field}: {message}" if field else message for field, message in self.causes))


class CannotListen(TidegateError):
    """The operating system refuses an address that this process should listen on."""


class PodTrouble(TidegateError):
    """`kind` is one word for metrics and decisions; the text is for people and wholly ours, never the pod's."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class KeyRefused(PodTrouble):
    """The pod refuses the key."""


class TooLate(PodTrouble):
    """The pod cannot be undrained under this id."""
