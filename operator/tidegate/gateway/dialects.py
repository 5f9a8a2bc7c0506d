"""How each API tells a client of trouble, and how its streams look: OpenAI's, its Responses, and Anthropic's Messages.

A client library raises its own error only for trouble in its own API's form. The forms are those of the APIs' public
references; that the openai and anthropic packages raise for them is said in docs/reference/gateway.md.
"""

from __future__ import annotations

import json
import re
from enum import Enum

from tidegate.gateway.failures import Trouble
from tidegate.gateway.sse import CHAT_STREAM, MESSAGES_STREAM, RESPONSES_STREAM, StreamForm

DONE = b"data: [DONE]\n\n"
_PATH = re.compile(r"/v1/(messages|responses)(?:/|\Z)")
_ANTHROPIC_TYPES = {400: "invalid_request_error", 503: "overloaded_error", 504: "timeout_error"}


class Dialect(Enum):
    """One API, known by the path of the request; everything that is neither of the other two is spoken to as `CHAT`."""

    CHAT = CHAT_STREAM
    RESPONSES = RESPONSES_STREAM
    MESSAGES = MESSAGES_STREAM

    @property
    def stream(self) -> StreamForm:
        return self.value

    def body(self, trouble: Trouble) -> bytes:
        """The JSON of a whole response."""
        return json.dumps(self._messages(trouble) if self is Dialect.MESSAGES else _openai(trouble)).encode()

    def events(self, trouble: Trouble, sequence: int) -> bytes:
        """What ends a stream; `sequence` is the number of its next event, where the API counts them."""
        if self is Dialect.CHAT:
            return b"data: " + self.body(trouble) + b"\n\n" + DONE
        document = self._messages(trouble) if self is Dialect.MESSAGES else _response_event(trouble, sequence)
        return b"event: error\ndata: " + json.dumps(document).encode() + b"\n\n"

    @property
    def after_named(self) -> bytes:
        """What follows a shutdown token that was asked for as an event of its own."""
        return DONE if self is Dialect.CHAT else b""

    @staticmethod
    def _messages(trouble: Trouble) -> dict[str, object]:
        error = trouble.error | {"type": _ANTHROPIC_TYPES.get(trouble.status, "api_error")}
        named = {"request_id": error["requestId"]} if "requestId" in error else {}
        return trouble.beside | {"type": "error", "error": error} | named


def _openai(trouble: Trouble) -> dict[str, object]:
    return {"error": trouble.error} | trouble.beside


def _response_event(trouble: Trouble, sequence: int) -> dict[str, object]:
    # Its own reader wants `type` and the fields on top, its client library raises for `error` alone.
    error = trouble.error
    own = {"type": "error", "code": error["code"], "message": error["message"], "param": None}
    return _openai(trouble) | own | {"sequence_number": sequence}


def dialect_of(path: str) -> Dialect:
    """The API that a request speaks."""
    found = _PATH.search(path)
    if found is None:
        return Dialect.CHAT
    return Dialect.MESSAGES if found[1] == "messages" else Dialect.RESPONSES
