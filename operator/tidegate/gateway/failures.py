"""How requests can fail: each failure's status, its code for clients and its label in the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus

from tidegate.contract.token import Shutdown


@dataclass(frozen=True, slots=True)
class Kind:
    """A status, and the fields of the error: code, type and message."""

    status: int
    code: str
    type: str
    message: str


class Failure(Enum):
    """The classes of failures; the lower-case name is the label in the metrics.

    Clients of the OpenAI API retry 5xx, 408, 409 and 429 by themselves if no byte of the response has arrived.
    """

    CONNECT = Kind(502, "upstream_connect_failed", "server_error", "cannot connect to the engine")
    IDLE = Kind(504, "upstream_idle_timeout", "timeout_error", "the engine stopped sending its response")
    TOTAL = Kind(504, "total_timeout", "timeout_error", "the total time of the request is up")
    CLIENT_GONE = Kind(499, "client_gone", "invalid_request_error", "the client disconnected or stalled")
    UPSTREAM_RESET = Kind(502, "upstream_reset", "server_error", "the engine's connection was lost")
    UPSTREAM_INVALID = Kind(502, "upstream_invalid", "server_error", "the engine's response is not valid HTTP/1.1")
    DRAINED = Kind(503, "server_draining", "server_error", "this server is draining; retry")

    @property
    def label(self) -> str:
        """The failure's label in the metrics."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """The error that a client gets in place of its response; `dialects` writes it in the format of the client's API.

    `error`: message, type, param and code, as OpenAI names them, and further fields; `top_level`: fields that are
    repeated beside the error, for clients that read the object itself.
    """

    status: int
    error: dict[str, object]
    top_level: dict[str, object] = field(default_factory=dict)


def error_reply(kind: Kind, detail: str = "", request_id: str = "") -> ErrorReply:
    """The error for a failure or refusal of this kind."""
    fields: dict[str, object] = {
        "message": f"{kind.message}: {detail}" if detail else kind.message,
        "type": kind.type,
        "param": None,
        "code": kind.code,
    }
    if request_id:
        fields["requestId"] = request_id
    return ErrorReply(kind.status, fields)


def shutdown(token: Shutdown) -> ErrorReply:
    """The error that carries a shutdown token: a 503 before the response has begun, else the last event of a stream."""
    return ErrorReply(503, token.error(), token.fields())


def bad_request(status: int, message: str) -> ErrorReply:
    """The error for an invalid request, independent of the gateway's state."""
    return error_reply(Kind(status, "invalid_request", "invalid_request_error", message))


def response(status: int, body: bytes, *, close: bool, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A JSON response of the gateway itself."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Client Closed Request"
    fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers]
    if close:
        fields.append(("Connection", "close"))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.1 {status} {phrase}\r\n{head}\r\n".encode("latin-1") + body
