"""Whatever arrives in small pieces costs as much as in large ones: each byte is searched and copied once."""

import asyncio
import random
import re
import socket
from typing import Any, cast

import pytest

from gateway.rig import Engine, Peer, echo, engine, front
from tidegate.gateway import bodies, heads, request_heads
from tidegate.gateway.bodies import MAX_HELD_BYTES, Events
from tidegate.gateway.connection import SMALL_READ_BYTES, ClientConnection
from tidegate.gateway.framing import Chunks, FramingError
from tidegate.gateway.heads import CHUNKED, UNTIL_CLOSE
from tidegate.gateway.reading import Reading
from tidegate.gateway.request_heads import RequestHeads
from tidegate.gateway.sse import CHAT_STREAM
from tidegate.gateway.upstream import READ_BYTES, Receiver, UpstreamConnection
from tidegate.gateway.upstream_request import UpstreamRequest

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


async def test_of_an_upload_in_tiny_chunks_each_read_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    writes: list[int] = []
    updated, written = ClientConnection.buffer_updated, UpstreamRequest._write

    def counted_update(self: ClientConnection, nbytes: int) -> None:
        reads.append(nbytes)
        updated(self, nbytes)

    def counted_write(self: UpstreamRequest, data: bytes) -> None:
        writes.append(len(data))
        written(self, data)

    monkeypatch.setattr(ClientConnection, "buffer_updated", counted_update)
    monkeypatch.setattr(UpstreamRequest, "_write", counted_write)
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        sent = random.Random(1).randbytes(50_000)
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n")
        await gate.until(lambda: own.peers)
        reads.clear()
        await client.send(b"".join(b"1\r\n%c\r\n" % byte for byte in sent) + b"0\r\n\r\n")
        await gate.until(lambda: own.heard)
        assert own.heard[0].body == sent
        assert sum(reads) == 6 * len(sent) + 5
        assert len(writes) <= len(reads)
        # Parsing keeps the loop from everybody else: after the first read it goes on in small steps.
        assert max(reads[1:]) <= SMALL_READ_BYTES
        client.close()


@pytest.mark.sockets
async def test_between_two_reads_of_tiny_chunks_everybody_else_has_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    reads: list[int] = []
    updated = ClientConnection.buffer_updated

    def counted(self: ClientConnection, nbytes: int) -> None:
        reads.append(turns)
        updated(self, nbytes)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(ClientConnection, "buffer_updated", counted)
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n")
        counting = asyncio.create_task(count_turns())
        await client.send(b"1\r\nx\r\n" * 50_000 + b"0\r\n\r\n")
        await gate.until(lambda: own.heard)
        assert own.heard[0].body == b"x" * 50_000
        # No two reads in one turn of the loop.
        assert len(reads) == len(set(reads)) > 50
        counting.cancel()
        client.close()


@pytest.mark.sockets
async def test_between_two_full_reads_from_an_engine_everybody_else_has_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    reads: list[int] = []
    updated = UpstreamConnection.buffer_updated
    body = b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n"

    def counted(self: UpstreamConnection, nbytes: int) -> None:
        reads.append(turns)
        updated(self, nbytes)

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)

    monkeypatch.setattr(UpstreamConnection, "buffer_updated", counted)
    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        counting = asyncio.create_task(count_turns())
        await client.send(b"GET /v1/x HTTP/1.1\r\nHost: e\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\n")
        assert await client.reader.readexactly(len(body)) == body
        assert len(reads) == len(set(reads)) > len(body) / READ_BYTES
        counting.cancel()
        client.close()


async def test_large_chunks_are_read_in_large_steps_again(monkeypatch: pytest.MonkeyPatch) -> None:
    views: list[int] = []
    buffer = ClientConnection.get_buffer

    def counted(self: ClientConnection, hint: int) -> memoryview:
        views.append(len(buffer(self, hint)))
        return buffer(self, hint)

    monkeypatch.setattr(ClientConnection, "get_buffer", counted)
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n")
        await client.send(b"1\r\nx\r\n" * 20_000)
        await gate.until(lambda: views and views[-1] == SMALL_READ_BYTES)
        await client.send(b"8000\r\n" + bytes(0x8000) + b"\r\n0\r\n\r\n")
        await gate.until(lambda: own.heard)
        assert len(own.heard[0].body) == 20_000 + 0x8000
        assert views[-1] == READ_BYTES
        client.close()


@pytest.mark.parametrize("seed", range(20))
def test_chunks_are_followed_alike_in_whatever_pieces(seed: int) -> None:
    rng = random.Random(seed)
    parts = [rng.randbytes(rng.choice([1, 1, 2, 15, 16, 300])) for _ in range(200)]
    body = b"".join(
        b"%x%b\r\n%b\r\n" % (len(part), rng.choice([b"", b"", b";a=b"]), part) if part else b"" for part in parts
    )
    body += b"0\r\nX: y\r\n\r\nnext"
    chunks, at, out = Chunks(), 0, b""
    while not chunks.done:
        piece = body[at : at + rng.choice([1, 2, 7, 100, 5000])]
        at += len(piece)
        out += b"".join(piece[start:end] for start, end in chunks.feed(piece))
    assert out == b"".join(parts)
    assert body[at - chunks.excess :] == b"next"


@pytest.mark.parametrize(
    "wrong", [b"1\r\nxy\r\n", b"1\r\nx\n\r\n", b"1\nx\r\n", b"g\r\n", b"-1\r\nx\r\n", b"1\r\n\r\n\r\n"]
)
def test_a_wrong_chunk_among_tiny_ones_is_refused(wrong: bytes) -> None:
    with pytest.raises(FramingError):
        Chunks().feed(b"1\r\nx\r\n" * 100 + wrong + b"1\r\nx\r\n" * 100)


class Transport:
    """Records when reading was paused and resumed."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def get_extra_info(self, _name: str) -> socket.socket:
        return socket.socket()


class Taker:
    def upstream_data(self, data: bytes) -> None:
        pass


async def test_a_response_held_within_a_turn_stays_held_after_it() -> None:
    transport, connection = Transport(), UpstreamConnection()
    connection.connection_made(cast(asyncio.Transport, transport))
    connection.attach(cast(Receiver, Taker()))
    connection.buffer_updated(READ_BYTES - 1)
    assert transport.calls == []
    connection.buffer_updated(READ_BYTES)
    connection.hold(True)
    await asyncio.sleep(0.1)
    assert transport.calls == ["pause"]
    connection.hold(False)
    assert transport.calls == ["pause", "resume"]
    connection.hold(True)
    connection.buffer_updated(READ_BYTES)
    await asyncio.sleep(0.1)
    assert transport.calls == ["pause", "resume", "pause"]


async def test_a_client_held_within_a_turn_stays_held_after_it() -> None:
    transport = Transport()
    reading = Reading(cast(asyncio.Transport, transport), lambda: None)
    reading.take_turns()
    reading.hold("engine")
    await asyncio.sleep(0.1)
    assert transport.calls == ["pause"]
    reading.take_turns()
    reading.release("engine")
    assert transport.calls == ["pause", "resume"]
    reading.take_turns()
    reading.hold("engine")
    reading.release("engine")
    assert transport.calls == ["pause", "resume", "pause"]
    await asyncio.sleep(0.1)
    assert transport.calls == ["pause", "resume", "pause", "resume"]
