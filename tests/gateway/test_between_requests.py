"""What a client's connection does between two requests and behind the last: pipelines, empty lines, late uploads."""

import asyncio
import json

import pytest

from gateway.rig import Engine, Front, Peer, echo, engine, front
from tidegate.contract.terms import DrainRequest
from tidegate.gateway import connection
from tidegate.gateway.request_heads import MAX_EMPTY_LINES

GET = b"GET /v1/%d HTTP/1.1\r\nHost: e\r\n\r\n"
PIECE = bytes(100_000)


async def slow_events(peer: Peer, own: Engine) -> None:
    """Every answer waits for `go`."""
    while True:
        heard = await peer.hear()
        own.heard.append(heard)
        await peer.begin_events()
        await peer.chunk(b"data: %b\n\n" % heard.head.target)
        await own.go.wait()
        await peer.end_chunks()
        peer.answered()


@pytest.mark.parametrize("body", [b"", b"3\r\nabc\r\n0\r\n\r\n"])
async def test_pipelined_requests_before_a_half_close_are_all_answered(body: bytes) -> None:
    chunked = b"POST /v1/3 HTTP/1.1\r\nHost: e\r\nTransfer-Encoding: chunked\r\n\r\n" + body
    async with engine(slow_events) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(GET % 1 + GET % 2 + (chunked if body else b""))
        await gate.until(lambda: own.heard)
        client.writer.write_eof()
        [ours] = gate.gateway._connections
        await gate.until(lambda: ours.eof)
        own.go.set()
        answers = await client.rest()
        expected = [b"/v1/1", b"/v1/2", *([b"/v1/3"] if body else [])]
        assert [heard.head.target for heard in own.heard] == expected
        assert [part.count(b"Connection: close") for part in answers.split(b"HTTP/1.1 200 ")[1:]] == (
            [0] * (len(expected) - 1) + [1]
        )
        assert answers.endswith(b"data: %b\n\n\r\n0\r\n\r\n" % expected[-1])
        assert gate.failures() == {}
        client.close()


@pytest.mark.parametrize("rest", [b"GET /v1/2 HTT", b"POST /v1/2 HTTP/1.1\r\nHost: e\r\nContent-Length: 9\r\n\r\nabc"])
async def test_half_a_request_before_a_half_close_is_not_waited_for(rest: bytes) -> None:
    async with engine(slow_events) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(GET % 1 + rest)
        await gate.until(lambda: own.heard)
        client.writer.write_eof()
        [ours] = gate.gateway._connections
        await gate.until(lambda: ours.eof)
        own.go.set()
        await client.closed()
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert len(own.heard) == 1
        client.close()


async def test_a_few_empty_lines_before_a_request_are_skipped_in_whatever_pieces() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        for number, pieces in enumerate(
            ([b"\r\n"], [b"\r", b"\n"], [b"\r\n\r", b"\n\r\n"], [b"\r\n"] * 8, [b"\r\n", b"\r\n\r\n"])
        ):
            for piece in pieces:
                await client.send(piece)
                await asyncio.sleep(0.02)
            await client.send(GET % number)
            assert (await client.reader.readuntil(b"empty")).startswith(b"HTTP/1.1 200")
        assert len(own.heard) == 5
        client.close()


async def test_a_flood_of_empty_lines_is_refused() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"\r\n" * MAX_EMPTY_LINES + GET % 1)
        assert (await client.reader.readuntil(b"empty")).startswith(b"HTTP/1.1 200")
        for _ in range(MAX_EMPTY_LINES):
            await client.send(b"\r\n")
            await asyncio.sleep(0.01)
        await client.send(b"\r\n" * 20_000 + GET % 2)
        assert (await client.rest()).startswith(b"HTTP/1.1 400")
        assert len(own.heard) == 1
        client.close()


@pytest.mark.parametrize("sent", [b"\rGET /v1/x HTTP/1.1\r\nHost: e\r\n\r\n", b"\r\r\n"])
async def test_a_bare_cr_is_no_empty_line(sent: bytes) -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(sent[:1])
        await asyncio.sleep(0.05)
        await client.send(sent[1:])
        assert (await client.rest()).startswith(b"HTTP/1.1 400")
        assert own.heard == []
        client.close()


async def upload(gate: Front, pieces: int, pause: float) -> bytes:
    """Send a large body with a pause behind each piece, whatever is answered meanwhile, and read the answer then."""
    client = await gate.client()
    await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: %d\r\n\r\n" % (pieces * len(PIECE)))
    for _ in range(pieces):
        await client.send(PIECE)
        await asyncio.sleep(pause)
    client.writer.write_eof()
    answer = await client.rest()
    client.close()
    return answer


REFUSING = DrainRequest("d", "", None, since_withdrawal=9, propagation=1, quiet=60)


async def upload_is_refused(pieces: int, pause: float) -> None:
    async with engine(echo) as own, front(own.port) as gate:
        gate.gateway.drain.post(REFUSING)
        answer = await upload(gate, pieces, pause)
        assert answer.startswith(b"HTTP/1.1 503")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "server_draining"


async def test_a_slow_upload_is_told_why_it_is_not_wanted() -> None:
    pause = 0.9 * connection.LINGER_SECONDS
    await upload_is_refused(int(0.9 * connection.MAX_LINGER_SECONDS / pause), pause)


@pytest.mark.sockets
async def test_a_large_upload_is_told_why_it_is_not_wanted() -> None:
    # A close over unread bytes would send a reset, which overtakes the answer.
    await upload_is_refused(40, 0)


async def test_an_upload_that_goes_on_for_ever_is_cut() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        gate.gateway.drain.post(REFUSING)
        with pytest.raises(ConnectionError):
            await upload(gate, int(4 * connection.MAX_LINGER_SECONDS), 0.5)


async def upload_is_answered_early(pieces: int, pause: float) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.reader.read(100)
        await peer.send(b"HTTP/1.1 413 X\r\nContent-Length: 3\r\n\r\nbig")
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        answer = await upload(gate, pieces, pause)
        assert answer.startswith(b"HTTP/1.1 413")
        assert answer.endswith(b"big")


async def test_an_early_answer_of_the_engine_reaches_a_slow_upload() -> None:
    pause = 0.9 * connection.LINGER_SECONDS
    await upload_is_answered_early(int(0.9 * connection.MAX_LINGER_SECONDS / pause), pause)


@pytest.mark.sockets
async def test_an_early_answer_of_the_engine_reaches_a_large_upload() -> None:
    await upload_is_answered_early(40, 0)


async def test_a_drain_closes_kept_connections_once_propagation_is_over() -> None:
    """A client that learned it from a 503 would have one for each connection that it keeps."""
    async with engine(echo) as own, front(own.port) as gate:
        clients = [await gate.client() for _ in range(100)]
        for client in clients:
            assert (await client.ask("POST", "/v1/x", b"{}")).head.status_code == 200
        await asyncio.sleep(30)
        started = asyncio.get_running_loop().time()
        # A long stream elsewhere holds the drain.
        gate.gateway.drain.arrive("held", Idle())
        gate.gateway.drain.post(DrainRequest("d", "Rollout", 60, propagation=5))
        for client in clients:
            assert await client.rest() == b""
            assert 5.0 <= asyncio.get_running_loop().time() - started < 5.5
            client.close()
        assert (gate.state()["state"], gate.gateway.metrics.refused) == ("draining", 0)
        # Who comes all the same is told.
        late = await gate.client()
        assert (await late.ask("POST", "/v1/x", b"{}")).head.status_code == 503
        late.close()
        gate.gateway.drain.finish("held")


async def test_before_propagation_is_over_kept_connections_are_served() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        kept, used = await gate.client(), await gate.client()
        gate.gateway.drain.arrive("held", Idle())
        gate.gateway.drain.post(DrainRequest("d", "Rollout", 60, propagation=5))
        await asyncio.sleep(4)
        heard = await used.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, heard.fields[b"connection"]) == (200, b"close")
        # Undone in time, the others are kept.
        gate.gateway.drain.undrain("d")
        await asyncio.sleep(10)
        assert (await kept.ask("POST", "/v1/x", b"{}")).head.status_code == 200
        # The next drain closes them again.
        gate.gateway.drain.post(DrainRequest("e", "Rollout", 60, propagation=5))
        assert await kept.rest() == b""
        for client in (kept, used):
            client.close()
        gate.gateway.drain.finish("held")


async def test_a_request_that_waits_in_the_kernel_is_answered_before_the_close() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        clients = [await gate.client() for _ in range(5)]
        for client in clients:
            await client.ask("POST", "/v1/x", b"{}")
        # Nothing runs between the sending and the moment at which idle connections are closed.
        for client in clients[:4]:
            client.writer.write(GET % 1)
        gate.gateway.close_idle()
        # The fifth is really without a request, and closed.
        assert await clients[4].rest() == b""
        for client in clients[:4]:
            assert (await client.reader.readuntil(b"empty")).startswith(b"HTTP/1.1 200")
        for client in clients:
            client.close()


class Idle:
    """A request in flight that nothing ends."""

    def end(self) -> None:
        """See `draining.RequestInFlight`."""

    def abort(self) -> None:
        """See `draining.RequestInFlight`."""

    def drain_changed(self) -> None:
        """See `draining.RequestInFlight`."""
