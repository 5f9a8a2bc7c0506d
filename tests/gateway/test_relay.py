"""Requests and responses through the gateway, over real sockets, between an engine and a client of our own."""

import asyncio
import hashlib
import random
import socket
from pathlib import Path

import h11
import pytest

from gateway.rig import Engine, Peer, connect, echo, engine, front

pytestmark = pytest.mark.sockets
MEGABYTE = 1024 * 1024


async def test_connections_are_kept_on_both_sides_and_bodies_of_both_kinds_pass() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        for number in range(5):
            heard = await client.ask("POST", f"/v1/{number}", b"x" * number)
            assert (heard.head.status_code, heard.body) == (200, b"x" * number or b"empty")
        chunks = b"POST /v1/chunks HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks += b"3;a=b\r\nabc\r\n4\r\ndefg\r\n0\r\nTrailer: x\r\n\r\n"
        for byte in chunks:
            await client.send(bytes([byte]))
        assert b"abcdefg" in await client.reader.readuntil(b"abcdefg")
        assert [heard.head.target for heard in own.heard] == [*(b"/v1/%d" % n for n in range(5)), b"/v1/chunks"]
        assert len(own.peers) == 1
        assert gate.gateway.metrics.connections == 1
        client.close()


async def test_an_engine_is_told_nothing_of_the_hop_before_it() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.ask(
            "POST", "/v1/x?y=1", b"b", Connection="keep-alive, X-Private", X_Private="1", Keep_Alive="timeout=5",
            TE="trailers", Proxy_Authorization="secret", Accept_Encoding="gzip", Authorization="Bearer k",
            X_Request_Id="mine", Upgrade="h2c", HTTP2_Settings="AAM",
        )  # fmt: skip
        assert own.heard[0].head.target == b"/v1/x?y=1"
        assert own.heard[0].fields == {
            b"host": b"engine", b"authorization": b"Bearer k", b"x-request-id": b"mine", b"content-length": b"1",
            b"via": b"1.1 tidegate",
        }  # fmt: skip
        client.close()


@pytest.mark.parametrize(
    ("asked", "passed"),
    [
        ("h2c, WebSocket", b"websocket"), ("websocket ,h2c", b"websocket"), ("H2C", None), ("h2c,", None),
        ("websocket, x", b"websocket, x"),
    ],
)  # fmt: skip
async def test_an_upgrade_to_http_2_is_not_asked_for_in_any_list(asked: str, passed: bytes | None) -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        head = f"GET /v1/x HTTP/1.1\r\nHost: e\r\nConnection: Upgrade\r\nUpgrade: {asked}\r\n\r\n"
        await client.send(head.encode())
        await gate.until(lambda: own.heard)
        assert own.heard[0].fields.get(b"upgrade") == passed
        client.close()


async def test_the_response_s_own_head_passes_but_for_what_belongs_to_the_hop() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(
            b"HTTP/1.1 207 Odd Phrase\r\nX-Twice: 1\r\nX-Twice: 2\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n"
            b"Keep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok"
        )

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("GET", "/v1/x", X_Request_Id="r")
        assert (heard.head.status_code, heard.head.reason, heard.body) == (207, b"Odd Phrase", b"ok")
        names = [(name, value) for name, value in heard.head.headers if name != b"x-request-id"]
        assert names == [(b"x-twice", b"1"), (b"x-twice", b"2"), (b"content-length", b"2")]
        assert heard.fields[b"x-request-id"] == b"r"
        client.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_chunked_body_is_relayed_verbatim_however_it_is_cut_into_pieces(seed: int) -> None:
    rng = random.Random(seed)
    events = b"".join(b'data: {"n": %d, "pad": "%s"}\n\n' % (n, b"z" * rng.randrange(200)) for n in range(60))
    body, at = b"", 0
    while at < len(events):
        size = rng.choice([1, 7, 50, 300, 5000])
        part = events[at : at + size]
        body += b"%x%s\r\n%b\r\n" % (len(part), b";ext" * rng.randrange(2), part)
        at += size
    body += b"0\r\n\r\n"
    kind = rng.choice([b"text/event-stream", b"application/octet-stream"])

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind)
        position = 0
        while position < len(body):
            size = rng.choice([1, 3, 100, 2000])
            await peer.send(body[position : position + size])
            position += size
            if rng.random() < 0.3:
                await asyncio.sleep(0)

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("GET", "/v1/x")
        assert heard.body == events
        if kind != b"text/event-stream":
            assert client.raw.endswith(b"\r\n\r\n" + body)
        client.close()


async def test_whole_events_pass_byte_by_byte_as_the_engine_framed_them() -> None:
    pieces = [b"0009;x=y\r\ndata: 1\n\n\r\n", b"9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n\r\n", b"0\r\n\r\n"]

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        for piece in pieces:
            await peer.send(piece)
            await asyncio.sleep(0.05)

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.ask("GET", "/v1/x")
        assert client.raw.endswith(b"\r\n\r\n" + b"".join(pieces))
        client.close()


async def test_a_body_that_ends_with_its_connection() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\ndata: 2")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("GET", "/v1/x")
        assert (heard.body, heard.fields[b"connection"]) == (b"data: 1\n\ndata: 2", b"close")
        client.close()


async def test_responses_without_a_body() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        while True:
            heard = await peer.hear()
            status = 204 if heard.head.target == b"/204" else 304 if heard.head.target == b"/304" else 200
            length = b"" if status == 204 else b"Content-Length: 99\r\n"
            await peer.send(b"HTTP/1.1 %d X\r\n%b\r\n" % (status, length))
            peer.answered()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        seen = [(await client.ask(*ask)).head.status_code for ask in (("HEAD", "/"), ("GET", "/204"), ("GET", "/304"))]
        assert seen == [200, 204, 304]
        assert len(own.peers) == 1
        client.close()


async def test_pipelined_requests_are_answered_in_their_order_one_at_a_time() -> None:
    running: list[int] = []

    async def script(peer: Peer, own: Engine) -> None:
        while True:
            heard = await peer.hear()
            running.append(1)
            assert len(running) == 1
            await asyncio.sleep(0.02)
            running.clear()
            await peer.answer(200, heard.head.target + heard.body)

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        requests = [b"POST /%d HTTP/1.1\r\nHost: e\r\nContent-Length: 2\r\n\r\n%02d" % (n, n) for n in range(20)]
        await client.send(b"\r\n".join(requests))
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 20 or not answers.endswith(b"/1919"):
            answers += await asyncio.wait_for(client.reader.read(65536), 20)
        assert [part.split(b"\r\n\r\n")[1] for part in answers.split(b"HTTP/1.1 200 X")[1:]] == [
            b"/%d%02d" % (n, n) for n in range(20)
        ]
        client.close()


async def test_http_1_0_is_served_and_closed() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi")
        answer = await client.rest()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"\r\nConnection: close\r\n" in answer
        assert answer.endswith(b"hi")
        client.close()


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_upload_of_50_megabytes_arrives_whole(chunked: bool) -> None:
    size = 50 * MEGABYTE
    seen, digest = 0, hashlib.sha256()

    async def script(peer: Peer, own: Engine) -> None:
        nonlocal seen
        parser = peer.parser
        while not isinstance(event := parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                parser.receive_data(await peer.reader.read(MEGABYTE))
            elif hasattr(event, "data"):
                seen += len(event.data)
                digest.update(event.data)
        await peer.answer(200, digest.hexdigest().encode())

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        piece = random.Random(1).randbytes(MEGABYTE)
        length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
        await client.send(f"POST /v1/files HTTP/1.1\r\nHost: e\r\n{length}\r\n\r\n".encode())
        sent = hashlib.sha256()
        for _ in range(50):
            sent.update(piece)
            await client.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        if chunked:
            await client.send(b"0\r\n\r\n")
        answer = await asyncio.wait_for(client.reader.readuntil(sent.hexdigest().encode()), 60)
        assert answer.startswith(b"HTTP/1.1 200")
        assert seen == size
        client.close()


async def test_an_engine_that_does_not_read_stops_the_client() -> None:
    go, size = asyncio.Event(), 40 * MEGABYTE

    async def script(peer: Peer, own: Engine) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await go.wait()
        left = size
        while left:
            left -= len(await peer.reader.read(min(left, MEGABYTE)))
        await peer.answer(200, b"all bytes")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/files HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n" % size)
        client.writer.write(bytes(size))
        left = await gate.settled(client.writer.transport.get_write_buffer_size)
        assert left > size / 2  # the rest of it is in nobody's memory but the client's
        go.set()
        assert await asyncio.wait_for(client.reader.readuntil(b" bytes"), 60) > b"HTTP/1.1 200"
        client.close()


async def test_a_request_after_an_upload_that_the_engine_did_not_read_is_read() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        if len(own.peers) == 1:
            await peer.reader.readuntil(b"\r\n\r\n")
            await go.wait()
            await peer.answer(200, b"early")
            await peer.closed()
        else:
            await echo(peer, own)

    go, size = asyncio.Event(), 16 * MEGABYTE
    async with engine(script) as own, front(own.port) as gate:
        assert own.server is not None
        own.server.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client = await gate.client()
        client.writer.write(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n" % size)
        client.writer.write(bytes(size))
        # Connected by the kernel: the gateway has yet to accept.
        await gate.until(lambda: gate.gateway._connections)
        [connection] = gate.gateway._connections
        await gate.until(lambda: connection.held)
        go.set()
        # The answer came before the body was taken: the rest is thrown away, and the end is a FIN.
        assert (await client.rest()).endswith(b"early")
        client.close()


@pytest.mark.parametrize("kind", ["application/octet-stream", "text/event-stream"])
async def test_a_client_that_does_not_read_stops_the_engine_and_gets_all_in_the_end(kind: str) -> None:
    event = b"data: " + b"x" * 8000 + b"\n\n"
    count, sent = 4_000, 0

    async def script(peer: Peer, own: Engine) -> None:
        nonlocal sent
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind.encode())
        for _ in range(count):
            await peer.chunk(event)
            sent += 1
        await peer.end_chunks()

    async with engine(script) as own, front(own.port) as gate:
        client = await connect(gate.port, buffers=65536)
        await client.request("GET", "/v1/x")
        await gate.until(lambda: sent)
        await gate.settled(lambda: sent)
        assert 0 < sent < count / 2
        assert gate.state()["inFlight"] == 1
        heard = await client.hear()
        assert heard.body == event * count
        client.close()


async def test_a_request_is_in_flight_until_the_kernel_has_its_last_byte() -> None:
    size = 30_000  # one segment of the loopback, so one read: the end is there when the client's socket is found full

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await own.go.wait()
        await peer.answer(200, bytes(size))

    async with engine(script) as own, front(own.port) as gate:
        client = await connect(gate.port, buffers=2048)
        await client.request("GET", "/v1/x")
        await gate.until(lambda: gate.state()["inFlight"] == 1)
        [connection] = gate.gateway._connections
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        client.writer.transport.pause_reading()
        own.go.set()
        await gate.until(lambda: connection._exchange is not None and connection._exchange.over)
        assert connection.paused
        assert gate.state()["inFlight"] == 1
        client.writer.transport.resume_reading()
        assert len((await client.hear()).body) == size
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        client.close()


async def test_expect_is_answered_before_the_body_is_sent() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        assert await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 20) == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"abc")
        assert (await client.reader.readuntil(b"abc")).startswith(b"HTTP/1.1 200")
        assert b"expect" not in own.heard[0].fields
        client.close()


async def test_an_early_answer_to_an_upload_is_relayed_and_the_connection_closed() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.reader.read(100)
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: 1000000\r\n\r\n" + bytes(2000))
        assert (await client.rest()).endswith(b"big")
        client.close()


@pytest.mark.virtual_time
@pytest.mark.parametrize("how", ["before the answer", "within a stream", "within an upload"])
async def test_a_client_that_aborts_frees_the_engine(how: str) -> None:
    noticed = asyncio.Event()

    async def script(peer: Peer, own: Engine) -> None:
        if how != "within an upload":
            await peer.hear()
        if how == "within a stream":
            await peer.begin_events()
            await peer.chunk(b"data: 1\n\n")
        await peer.closed()
        noticed.set()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        if how == "within an upload":
            await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: 100\r\n\r\nabc")
        else:
            await client.request("POST", "/v1/x", b"{}")
        if how == "within a stream":
            await client.reader.readuntil(b"data: 1\n\n")
        await gate.until(lambda: own.peers)
        client.close()
        await asyncio.wait_for(noticed.wait(), 20)
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert gate.failures() == {"client_gone": 1}


async def test_a_client_that_resets_in_a_flood_of_streams_costs_only_its_own() -> None:
    stop = asyncio.Event()

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        number = 0
        while not stop.is_set():
            number += 1
            await peer.chunk(b"data: %d\n\n" % number)
            await asyncio.sleep(0.005)
        await peer.chunk(b"data: [DONE]\n\n")
        await peer.end_chunks()

    async with engine(script) as own, front(own.port) as gate:
        clients = [await gate.client() for _ in range(30)]
        for client in clients:
            await client.request("GET", "/v1/x")
        await gate.until(lambda: gate.state()["streams"] == 30)
        for client in clients[::3]:
            client.reset()
        await gate.until(lambda: gate.state()["inFlight"] == 20)
        stop.set()
        for client in [each for number, each in enumerate(clients) if number % 3]:
            numbers = [line for line in (await client.hear()).body.split(b"\n\n") if line]
            assert numbers == [*(b"data: %d" % (n + 1) for n in range(len(numbers) - 1)), b"data: [DONE]"]
            client.close()
        assert gate.failures() == {"client_gone": 10}


async def test_a_client_that_closes_one_half_gets_its_answer() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await asyncio.sleep(0.3)
        await peer.answer(200, b"late")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/x", b"{}")
        client.writer.write_eof()
        assert (await client.hear()).body == b"late"
        client.close()


async def test_an_idle_connection_is_not_used_when_the_engine_closed_it_and_a_get_is_sent_again() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        own.heard.append(await peer.hear())
        await peer.answer(200, b"%d" % len(own.heard))
        heard = await peer.hear()
        own.heard.append(heard)
        peer.reset()  # as an engine that closes an idle connection in the moment that it is used again

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        assert (await client.ask("GET", "/v1/a")).body == b"1"
        assert (await client.ask("GET", "/v1/b")).body == b"3"
        assert [heard.head.target for heard in own.heard] == [b"/v1/a", b"/v1/b", b"/v1/b"]
        client.close()


@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_a_post_is_never_sent_twice(body: bytes) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        own.heard.append(await peer.hear())
        await peer.answer(200, b"x")
        own.heard.append(await peer.hear())
        peer.reset()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.ask("GET", "/v1/a")
        failed = await client.ask("POST", "/v1/b", body)
        assert failed.head.status_code == 502
        assert [heard.head.target for heard in own.heard] == [b"/v1/a", b"/v1/b"]
        client.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_no_byte_waits_for_another_and_no_descriptors_are_left() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        before = descriptors()
        for _ in range(50):
            client = await gate.client()
            await client.ask("POST", "/v1/x", b"{}")
            [connection] = gate.gateway._connections
            sock = connection._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            client.close()
            await gate.until(lambda: gate.gateway.connections == 0)
        gate.gateway.pool.close()
        await gate.until(lambda: all(peer.reader.at_eof() for peer in own.peers))
        await gate.until(lambda: descriptors() <= before)
