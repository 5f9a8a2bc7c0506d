"""Whatever arrives in small pieces costs as much as in large ones: each byte is searched and copied once."""

import asyncio
import re
from typing import Any

import pytest

from gateway.rig import Engine, Peer, engine, front
from tidegate.gateway import bodies, heads, request_heads
from tidegate.gateway.bodies import MAX_HELD_BYTES, Events
from tidegate.gateway.heads import CHUNKED, UNTIL_CLOSE
from tidegate.gateway.request_heads import RequestHeads
from tidegate.gateway.sse import CHAT_STREAM

PIECE = 50


class Searches:
    """Counts the bytes that `last_end` is given, and that a pattern looks at."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.bytes = 0

    def __call__(self, data: bytes, start: int = 0) -> int:
        self.bytes += len(data) - start
        return int(self.real(data, start))

    def search(self, data: bytes, start: int = 0, end: int = 1 << 30) -> re.Match[bytes] | None:
        self.bytes += min(end, len(data)) - start
        found: re.Match[bytes] | None = self.real.search(data, start, end)
        return found


def pieces_of(data: bytes) -> list[bytes]:
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


@pytest.mark.parametrize("length", [CHUNKED, UNTIL_CLOSE])
@pytest.mark.parametrize("size", [200_000, MAX_HELD_BYTES + 200_000])
def test_of_a_long_event_only_what_is_new_is_searched(size: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(bodies.last_end)
    monkeypatch.setattr(bodies, "last_end", searches)
    body, event = Events(length, CHAT_STREAM, plain=True), b"data: " + b"x\n" * (size // 2) + b"\n"
    out = []
    for piece in pieces_of(event + b"data: next"):
        out.append(body.feed(b"%x\r\n%b\r\n" % (len(piece), piece) if length == CHUNKED else piece))
    assert b"".join(out) == event
    assert body.rest() == b"data: next"
    assert searches.bytes < 1.2 * len(event)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\n\r\n", b"\r\r"])
@pytest.mark.parametrize("cut", range(1, 6))
def test_an_end_that_arrives_in_two_pieces_is_found(end: bytes, cut: int) -> None:
    body, stream = Events(UNTIL_CLOSE, CHAT_STREAM), b"data: first" + end
    assert body.feed(b"data: ") == b""
    assert body.feed(stream[6:-cut]) + body.feed(stream[-cut:]) == stream
    assert body.rest() == b""


def test_of_a_request_s_head_only_what_is_new_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = 0

    class Buffer(bytearray):
        def find(self, sub: Any, start: Any = 0, end: Any = None) -> int:
            nonlocal searched
            searched += len(self) - start
            return super().find(sub, start)

    monkeypatch.setattr(request_heads, "bytearray", Buffer, raising=False)
    waiting = RequestHeads()
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 200) for number in range(100))
    head = b"GET /v1/x HTTP/1.1\r\nHost: e\r\n" + fields + b"\r\n"
    found = None
    for at in range(len(head)):
        assert found is None
        waiting.add(head[at : at + 1])
        found = waiting.next_head()
        if found is None:
            waiting.check_partial()
    assert found is not None
    assert len(found.fields) == 101
    # For its end and for a bare LF, each with an overlap of three bytes.
    assert len(head) < searched <= 8 * len(head)


async def test_of_a_response_s_head_only_what_is_new_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = Searches(heads._UNSAFE)
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 200) for number in range(100))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + fields + b"\r\n"

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        monkeypatch.setattr(heads, "_UNSAFE", searches)
        for at in range(0, len(head), 7):
            await peer.send(head[at : at + 7])
            await asyncio.sleep(0.001)
        await peer.send(b"ok")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("GET", "/v1/x")
        assert (heard.head.status_code, heard.body, heard.fields[b"x-99"]) == (200, b"ok", b"y" * 200)
        # In pieces, and as a whole when it is parsed.
        assert 2 * len(head) < searches.bytes < 4 * len(head)
        client.close()
