"""What may refuse a request to the API server in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from tidegate.cluster.port import Kind, Object


@dataclass(frozen=True, slots=True)
class Request:
    """What admission sees: DELETE has no `new`. `resource` is the plural, with its subresource after a slash."""

    operation: str
    resource: str
    old: Object
    new: Object | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    namespace: Object = field(default_factory=lambda: {"metadata": {}})


class Gate(Protocol):
    """What may refuse a request before it is stored."""

    def typed(self, kind: Kind, body: Mapping[str, Any]) -> None:
        """Raises Rejected for the body of a server-side apply that has fields which its kind lacks."""

    def refusal(self, request: Request, policies: list[Object]) -> str | None:
        """Why one of the policies, each of them bound to deny, refuses the request; None: all let it pass."""


class OpenGate:
    """Refuses nothing."""

    def typed(self, kind: Kind, body: Mapping[str, Any]) -> None:
        """Every body is well typed."""

    def refusal(self, request: Request, policies: list[Object]) -> str | None:  # noqa: ARG002
        """Every request passes."""
        return None
