"""The shutdown token: says that the server stops, not that the answer is over.

Its form is what real clients were seen both to survive and to notice: one `data:` line whose object has `error` as its
first key, the fields inside it and again beside it, then `[DONE]`. No `event:` and no `id:` line, which break some. The
other APIs have error events of their own, which carry the same fields; the gateway knows them.

The resume token in it is `tgr1.PAYLOAD.SIGNATURE`, both in base64url without padding. PAYLOAD is JSON with `id` (the
request), `path`, `n` (tokens generated) and `at` (Unix seconds); SIGNATURE is HMAC-SHA256 of `tgr1.PAYLOAD` under a key
derived from the service's drain key, so any pod of the service can check it and none but them can make one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass

VERSION = "tgr1"
_PURPOSE = b"tidegate resume token v1"
_MESSAGE = "the server is shutting down before the response is complete"


@dataclass(frozen=True, slots=True)
class Shutdown:
    """One token. `resume` is None where there is no key to sign with."""

    reason: str
    request_id: str
    generated: int
    resume: str | None

    def event(self) -> bytes:
        """The bare object as an event of its own, for clients that asked with `Tidegate-Shutdown: event`."""
        return b"event: shutdown\ndata: " + json.dumps(self.fields()).encode() + b"\n\n"

    def document(self) -> dict[str, object]:
        """The body of a 503, and the last event of a stream, for clients of the OpenAI API."""
        return {"error": self.error(), **self.fields()}

    def error(self) -> dict[str, object]:
        """The error, as OpenAI names its members, that carries the fields."""
        return {"message": _MESSAGE, "code": "server_shutdown", "param": None} | self.fields()

    def fields(self) -> dict[str, object]:
        """The bare object; its members stand beside the error as well."""
        return {
            "type": "shutdown",
            "reason": self.reason,
            "requestId": self.request_id,
            "generatedTokens": self.generated,
            "resumeToken": self.resume,
        }


def sign(key: bytes, *, request_id: str, path: str, generated: int, at: float) -> str:
    """A resume token for one cut request; `at` is now, in Unix seconds."""
    claims = {"id": request_id, "path": path, "n": generated, "at": int(at)}
    signed = f"{VERSION}.{_encode(json.dumps(claims, separators=(',', ':')).encode())}"
    return f"{signed}.{_encode(_mac(key, signed))}"


def verify(keys: Iterable[bytes], token: str) -> dict[str, object]:
    """The claims of a token that one of the keys has signed; raises ValueError."""
    signed, _, signature = token.rpartition(".")
    version, _, payload = signed.partition(".")
    try:
        given = _decode(signature)
        good = [hmac.compare_digest(_mac(key, signed), given) for key in keys]
        claims = json.loads(_decode(payload)) if version == VERSION and any(good) else None
    except ValueError:
        claims = None
    if not isinstance(claims, dict):
        raise ValueError("not a resume token that this service has signed")  # noqa: TRY004
    return claims


def _mac(key: bytes, signed: str) -> bytes:
    derived = hmac.digest(key, _PURPOSE, hashlib.sha256)
    return hmac.digest(derived, signed.encode(), hashlib.sha256)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
