"""How a connection that has switched protocols ends: by either side, by the drain, by a time that is over."""

import asyncio

import pytest

from gateway.rig import Engine, Front, Peer, engine, front
from tidegate.contract.terms import DrainRequest
from tidegate.gateway import timers
from tidegate.gateway.exchange import Exchange
from tidegate.gateway.websocket import GOING_AWAY, INTERNAL_ERROR, close_frame

ASK = b"GET /v1/realtime HTTP/1.1\r\nHost: e\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
NORMAL = b"\x88\x02\x03\xe8"
MASKED = b"\x88\x82abcd" + bytes([0x03 ^ ord("a"), 0xE8 ^ ord("b")])
CONTENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n'
HOLD = DrainRequest("d", "", None, propagation=60)


async def switched(peer: Peer) -> None:
    await peer.hear()
    await peer.send(SWITCH)


async def tunnel(gate: Front) -> Peer:
    client = await gate.client()
    await client.send(ASK)
    assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return client


async def half_closed_beside_a_stream(peer: Peer, own: Engine) -> None:
    heard = await peer.hear()
    if heard.head.target == b"/v1/realtime":
        await peer.send(SWITCH)
        peer.writer.write_eof()
    else:
        await peer.begin_events()
        await peer.chunk(CONTENT)
    await peer.closed()


async def test_a_half_closed_tunnel_costs_no_stream_its_token_nor_the_pod_its_seal() -> None:
    async with engine(half_closed_beside_a_stream) as own, front(own.port) as gate:
        client = await tunnel(gate)
        assert await client.rest() == b""
        other = await gate.client()
        await other.request("POST", "/v1/chat/completions", b"{}")
        await gate.until(lambda: gate.state()["streams"] == 2)
        gate.gateway.drain.post(DrainRequest("d", "", 1, propagation=0, flush=0.8))
        assert b"server_shutdown" in (await other.hear()).body
        await gate.until(lambda: gate.state()["state"] == "sealed")
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        client.close()
        other.close()


async def test_a_request_that_cannot_be_ended_is_cut_and_costs_no_other_its_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        await peer.chunk(CONTENT)
        await peer.closed()

    end, failed = Exchange.end, []

    def fails(self: Exchange) -> None:
        if not failed:
            failed.append(self)
            raise RuntimeError("no")
        end(self)

    monkeypatch.setattr(Exchange, "end", fails)
    async with engine(script) as own, front(own.port) as gate:
        clients = [await gate.client() for _ in range(3)]
        for client in clients:
            await client.request("POST", "/v1/chat/completions", b"{}")
        await gate.until(lambda: gate.state()["streams"] == 3)
        gate.gateway.drain.post(DrainRequest("d", "", 1, propagation=0, flush=0.8))
        bodies = await asyncio.gather(*(client.hear() for client in clients), return_exceptions=True)
        assert sum(isinstance(body, Exception) for body in bodies) == 1
        assert sum(b"server_shutdown" in body.body for body in bodies if not isinstance(body, BaseException)) == 2
        await gate.until(lambda: gate.state()["state"] == "sealed")
        assert (gate.state()["inFlight"], gate.state()["cut"]) == (0, 3)
        for client in clients:
            client.close()


async def test_a_stalled_stream_has_its_token_although_another_ends_in_the_same_moment() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        await peer.chunk(CONTENT)
        while len(own.peers) < 2 or peer is own.peers[0]:
            await peer.chunk(CONTENT)
            await asyncio.sleep(0.01)
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        clients = []
        for number in (1, 2):
            clients.append(await gate.client())
            await clients[-1].request("POST", "/v1/chat/completions", b"{}")
            await gate.until(lambda number=number: gate.state()["streams"] == number)
        gate.gateway.drain.post(DrainRequest("d", "", 3, propagation=0, flush=1.5, stalled_after=0.5))
        for heard in await asyncio.gather(*(client.hear() for client in clients)):
            assert b"server_shutdown" in heard.body
        for client in clients:
            client.close()


async def test_silence_ends_no_web_socket() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        await asyncio.sleep(60)
        await peer.send(NORMAL)
        peer.writer.write_eof()
        await peer.closed()

    async with engine(script) as own, front(own.port, options={"TIDEGATE_IDLE_SECONDS": "1"}) as gate:
        client = await tunnel(gate)
        assert await client.rest() == NORMAL
        assert gate.failures() == {}
        client.close()


async def test_a_client_that_stays_when_the_engine_is_done_is_let_go() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        peer.writer.write_eof()
        await peer.closed()
        own.gone.set()

    async with engine(script) as own, front(own.port) as gate:
        client = await tunnel(gate)
        assert await client.rest() == b""
        await asyncio.sleep(timers.ENGINE_DONE_SECONDS - 0.1)
        assert gate.state()["inFlight"] == 1
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        await asyncio.wait_for(own.gone.wait(), 20)
        assert gate.failures() == {}
        client.close()


@pytest.mark.sockets
async def test_a_web_socket_that_the_engine_closes_first_has_not_failed() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        await peer.reader.readexactly(len(MASKED))
        await peer.send(NORMAL)
        peer.writer.write_eof()
        assert await peer.rest() == b""  # a reset would raise
        own.gone.set()

    async with engine(script) as own, front(own.port) as gate:
        client = await tunnel(gate)
        await client.send(MASKED)
        assert await client.rest() == NORMAL
        client.close()
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert (gate.failures(), gate.gateway.metrics.codes["1xx"]) == ({}, 1)


@pytest.mark.sockets
@pytest.mark.parametrize("how", ["reset", "fin"])
async def test_an_engine_that_is_stopped_beneath_a_web_socket(how: str) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        await own.go.wait()
        peer.reset() if how == "reset" else peer.close()

    async with engine(script) as own, front(own.port) as gate:
        client = await tunnel(gate)
        gate.gateway.drain.prestop()
        own.go.set()
        assert await client.rest() == close_frame(GOING_AWAY, "upstream_reset")
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert (gate.failures(), gate.state()["cut"]) == ({"upstream_reset": 1}, 1)
        client.close()


async def closes_and_stays(peer: Peer, own: Engine) -> None:
    await switched(peer)
    await peer.send(NORMAL)
    await own.go.wait()
    peer.reset()


async def nothing_follows(own: Engine, gate: Front, drain: DrainRequest) -> None:
    client = await tunnel(gate)
    await gate.until(lambda: bytes(client.reader._buffer) == NORMAL)
    gate.gateway.drain.post(drain)
    if drain is HOLD:
        own.go.set()
    assert await client.rest() == NORMAL
    await gate.until(lambda: gate.state()["inFlight"] == 0)
    assert (gate.failures(), gate.state()["cut"], gate.gateway.drain.contract.ever_cut) == ({}, 0, 0)
    client.close()


async def test_at_the_deadline_nothing_follows_the_engine_s_own_close_frame() -> None:
    async with engine(closes_and_stays) as own, front(own.port) as gate:
        await nothing_follows(own, gate, DrainRequest("d", "", 0.6, propagation=0, flush=0.4))


@pytest.mark.sockets
async def test_after_a_reset_nothing_follows_the_engine_s_own_close_frame() -> None:
    async with engine(closes_and_stays) as own, front(own.port) as gate:
        await nothing_follows(own, gate, HOLD)


async def test_an_engine_that_nothing_has_stopped_may_close_a_web_socket_without_a_frame() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        await own.go.wait()
        peer.writer.write_eof()
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await tunnel(gate)
        gate.gateway.drain.post(HOLD)
        own.go.set()
        assert await client.rest() == b""
        client.close()
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert (gate.failures(), gate.state()["cut"]) == ({}, 0)


@pytest.mark.sockets
async def test_an_engine_that_dies_beneath_a_web_socket_without_a_drain() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        await own.go.wait()
        peer.reset()

    async with engine(script) as own, front(own.port) as gate:
        client = await tunnel(gate)
        own.go.set()
        assert await client.rest() == close_frame(INTERNAL_ERROR, "upstream_reset")
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert (gate.failures(), gate.state()["cut"]) == ({"upstream_reset": 1}, 0)
        client.close()


@pytest.mark.parametrize("torn", [False, True])
async def test_the_total_time_of_a_web_socket_ends_it_with_a_close_frame_where_there_can_be_one(torn: bool) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        if torn:
            await peer.send(b"\x82\x05abc")
        await peer.closed()

    async with engine(script) as own, front(own.port, options={"TIDEGATE_TOTAL_SECONDS": "0.5"}) as gate:
        client = await tunnel(gate)
        assert await client.rest() == (b"\x82\x05abc" if torn else close_frame(INTERNAL_ERROR, "total_timeout"))
        assert gate.failures() == {"total": 1}
        client.close()


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_behind_the_engine_s_own_close_frame_comes_no_other(in_pieces: bool) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        for piece in (NORMAL[:1], NORMAL[1:]) if in_pieces else (NORMAL,):
            await peer.send(piece)
            await asyncio.sleep(0.05)
        own.go.set()
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await tunnel(gate)
        await own.go.wait()
        assert await client.reader.readexactly(len(NORMAL)) == NORMAL
        gate.gateway.drain.post(DrainRequest("d", "", 1, propagation=0, flush=0.9))
        assert await client.rest() == b""
        client.close()


@pytest.mark.sockets
async def test_what_a_client_sent_ahead_of_the_switch_arrives_and_does_not_stop_the_rest() -> None:
    size, got = 300_000, 0

    async def script(peer: Peer, own: Engine) -> None:
        nonlocal got
        await peer.hear()
        await own.go.wait()
        await peer.send(SWITCH)
        got = len(peer.parser.trailing_data[0])
        while got < size:
            data = await peer.reader.read(65536)
            assert data
            got += len(data)
        await peer.send(b"\x81\x02ok")
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        client.writer.write(ASK + bytes(size))
        await gate.until(lambda: gate.gateway._connections)
        [connection] = gate.gateway._connections
        await gate.until(lambda: connection.held)
        own.go.set()
        assert (await asyncio.wait_for(client.reader.readuntil(b"ok"), 20)).endswith(b"\x81\x02ok")
        assert got == size
        client.close()


@pytest.mark.sockets
async def test_a_client_s_half_close_comes_behind_what_the_engine_did_not_take_at_first() -> None:
    size = 8_000_000

    async def script(peer: Peer, own: Engine) -> None:
        await switched(peer)
        await own.go.wait()
        assert len(await peer.rest()) == size
        await peer.send(b"\x81\x02ok")

    async with engine(script) as own, front(own.port) as gate:
        client = await tunnel(gate)
        client.writer.write(bytes(size))
        client.writer.write_eof()
        [connection] = gate.gateway._connections
        await gate.until(lambda: connection.held)
        own.go.set()
        assert await client.rest() == b"\x81\x02ok"
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert gate.failures() == {}
        client.close()
