"""Connections that are lost where nobody looks at them: just made to the engine, or of a client not read from."""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.rig import Engine, Front, Peer, echo, engine, front
from tidegate.contract.terms import DrainRequest
from tidegate.gateway import timers
from tidegate.gateway.upstream import UpstreamConnection
from tidegate.gateway.upstream_request import UpstreamRequest

pytestmark = pytest.mark.sockets


@contextmanager
def accepts_and_closes(how: str) -> Iterator[int]:
    """A port whose connections are closed in the moment in which they are accepted, by a thread."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)

        def run() -> None:
            while True:
                try:
                    accepted, _ = listening.accept()
                except OSError:
                    return
                if how == "reset":
                    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                accepted.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_an_engine_that_closes_what_it_accepts_is_told_at_once(how: str) -> None:
    with accepts_and_closes(how) as port:
        async with front(port) as gate:
            clients = [await gate.client() for _ in range(8)]
            for client in clients:
                await client.request("POST", "/v1/x", b"{}")
            # A reset may be there before the connection is found made.
            codes = {"upstream_reset"} if how == "fin" else {"upstream_reset", "upstream_connect_failed"}
            for client in clients:
                heard = await client.hear()
                assert heard.head.status_code == 502
                assert json.loads(heard.body)["error"]["code"] in codes
                client.close()
            await gate.until(lambda: gate.state()["inFlight"] == 0)
            assert sum(gate.failures().values()) == 8


@pytest.mark.parametrize("draining", [False, True])
@pytest.mark.parametrize("lost", ["lost", "closing"])
async def test_a_connection_that_is_lost_before_it_is_used_is_no_wait(lost: str, draining: bool) -> None:
    async with engine(echo) as own, front(own.port) as gate:
        connect = gate.gateway.pool.connect

        async def loses() -> UpstreamConnection:
            made = await connect()
            if lost == "closing":
                made.transport.close()
            else:
                made.transport.abort()
                await gate.until(lambda: made.lost)
            return made

        gate.gateway.pool.connect = loses  # type: ignore[method-assign]
        if draining:
            gate.gateway.drain.post(DrainRequest("d", "", None, propagation=60))
        client = await gate.client()
        heard = await client.ask("GET", "/v1/x")
        code = json.loads(heard.body)["error"]["code"]
        assert (heard.head.status_code, code) == ((503, "server_shutdown") if draining else (502, "upstream_reset"))
        assert own.heard == []
        client.close()


async def test_whatever_goes_wrong_with_a_new_connection_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(request: UpstreamRequest) -> bytes:
        raise RuntimeError("no")

    async with engine(echo) as own, front(own.port) as gate:
        monkeypatch.setattr(UpstreamRequest, "_head_bytes", fails)
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, json.loads(heard.body)["error"]["code"]) == (502, "upstream_reset")

        async def raises() -> UpstreamConnection:
            raise ValueError("no")

        gate.gateway.pool.connect = raises  # type: ignore[method-assign]
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, json.loads(heard.body)["error"]["code"]) == (502, "upstream_connect_failed")
        client.close()


async def held_upload(gate: Front) -> Peer:
    """A client in the middle of an upload that the gateway does not read on, since the engine takes none of it."""
    client = await gate.client()
    client.writer.write(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: 40000000\r\n\r\n" + bytes(20_000_000))
    await gate.until(lambda: gate.gateway._connections)
    [connection] = gate.gateway._connections
    await gate.until(lambda: connection.held)
    return client


async def test_a_client_that_resets_while_it_is_not_read_from_is_gone() -> None:
    go = asyncio.Event()

    async def script(peer: Peer, own: Engine) -> None:
        await go.wait()
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await held_upload(gate)
        # Until nothing moves any more: the gateway takes no byte of it until it lets go by itself.
        assert await gate.settled(client.writer.transport.get_write_buffer_size)
        client.reset()
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert (gate.failures(), go.is_set()) == ({"client_gone": 1}, False)
        go.set()


@pytest.mark.virtual_time
async def test_a_client_that_pauses_after_it_was_held_is_gone_too() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await own.go.wait()
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await held_upload(gate)
        await asyncio.sleep(2 * timers.BODY_SECONDS)
        assert gate.failures() == {}  # it is the engine that lets it wait
        own.go.set()
        await gate.until(lambda: gate.failures() == {"client_gone": 1})
        client.close()


async def test_a_request_behind_one_whose_client_is_gone_is_not_begun() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        own.heard.append(await peer.hear())
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"GET /v1/1 HTTP/1.1\r\nHost: e\r\n\r\nGET /v1/2 HTTP/1.1\r\nHost: e\r\n\r\n")
        await gate.until(lambda: own.heard)
        client.reset()
        await gate.until(lambda: gate.failures() == {"client_gone": 1})
        await asyncio.sleep(0.2)
        assert (len(own.heard), gate.state()["inFlight"]) == (1, 0)
