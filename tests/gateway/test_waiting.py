"""Engines that send a head at once and the response long after: from their queue, or after a long prefill."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from gateway.rig import Engine, Front, Peer, engine, front
from tidegate.contract.terms import DrainRequest

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
CONTENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n'
DONE = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
LINE = b'{"message": {"content": "a"}, "done": false}\n'
PINGS = b": ping\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'
IDLE = {"TIDEGATE_IDLE_SECONDS": "1", "TIDEGATE_TOTAL_SECONDS": "60"}
STALLS = DrainRequest("d", "Rollout", None, propagation=0, quiet=0, stalled_after=0.5)

Script = Callable[[Peer, Engine], Awaitable[None]]


def chunk(**fields: object) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()


def role(**delta: object) -> bytes:
    return chunk(choices=[{"index": 0, "delta": {"role": "assistant", **delta}, "finish_reason": None}])


def named(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\n".encode() + chunk(type=kind, **fields)


def scripted(kind: bytes, before: tuple[bytes, ...], *after: bytes) -> Script:
    """A head at once, with `before`; the rest when the test says so, a second apart."""

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in before:
            await peer.chunk(piece)
        await own.go.wait()
        for piece in after:
            await peer.chunk(piece)
            await asyncio.sleep(0.9)
        await peer.end_chunks()
        await peer.closed()

    return script


async def ask(gate: Front, path: str) -> Peer:
    """Ask, and wait for the head."""
    client = await gate.client()
    await client.request("POST", path, b"{}")
    await gate.until(lambda: client.reader._buffer)
    return client


def counts(gate: Front) -> tuple[object, ...]:
    state = gate.state()
    return state["inFlight"], state["queued"], state["streams"], state["stalled"]


EVENTS, NDJSON, JSON = b"text/event-stream", b"application/x-ndjson", b"application/json"
EARLY = {
    "a head": (CHAT, EVENTS, ()),
    "comments": (CHAT, EVENTS, (b": ping - 2026-01-01\n\n", b":\n\n")),
    "ping events": (CHAT, EVENTS, PINGS),
    "empty events": (CHAT, EVENTS, (b"data:\n\n", b"event: keepalive\ndata: {}\n\n")),
    "a role": (CHAT, EVENTS, (role(), role(content=""), role(content=None, tool_calls=[]))),
    "no choice": (CHAT, EVENTS, (chunk(choices=[], prompt_filter_results=[]),)),
    "prefill": (CHAT, EVENTS, (chunk(choices=[{"index": 0, "delta": {"role": "assistant"}}], prompt_progress={}),)),
    "no text": ("/v1/completions", EVENTS, (chunk(choices=[{"index": 0, "text": "", "finish_reason": None}]),)),
    "half an event": (CHAT, EVENTS, (CONTENT[:20],)),
    "a response's notices": (RESPONSES, EVENTS, (
        named("response.created", response={}), named("response.queued"), b'data: {"type":"response.in_progress"}\n\n'
    )),
    "a message's notices": (MESSAGES, EVENTS, (
        named("message_start", message={"content": [], "usage": {"output_tokens": 1}}), named("ping"))),
    "a native stream": ("/generate_stream", EVENTS, ()),
    "lines": ("/api/chat", NDJSON, ()),
    "a body": (CHAT, JSON, ()),
    "blanks": (CHAT, JSON, (b"\n", b" \r\n")),
}  # fmt: skip


@pytest.mark.parametrize(("path", "kind", "before"), EARLY.values(), ids=EARLY.keys())
async def test_a_head_is_not_the_begin_of_the_answer(path: str, kind: bytes, before: tuple[bytes, ...]) -> None:
    output = CONTENT if kind is EVENTS else LINE
    rest = CONTENT[20:] if before == (CONTENT[:20],) else output
    streams = int(kind is EVENTS)
    async with engine(scripted(kind, before, rest, output)) as own, front(own.port, options=IDLE) as gate:
        client = await ask(gate, path)
        await asyncio.sleep(20)
        assert counts(gate) == (1, 1, 0, 0)
        gate.gateway.drain.post(STALLS)
        await asyncio.sleep(20)
        assert (*counts(gate), gate.state()["state"]) == (1, 1, 0, 0, "draining")
        own.go.set()
        await gate.until(lambda: counts(gate)[:3] == (1, 0, streams))
        gate.gateway.drain.undrain("d")  # what follows is not quick enough for it
        body = (await client.hear()).body
        assert body.replace(b": keep-alive\n\n", b"") == b"".join(before) + rest + output
        assert (gate.failures(), gate.gateway.drain.contract.ever_cut) == ({}, 0)
        client.close()


@pytest.mark.parametrize(("kind", "before"), [(EVENTS, ()), (EVENTS, PINGS), (NDJSON, ()), (JSON, (b"\n",))])
async def test_who_waits_for_the_first_event_has_the_total_time(kind: bytes, before: tuple[bytes, ...]) -> None:
    async with engine(scripted(kind, before)) as own, front(own.port, options=IDLE) as gate:
        client = await ask(gate, CHAT)
        await client.closed()
        assert gate.failures() == {"total": 1}
        client.close()


FIRST = {
    CHAT: [CONTENT, b"event: ping\n\n" + CONTENT, CONTENT + PINGS[1],
           role(content="a"), role(tool_calls=[{"index": 0}]), chunk(choices=[{"text": "a"}]),
           chunk(choices=[], error={"message": "no"}), role().replace(b"null", b'"stop"'), b"data: [DONE]\n\n"],
    RESPONSES: [named("response.output_item.added"), named("response.output_text.delta", delta="a")],
    MESSAGES: [named("content_block_start"), named("error", error={})],
    "/generate_stream": [chunk(token={"text": "a"}), b"data: text\n\n", chunk(type=["ping"])],
}  # fmt: skip


@pytest.mark.parametrize(("path", "first"), [(path, first) for path, events in FIRST.items() for first in events])
async def test_the_first_event_begins_the_answer_and_what_is_then_silent_is_stalled(path: str, first: bytes) -> None:
    async with engine(scripted(EVENTS, (*PINGS, first))) as own, front(own.port) as gate:
        client = await ask(gate, path)
        await gate.until(lambda: counts(gate)[:3] == (1, 0, 1))
        gate.gateway.drain.post(STALLS)
        await client.hear()
        assert (gate.state()["state"], gate.state()["inFlight"]) == ("sealed", 0)
        client.close()


@pytest.mark.parametrize("kind", [EVENTS, NDJSON])
async def test_silence_after_the_first_event_is_limited(kind: bytes) -> None:
    first = CONTENT if kind is EVENTS else LINE
    async with engine(scripted(kind, (first,))) as own, front(own.port, options=IDLE) as gate:
        client = await ask(gate, CHAT)
        await client.closed()
        assert gate.failures() == {"idle": 1}
        client.close()


async def test_a_stream_that_begins_within_a_drain_and_stalls_does_not_hold_it() -> None:
    """Nothing else is due then: no deadline, no arrival, no end."""

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        await own.go.wait()
        await peer.chunk(CONTENT)
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await ask(gate, CHAT)
        gate.gateway.drain.post(STALLS)
        await asyncio.sleep(60)
        own.go.set()
        assert b'"shutdown"' in (await client.hear()).body
        assert (gate.state()["state"], gate.state()["cut"]) == ("sealed", 1)
        client.close()


@pytest.mark.parametrize("ping", [*PINGS, CONTENT[:20]])
async def test_a_sign_of_life_keeps_a_stream_from_being_stalled(ping: bytes) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        await peer.chunk(CONTENT)
        for _ in range(20):
            await asyncio.sleep(0.4)
            await peer.chunk(ping if ping in PINGS else b": " + CONTENT[:20])  # half an event, on and on
        await own.go.wait()
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await ask(gate, CHAT)
        await gate.until(lambda: gate.state()["streams"] == 1)
        gate.gateway.drain.post(STALLS)
        await asyncio.sleep(20 * 0.4)
        assert (gate.state()["state"], gate.state()["stalled"]) == ("draining", 0)
        assert b'"shutdown"' in (await client.hear()).body
        client.close()


async def test_a_web_socket_is_not_stalled_while_its_client_sends() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"GET /v1/realtime HTTP/1.1\r\nHost: e\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\n")
        gate.gateway.drain.post(STALLS)
        for _ in range(20):
            await client.send(b"\x82\x81\0\0\0\0a")
            await asyncio.sleep(0.4)
        assert counts(gate) == (1, 0, 1, 0)
        await client.rest()
        assert (gate.state()["state"], gate.state()["cut"]) == ("sealed", 1)
        client.close()


async def test_a_client_that_stops_its_upload_behind_an_early_head_is_let_go() -> None:
    async with engine(early_head) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: 9\r\n\r\n{")
        await client.closed()
        assert gate.failures() == {"client_gone": 1}
        client.close()


async def early_head(peer: Peer, own: Engine) -> None:
    await peer.reader.readuntil(b"\r\n\r\n")
    await peer.begin_events()
    await peer.closed()
