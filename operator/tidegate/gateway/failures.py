"""How a request can fail, each way with its status, its code for clients, and its label in the metrics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus

from tidegate.contract.token import Shutdown


@dataclass(frozen=True, slots=True)
class Kind:
    status: int
    code: str
    type: str
    message: str


class Failure(Enum):
    """The classes; the name is the label in the metrics. `client_gone` and `upstream_invalid` are told to nobody else.

    Clients of the OpenAI API retry 5xx and 409, 408, 429 by themselves as long as no byte of the answer has come.
    """

    CONNECT = Kind(502, "upstream_connect_failed", "server_error", "no connection to the engine")
    IDLE = Kind(504, "upstream_idle_timeout", "timeout_error", "the engine went silent in the middle of its answer")
    TOTAL = Kind(504, "total_timeout", "timeout_error", "the time for the whole request is over")
    CLIENT_GONE = Kind(499, "client_gone", "invalid_request_error", "the client went away, or does not read or send")
    UPSTREAM_RESET = Kind(502, "upstream_reset", "server_error", "the engine broke its answer off")
    UPSTREAM_INVALID = Kind(502, "upstream_invalid", "server_error", "the engine's answer is not HTTP/1.1")
    DRAINED = Kind(503, "server_draining", "server_error", "this server is draining; retry")

    @property
    def label(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a client is told when it does not get its answer; `dialects` says it in the form of the client's API.

    `error`: message, type, param and code, as OpenAI names them, and what more there is to know; `beside`: fields that
    stand beside the error as well, for who reads the object itself.
    """

    status: int
    error: dict[str, object]
    beside: dict[str, object] = field(default_factory=dict)


def trouble(kind: Kind, detail: str = "", request_id: str = "") -> Trouble:
    """A failure or refusal of this kind."""
    fields: dict[str, object] = {
        "message": f"{kind.message}: {detail}" if detail else kind.message,
        "type": kind.type,
        "param": None,
        "code": kind.code,
    }
    if request_id:
        fields["requestId"] = request_id
    return Trouble(kind.status, fields)


def shutdown(token: Shutdown) -> Trouble:
    """The token as what a client is told: before its answer has begun, and as the last event of a stream."""
    return Trouble(503, token.error(), token.fields())


def bad_request(status: int, message: str) -> Trouble:
    """The refusal of a request that cannot be served whatever the state."""
    return trouble(Kind(status, "invalid_request", "invalid_request_error", message))


def response(status: int, body: bytes, *, close: bool, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A whole JSON response of the gateway's own."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Client Closed Request"
    fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), *headers]
    if close:
        fields.append(("Connection", "close"))
    head = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"HTTP/1.1 {status} {phrase}\r\n{head}\r\n".encode("latin-1") + body
