"""Everything that Tidegate raises on purpose.

    TidegateError
    |-- InvalidSpec          fields of an LLMService: the user has to change them
    |-- ClusterError         the API server did not do what was asked
    |   |-- NotFound         404: the object is gone; a delete has succeeded
    |   |-- Conflict         409, or a failed `test` of a JSON patch: read again and decide again
    |   |-- Denied           401 or 403: refused by RBAC or an admission policy; the text is the server's
    |   |-- Rejected         400 or 422: the object is invalid; `causes` holds (field, message)
    |   `-- Unavailable      429, 5xx or no answer: the write may or may not have happened
    |-- TemplateRefused      the dry run of a new revision was refused; `causes` holds (field, message)
    |-- CannotListen         this process cannot listen on an address: the user has to give another one
    `-- PodTrouble           a pod does not answer, or its answer is not valid
        |-- KeyRefused       401: the pod does not accept the key, or no longer does
        `-- TooLate          409 to an undrain: the pod is sealed, or drains under another id

Handlers decide by the branch: InvalidSpec and TemplateRefused become conditions, Conflict causes a pass at once, the
others a pass after a backoff; PodTrouble never leaves its session. Users read the texts: each names field and remedy.
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
    """Invalid fields of the LLMService, all of them at once.

    The schema refuses the same at apply; this is for objects that were stored under another version of the CRD, and for
    files.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class ClusterError(TidegateError):
    """The API server did not do what was asked."""


class NotFound(ClusterError):
    """The object does not exist."""


class Conflict(ClusterError):
    """The object has changed since the decision was made."""


class Denied(ClusterError):
    """Refused by RBAC or admission; a retry is useless until the cause is fixed."""


class Rejected(ClusterError):
    """The object is invalid: `causes` holds (field, message) as the API server gave them."""

    def __init__(self, message: str, causes: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)


class Unavailable(ClusterError):
    """No answer, or the server is overloaded. `retry_after` is what the server asks for, in seconds, or None."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TemplateRefused(TidegateError):
    """The API server refused the dry run of a new revision; `causes` holds (field, message)."""

    def __init__(self, causes: Iterable[tuple[str, str]]) -> None:
        self.causes = tuple(causes)
        super().__init__("; ".join(f"{field}: {message}" if field else message for field, message in self.causes))


class CannotListen(TidegateError):
    """The operating system does not let this process listen on an address."""


class PodTrouble(TidegateError):
    """A pod does not answer, or its answer is not valid.

    `kind` is one word, for metrics and decisions. The text is for people and never contains anything that a pod sent.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class KeyRefused(PodTrouble):
    """The pod does not accept the key."""


class TooLate(PodTrouble):
    """The pod cannot be undrained under this id."""
