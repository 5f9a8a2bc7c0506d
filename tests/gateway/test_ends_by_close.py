"""Where the end of the connection is the end of the message, a cut is a reset: FIN would pass it off as complete."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from gateway.rig import Engine, Front, Peer, connect, echo, engine, front
from tidegate.contract.terms import DrainRequest

pytestmark = pytest.mark.sockets
OK = b"HTTP/1.1 200 OK\r\n"
EVENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n'
FINISH = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
EVENTS = b"Content-Type: text/event-stream\r\n"
ASK = b"POST /v1/x HTTP/1.%d\r\nHost: e\r\nContent-Length: 2\r\n\r\n{}"
UPGRADE = b"GET /v1/x HTTP/1.1\r\nHost: e\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n"
SWITCH = b"HTTP/1.1 101 X\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n"
FORMS = {
    "until close": (ASK % 1, OK + b"\r\nabc"),
    "until close, engine of 1.0": (ASK % 1, b"HTTP/1.0 200 OK\r\n\r\nabc"),
    "until close, client of 1.0": (ASK % 0, OK + b"\r\nabc"),
    "chunks, client of 1.0": (ASK % 0, OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    "another protocol": (UPGRADE, SWITCH + b"abc"),
}
each_form = pytest.mark.parametrize(("ask", "begin"), FORMS.values(), ids=FORMS.keys())


async def begun(gate: Front, ask: bytes) -> Peer:
    """A client that has the first bytes of its response."""
    client = await gate.client()
    await client.send(ask)
    assert b"abc" in await client.reader.readuntil(b"abc")
    return client


def scripted(begin: bytes, then: Callable[[Peer], Awaitable[None]]) -> Callable[[Peer, Engine], Awaitable[None]]:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(begin)
        await own.go.wait()
        await then(peer)

    return script


async def is_reset(peer: Peer) -> None:
    peer.reset()


@each_form
async def test_an_engine_s_reset_is_a_reset(ask: bytes, begin: bytes) -> None:
    async with engine(scripted(begin, is_reset)) as own, front(own.port) as gate:
        client = await begun(gate, ask)
        own.go.set()
        with pytest.raises(ConnectionResetError):
            await client.rest()


@each_form
@pytest.mark.parametrize("limit", ["IDLE", "TOTAL"])
async def test_a_time_that_is_up_is_a_reset(ask: bytes, begin: bytes, limit: str) -> None:
    if b"Upgrade: other" in ask:
        limit = "TOTAL"  # a tunnel may be silent for as long as it likes
    options = {f"TIDEGATE_{limit}_SECONDS": "0.3"}
    async with engine(scripted(begin, Peer.closed)) as own, front(own.port, options=options) as gate:
        client = await begun(gate, ask)
        own.go.set()
        with pytest.raises(ConnectionResetError):
            await client.rest()


@each_form
async def test_the_deadline_of_a_drain_is_a_reset(ask: bytes, begin: bytes) -> None:
    async with engine(scripted(begin, Peer.closed)) as own, front(own.port) as gate:
        client = await begun(gate, ask)
        own.go.set()
        gate.gateway.drain.post(DrainRequest("d", "Rollout", 1, propagation=60, flush=0.2))
        with pytest.raises(ConnectionResetError):
            await client.rest()


@each_form
async def test_the_engine_s_own_end_is_no_reset(ask: bytes, begin: bytes) -> None:
    async def ends(peer: Peer) -> None:
        await peer.send(b"0\r\n\r\n" if b"chunked" in begin else b"")
        peer.writer.write_eof()
        await peer.closed()

    async with engine(scripted(begin, ends)) as own, front(own.port) as gate:
        client = await begun(gate, ask)
        own.go.set()
        assert await client.rest() == b""
        client.close()
        assert not gate.failures()


@each_form
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_gateway_that_ends_is_a_reset(ask: bytes, begin: bytes, number: signal.Signals) -> None:
    async with engine(scripted(begin, Peer.closed)) as own:
        own.go.set()
        words = ["-m", "tidegate", "gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        words += ["--upstream", f"127.0.0.1:{own.port}", "--grace-seconds", "1", "--flush-seconds", "0.1"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        )
        assert process.stdout is not None
        try:
            lines = [json.loads(await process.stdout.readline()) for _ in range(2)]
            assert [line["event"] for line in lines] == ["listening", "serving"]
            client = await connect(lines[0]["port"])
            await client.send(ask)
            assert b"abc" in await client.reader.readuntil(b"abc")
            process.send_signal(number)
            with pytest.raises(ConnectionResetError):
                await client.rest()
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@pytest.mark.parametrize("head", [OK, OK + b"Connection: close\r\n", b"HTTP/1.0 200 OK\r\n"])
@pytest.mark.parametrize("minor", [0, 1])
@pytest.mark.parametrize("draining", [False, True])
async def test_a_stream_without_its_own_end_is_told_as_truncated(head: bytes, minor: int, draining: bool) -> None:
    async def dies(peer: Peer) -> None:
        peer.close()

    begin = head + EVENTS + b"\r\n" + EVENT.replace(b'"a"', b'"abc"')
    async with engine(scripted(begin, dies)) as own, front(own.port) as gate:
        client = await begun(gate, ASK % minor)
        if draining:
            gate.gateway.drain.post(DrainRequest("d", "Rollout", None, propagation=60))
        own.go.set()
        rest = await client.rest()
        client.close()
        assert b'"code": "server_shutdown"' in rest if draining else b'"code": "upstream_reset"' in rest
        assert rest.endswith(b"data: [DONE]\n\n")
        assert gate.state()["cut"] == int(draining)


@pytest.mark.parametrize("minor", [0, 1])
async def test_a_stream_with_its_own_end_passes_as_it_is(minor: int) -> None:
    async def ends(peer: Peer) -> None:
        await peer.send(FINISH)
        peer.close()

    begin = OK + EVENTS + b"\r\n" + EVENT.replace(b'"a"', b'"abc"')
    async with engine(scripted(begin, ends)) as own, front(own.port) as gate:
        client = await begun(gate, ASK % minor)
        own.go.set()
        assert (await client.rest()).endswith(FINISH)
        client.close()
        assert not gate.failures()


@pytest.mark.virtual_time
@pytest.mark.parametrize("kind", [b"text/plain", b"text/event-stream"])
@pytest.mark.parametrize("piece", [1, 5, 1000])
async def test_a_client_of_http_1_0_gets_no_chunks(kind: bytes, piece: int) -> None:
    payload = EVENT + EVENT + FINISH
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (EVENT[:20], EVENT[20:] + EVENT, FINISH))
    whole = OK + b"Content-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n" % kind + body + b"0\r\nX-Trailer: 1\r\n\r\n"

    async def script(peer: Peer, own: Engine) -> None:
        own.heard.append(await peer.hear())
        for at in range(0, len(whole), piece):
            await peer.send(whole[at : at + piece])
            await asyncio.sleep(1e-6)

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        head, _, rest = (await client.rest()).partition(b"\r\n\r\n")
        client.close()
        assert rest == payload
        assert b"transfer-encoding" not in head.lower()
        # On behalf of that client the gateway itself speaks HTTP/1.1, which needs a Host.
        assert own.heard[0].head.http_version == b"1.1"
        assert own.heard[0].fields[b"host"] == b"127.0.0.1:%d" % own.port
        assert not gate.failures()


@pytest.mark.virtual_time
async def test_an_idle_connection_is_closed_with_fin() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.ask("POST", "/v1/x", b"hi")
        client.writer.write_eof()
        assert await client.rest() == b""
        client.close()
