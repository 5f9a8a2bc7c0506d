"""The error and stream formats of each API: OpenAI's, OpenAI Responses and Anthropic Messages.

A client library raises its own error type only for errors in its own API's format. The formats are those of the APIs'
public references; docs/reference/gateway.md says which client packages were seen to raise for them.
"""

from __future__ import annotations

import json
import re
from enum import Enum

from tidegate.gateway.failures import ErrorReply
from tidegate.gateway.sse import CHAT_STREAM, MESSAGES_STREAM, RESPONSES_STREAM, StreamForm

DONE = b"data: [DONE]\n\n"
# LiteLLM, for one, also serves the Responses API without a version in its path.
_PATH = re.compile(r"(?:/v1|\A(?:/openai)?(?=/responses))/(messages|responses)(?:/|\Z)")
# What vLLM and SGLang answer to a request that they abort, in place of an error.
_ABORTED = {
    "CHAT": re.compile(rb'"finish_reason"\s*:\s*(?:\{\s*"type"\s*:\s*)?"abort"'),
    "RESPONSES": re.compile(rb'"status"\s*:\s*"cancelled"'),
    "MESSAGES": re.compile(rb'"stop_reason"\s*:\s*(?:null|"abort")'),
}
_ANTHROPIC_TYPES = {400: "invalid_request_error", 503: "overloaded_error", 504: "timeout_error"}


class Dialect(Enum):
    """One API, recognized by the path of the request; `CHAT` for everything that is neither of the other two."""

    CHAT = CHAT_STREAM
    RESPONSES = RESPONSES_STREAM
    MESSAGES = MESSAGES_STREAM

    @property
    def stream(self) -> StreamForm:
        """The format of the API's streams."""
        return self.value

    def body(self, reply: ErrorReply) -> bytes:
        """The JSON body of a response."""
        return json.dumps(self._messages(reply) if self is Dialect.MESSAGES else _openai(reply)).encode()

    def is_aborted(self, path: str, body: bytes) -> bool:
        """Whether this JSON, the response to a POST, is what an engine makes of a request that it has aborted."""
        # Another path may tell of a response that its own client has cancelled.
        creates = self is not Dialect.RESPONSES or path.rstrip("/").endswith("/responses")
        return creates and _ABORTED[self.name].search(body) is not None

    def events(self, reply: ErrorReply, sequence: int) -> bytes:
        """The events that end a stream; `sequence` is the number of the next event, where the API numbers them."""
        if self is Dialect.CHAT:
            return b"data: " + self.body(reply) + b"\n\n" + DONE
        document = self._messages(reply) if self is Dialect.MESSAGES else _response_event(reply, sequence)
        return b"event: error\ndata: " + json.dumps(document).encode() + b"\n\n"

    @property
    def after_named(self) -> bytes:
        """What follows a shutdown token that the client requested as a named event."""
        return DONE if self is Dialect.CHAT else b""

    @staticmethod
    def _messages(reply: ErrorReply) -> dict[str, object]:
        error = reply.error | {"type": _ANTHROPIC_TYPES.get(reply.status, "api_error")}
        named = {"request_id": error["requestId"]} if "requestId" in error else {}
        return reply.top_level | {"type": "error", "error": error} | named


def _openai(reply: ErrorReply) -> dict[str, object]:
    return {"error": reply.error} | reply.top_level


def _response_event(reply: ErrorReply, sequence: int) -> dict[str, object]:
    # The API's parser needs `type` and the fields at top level; its client library raises only for `error`.
    error = reply.error
    own = {"type": "error", "code": error["code"], "message": error["message"], "param": None}
    return _openai(reply) | own | {"sequence_number": sequence}


def dialect_of(path: str) -> Dialect:
    """The API that a request uses."""
    found = _PATH.search(path)
    if found is None:
        return Dialect.CHAT
    return Dialect.MESSAGES if found[1] == "messages" else Dialect.RESPONSES
