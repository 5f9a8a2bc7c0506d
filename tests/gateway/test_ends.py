"""How a drain ends what runs: tokens, refusals, close frames, and what an engine would have hidden."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.rig import Engine, Front, Peer, echo, engine, front
from tidegate.contract.terms import DrainRequest
from tidegate.contract.token import verify
from tidegate.gateway import timers
from tidegate.gateway.sse import Reader
from tidegate.gateway.websocket import Frames, close_frame

CONTENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n'
ABORT = b'data: {"choices": [{"delta": {}, "finish_reason": "abort"}]}\n\n'
STOP = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
HOLD = DrainRequest("d", "Rollout", None, propagation=60)
SOON = DrainRequest("d", "Rollout", 0.6, propagation=0, flush=0.4)


def choice(index: int, reason: str | None, **delta: object) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': index, 'delta': delta, 'finish_reason': reason}]})}\n\n".encode()


TWO = choice(0, "stop"), choice(1, None, content="b")
CALL = {"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}


def token_of(body: bytes) -> dict[str, object]:
    """The token at the end of a stream, checked for its form."""
    *_, token, done, nothing = body.split(b"\n\n")
    assert (done, nothing) == (b"data: [DONE]", b"")
    assert token.startswith(b'data: {"error": {')
    document = json.loads(token.removeprefix(b"data: "))
    fields = {name: value for name, value in document.items() if name != "error"}
    assert fields.items() <= document["error"].items()
    assert (fields["type"], document["error"]["code"], document["error"]["param"]) == (
        "shutdown",
        "server_shutdown",
        None,
    )
    return fields


def stream(*pieces: bytes, then: bytes = b"", end: bool = False):
    """An engine that sends these events, waits until the pod drains, and sends the rest."""

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        for piece in pieces:
            await peer.chunk(piece)
        await own.go.wait()
        if then:
            await peer.chunk(then)
        if end:
            await peer.end_chunks()
        await peer.closed()
        own.gone.set()

    return script


async def begin(gate: Front, **headers: str) -> tuple[Peer, "asyncio.Task[bytes]"]:
    client = await gate.client()
    await client.request("POST", "/v1/chat/completions", b"{}", X_Request_Id="mine", **headers)
    await gate.until(lambda: gate.state()["streams"] == 1)

    async def body() -> bytes:
        return (await client.hear()).body

    return client, asyncio.create_task(body())


@pytest.mark.parametrize("piece", [b"", CONTENT[:30], CONTENT + CONTENT[:-1], CONTENT[:-2] + b"\n"])
async def test_the_token_comes_between_two_events_wherever_the_engine_stands(piece: bytes, tmp_path: Path) -> None:
    async with engine(stream(CONTENT, *([piece] if piece else []))) as own, front(own.port, tmp_path) as gate:
        client, body = await begin(gate)
        await gate.until(lambda: len(client.reader._buffer) or client.raw)
        await asyncio.sleep(0.1)
        gate.gateway.drain.post(SOON)
        own.go.set()
        told = token_of(await body)
        whole = 1 + piece.count(b"\n\n")
        assert (await body).startswith(CONTENT * whole + b'data: {"error"')
        assert (told["reason"], told["requestId"], told["generatedTokens"]) == ("Rollout", "mine", whole)
        claims = verify([b"other", b"drain-key"], str(told["resumeToken"]))
        assert (claims["id"], claims["n"], claims["path"]) == ("mine", whole, "/v1/chat/completions")
        with pytest.raises(ValueError, match="signed"):
            verify([b"other"], str(told["resumeToken"]))
        await asyncio.wait_for(own.gone.wait(), 20)  # the engine was told to stop
        assert (await client.rest(), gate.state()["cut"]) == (b"", 1)
        client.close()


async def test_the_token_can_be_a_named_event_and_has_no_resume_token_without_a_key(tmp_path: Path) -> None:
    async with engine(stream(CONTENT)) as own, front(own.port, tmp_path) as gate:
        (tmp_path / "current").write_text("\n")
        client, body = await begin(gate, Tidegate_Shutdown="event")
        gate.gateway.drain.post(SOON)
        _, token, done, _ = (await body).split(b"\n\n")
        assert done == b"data: [DONE]"
        name, data = token.split(b"\n")
        assert name == b"event: shutdown"
        assert json.loads(data.removeprefix(b"data: ")) == {
            "type": "shutdown", "reason": "Rollout", "requestId": "mine", "generatedTokens": 1, "resumeToken": None,
        }  # fmt: skip
        client.close()


async def test_the_engine_s_own_count_of_tokens_is_told_where_it_has_one() -> None:
    usage = b'data: {"choices": [{"delta": {"content": "b"}}], "usage": {"completion_tokens": 77}}\n\n'
    async with engine(stream(CONTENT, usage)) as own, front(own.port) as gate:
        client, body = await begin(gate)
        await gate.until(lambda: b"77" in bytes(client.reader._buffer) + client.raw)
        gate.gateway.drain.post(SOON)
        assert token_of(await body)["generatedTokens"] == 77
        client.close()


@pytest.mark.parametrize(
    ("deltas", "count"),
    [
        ([{"refusal": "no"}, {"refusal": None}, {"refusal": " I"}], 2),
        ([{"content": "a"}, {"content": ""}, {"reasoning_content": "b"}, CALL], 3),
    ],
)
def test_every_event_with_generated_text_counts(deltas: list[dict[str, object]], count: int) -> None:
    reader = Reader()
    for delta in deltas:
        reader.read(choice(0, None, **delta))
    assert reader.generated == count


HIDDEN = {
    "abort": (ABORT + DONE, True),
    "abort alone": (ABORT, False),
    "bare done": (DONE, True),
    "content and done": (CONTENT + DONE, True),
    "a clean end": (CONTENT, True),
    "an empty end": (b"", True),
    "an empty reason": (STOP.replace(b"stop", b"") + DONE, True),
    "one choice of two": (TWO[1] + TWO[0] + DONE, True),
    "a later choice": (TWO[0] + TWO[1] + DONE, True),
    "a later choice and a clean end": (TWO[0] + TWO[1], True),
    "no error": (b'data: {"error": null, "choices": []}\n\n' + DONE, True),
    "a word": (choice(0, None, content='"error": "type"') + DONE, True),
}


def stop_by(gate: Front, how: str) -> None:
    """Bring the drain to the point at which the engine may have been told to stop."""
    if how == "POST and preStop":
        gate.gateway.drain.post(HOLD)
    if how == "SIGTERM":
        gate.gateway.drain.sigterm()
    else:
        gate.gateway.drain.prestop()


@pytest.mark.parametrize("how", ["POST and preStop", "SIGTERM", "preStop"])
@pytest.mark.parametrize(("then", "end"), HIDDEN.values(), ids=HIDDEN.keys())
async def test_an_end_by_which_a_stopped_engine_hides_a_cut_becomes_the_token(then: bytes, end: bool, how: str) -> None:
    async with engine(stream(CONTENT, then=then, end=end)) as own, front(own.port) as gate:
        client, body = await begin(gate)
        stop_by(gate, how)
        own.go.set()
        told = token_of(await body)
        content = 1 + then.count(b'"content"')
        assert (await body).count(b'"content"') == content == told["generatedTokens"]
        assert b"abort" not in await body
        assert gate.state()["cut"] == 1
        client.close()


@pytest.mark.parametrize("draining", [True, False])
@pytest.mark.parametrize("then", [then for then, end in HIDDEN.values() if end])
async def test_what_an_engine_says_that_nothing_has_stopped_passes_as_it_is(then: bytes, draining: bool) -> None:
    async with engine(stream(CONTENT, then=then, end=True)) as own, front(own.port) as gate:
        client, body = await begin(gate)
        if draining:
            gate.gateway.drain.post(HOLD)
        own.go.set()
        assert await body == CONTENT + then
        assert (gate.state()["cut"], gate.failures()) == (0, {})
        client.close()


async def test_an_engine_that_came_back_after_prestop_is_not_being_stopped() -> None:
    async with engine(stream(CONTENT, then=DONE, end=True)) as own, front(own.port) as gate:
        drain = gate.gateway.drain
        client, body = await begin(gate)
        drain.post(HOLD)
        drain.prestop()
        drain.engine_gone()
        drain.engine_back()
        own.go.set()
        assert await body == CONTENT + DONE
        assert (gate.state()["state"], gate.state()["cut"]) == ("draining", 0)
        client.close()


WHOLE = {
    "stop and done": STOP + DONE,
    "stop alone": STOP,
    "an error": b'data: {"error": {"message": "no"}}\n\n' + DONE,
    "an error behind another key": b'data: {"id": "x", "error": {"message": "no"}}\n\n' + DONE,
    "an error that is a text": b'data:{"id":"x","error" :"no","error_type":"overloaded"}\n\n',
    "an error by its type": b'data: {"message": "no", "type": "error"}\n\n',
    "an error by its object": b'data: {"message": "no", "code": 400, "object": "error"}\n\n' + DONE,
    "an error by its name": b'event: error\ndata: {"message": "no"}\n\n' + DONE,
    "an error in several lines": b'data: {\ndata:  "id": "x",\ndata:  "error": {"code": 1}\ndata: }\n\n' + DONE,
    "an abort behind an error": b'data: {"code": 500, "error": {"message": "no"}}\n\n' + ABORT + DONE,
    "an engine's own word": choice(0, "STOP") + DONE,
    "two choices": choice(1, None, content="b") + choice(0, "stop") + choice(1, "length") + DONE,
    "two choices in one event": b'data: {"choices": [{"index": 0, "finish_reason": "stop"}, '
    b'{"index": 1, "finish_reason": "stop"}]}\n\n' + DONE,
    "a second tool call of the one choice": choice(0, None, **CALL) + choice(0, "tool_calls") + DONE,
    "figures behind the end": STOP + b'data: {"choices": [], "usage": {"completion_tokens": 1}}\n\n' + DONE,
    "a choice behind an error": b'data: {"error": {"message": "no"}}\n\n' + choice(1, None) + DONE,
}


@pytest.mark.parametrize("then", WHOLE.values(), ids=WHOLE.keys())
async def test_an_end_that_hides_nothing_passes_while_draining(then: bytes) -> None:
    async with engine(stream(CONTENT, then=then, end=True)) as own, front(own.port) as gate:
        client, body = await begin(gate)
        gate.gateway.drain.prestop()
        own.go.set()
        assert await body == CONTENT + then
        assert gate.state()["cut"] == 0
        client.close()


FOREIGN = b'data: {"type": "partial", "b64": "x"}\n\n'


@pytest.mark.parametrize("then", [DONE, b": still here\n\n" + DONE])
@pytest.mark.parametrize("first", [b": hello\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', FOREIGN])
async def test_only_a_stream_of_another_api_ends_with_done_alone(first: bytes, then: bytes) -> None:
    async with engine(stream(first, then=then, end=True)) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/chat/completions", b"{}")
        await gate.until(lambda: bytes(client.reader._buffer).endswith(first + b"\r\n"))
        gate.gateway.drain.prestop()
        own.go.set()
        body = (await client.hear()).body
        if first is FOREIGN:
            assert body == FOREIGN + then
        else:
            assert body.startswith(first + then.removesuffix(DONE))
            assert token_of(body)["generatedTokens"] == 0
        assert gate.state()["cut"] == (first is not FOREIGN)
        client.close()


@pytest.mark.parametrize("how", ["deadline", "silence", "reset"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_nothing_follows_the_end_of_a_stream_whose_framing_does_not_end(path: str, how: str) -> None:
    """An engine that keeps the connection, or drops it, behind all that the client waits for."""
    then = STOP + DONE if path.endswith("completions") else b'data: {"type": "response.cancelled"}\n\n'

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        await peer.chunk(CONTENT)
        await peer.chunk(then)
        await own.go.wait()
        if how == "reset":
            peer.close()
        await peer.closed()

    async with engine(script) as own, front(own.port, options={"TIDEGATE_IDLE_SECONDS": "5"}) as gate:
        client = await gate.client()
        await client.request("POST", path, b"{}")
        await gate.until(lambda: bytes(client.reader._buffer).endswith(then + b"\r\n"))
        gate.gateway.drain.post(SOON if how == "deadline" else HOLD)
        own.go.set()
        assert (await client.hear()).body == CONTENT + then
        assert (gate.state()["inFlight"], gate.state()["cut"], gate.gateway.metrics.tokens) == (0, 0, 0)
        assert (gate.failures(), gate.gateway.drain.contract.ever_cut) == ({}, 0)
        client.close()


@pytest.mark.sockets
async def test_an_engine_that_dies_while_draining_leaves_tokens() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        if len(own.peers) == 1:
            await peer.begin_events()
            await peer.chunk(CONTENT)
        await own.go.wait()
        peer.reset()

    async with engine(script) as own, front(own.port) as gate:
        client, body = await begin(gate)
        waiting = await gate.client()
        await waiting.request("POST", "/v1/x", b"{}")
        await gate.until(lambda: len(own.peers) == 2)
        gate.gateway.drain.post(HOLD)
        own.go.set()
        assert token_of(await body)["generatedTokens"] == 1
        refused = await waiting.hear()
        assert (refused.head.status_code, refused.fields[b"retry-after"]) == (503, b"1")
        assert json.loads(refused.body)["type"] == "shutdown"
        assert gate.state()["cut"] == 2
        client.close()
        waiting.close()


@pytest.mark.parametrize("head", [b"Content-Length: 6", b"Transfer-Encoding: chunked"])
async def test_any_other_body_that_a_stopped_engine_cuts_counts_as_cut(head: bytes) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n3\r\n{}")
        await own.go.wait()
        peer.close()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/x", b"{}")
        await gate.until(lambda: bytes(client.reader._buffer).endswith(b"{}"))
        gate.gateway.drain.prestop()
        own.go.set()
        with pytest.raises(Exception, match=r"peer|reset|[Cc]onnection|receive"):
            await client.hear()
        assert (gate.state()["inFlight"], gate.state()["cut"], gate.failures()) == (0, 1, {"upstream_reset": 1})
        client.close()


async def test_a_request_without_an_answer_gets_the_token_as_a_retryable_refusal() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/x", b"{}")
        await gate.until(lambda: gate.state()["queued"] == 1)
        gate.gateway.drain.post(SOON)
        heard = await client.hear()
        assert heard.head.status_code == 503
        assert (heard.fields[b"retry-after"], heard.fields[b"connection"]) == (b"1", b"close")
        document = json.loads(heard.body)
        assert next(iter(document)) == "error"
        assert (document["type"], document["generatedTokens"]) == ("shutdown", 0)
        client.close()


async def test_a_body_that_cannot_be_written_into_has_until_the_deadline() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
        first = len(own.peers) == 1
        await own.go.wait()
        await asyncio.sleep(0.3)  # past the moment of the tokens
        if first:
            await peer.send(b"def")
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        quick, never = await gate.client(), await gate.client()
        await quick.request("GET", "/v1/x")
        await gate.until(lambda: len(own.peers) == 1)
        await never.request("GET", "/v1/x")
        await gate.until(lambda: len(own.peers) == 2)
        gate.gateway.drain.post(DrainRequest("d", "", 5.0, propagation=0, flush=4.9))
        own.go.set()
        assert (await quick.hear()).body == b"abcdef"
        await gate.until(lambda: gate.state()["inFlight"] == 1)
        assert gate.state()["cut"] == 0
        with pytest.raises(Exception, match=r"peer|reset|[Cc]onnection|receive"):
            await never.hear()
        assert (gate.state()["cut"], gate.state()["state"]) == (1, "sealed")
        quick.close()
        never.close()


async def test_late_arrivals_are_served_during_propagation_and_then_refused() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        while True:
            await peer.hear()
            await peer.answer(200, b"ok")

    async with engine(script) as own, front(own.port) as gate:
        held = await gate.client()
        first = await held.ask("POST", "/v1/x", b"{}")
        assert b"connection" not in first.fields
        gate.gateway.drain.post(DrainRequest("d", "Rollout", None, propagation=60, quiet=60))
        late = await held.ask("POST", "/v1/x", b"{}")
        assert (late.head.status_code, late.fields[b"connection"]) == (200, b"close")
        gate.gateway.drain.post(DrainRequest("d", "Rollout", None, since_withdrawal=61, propagation=60, quiet=60))
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, json.loads(heard.body)["error"]["code"]) == (503, "server_draining")
        assert (heard.fields[b"retry-after"], heard.fields[b"connection"]) == (b"1", b"close")
        assert gate.state()["state"] == "draining"  # a refused one is an arrival too, and puts the seal off
        assert await client.rest() == b""
        gate.gateway.drain.undrain("d")
        client = await gate.client()
        assert (await client.ask("POST", "/v1/x", b"{}")).head.status_code == 200
        client.close()
        held.close()


async def test_an_arrival_in_the_moment_of_the_tokens_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    async with engine(echo) as own, front(own.port) as gate:
        contract = gate.gateway.drain.contract
        gate.gateway.drain.post(DrainRequest("d", "", 60, propagation=60, flush=1))
        arrive = contract.arrive

        def arrives(work_id: str, now: float, **how: bool) -> object:
            admission = arrive(work_id, now, **how)
            contract.post(DrainRequest("d", "", 0.5, propagation=60, flush=1), now)
            return admission

        monkeypatch.setattr(contract, "arrive", arrives)
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, json.loads(heard.body)["type"]) == (503, "shutdown")
        assert (gate.state()["inFlight"], gate.state()["cut"], own.heard, problems) == (0, 1, [], [])
        client.close()


async def test_probes_through_the_gateway_are_neither_work_nor_arrivals() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        while True:
            await peer.hear()
            await peer.answer(200, b"ok")

    async with engine(script) as own, front(own.port, options={"TIDEGATE_READY_PATH": "/ready-or-not"}) as gate:
        client = await gate.client()
        for path in ("/health", "/ready-or-not", "/metrics"):
            assert (await client.ask("GET", path)).head.status_code == 200
        assert gate.state()["lastArrivalSeconds"] is None
        await client.ask("POST", "/health", b"{}")
        assert gate.state()["lastArrivalSeconds"] is not None
        client.close()


async def test_quiet_streams_get_comments_while_draining_and_none_before() -> None:
    script = stream(CONTENT, CONTENT[:9], then=CONTENT[9:] + STOP + DONE, end=True)
    async with engine(script) as own, front(own.port) as gate:
        client, body = await begin(gate)
        await asyncio.sleep(4 * timers.KEEP_ALIVE_SECONDS)
        assert b": keep-alive" not in bytes(client.reader._buffer) + client.raw
        gate.gateway.drain.post(HOLD)
        await asyncio.sleep(2.5 * timers.KEEP_ALIVE_SECONDS)
        # The first one at once: the stream had been quiet for long.
        assert (bytes(client.reader._buffer) + client.raw).count(b": keep-alive") == 3
        own.go.set()
        assert (await body).replace(b": keep-alive\n\n", b"") == CONTENT * 2 + STOP + DONE
        client.close()


def frame(payload: bytes, *, mask: bool = False) -> bytes:
    head = bytes([0x82])
    size = len(payload)
    flag = 0x80 if mask else 0
    if size < 126:
        head += bytes([flag | size])
    elif size < 65536:
        head += bytes([flag | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([flag | 127]) + size.to_bytes(8, "big")
    return head + (bytes(4) if mask else b"") + payload


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536])
def test_frames_are_told_apart_in_pieces_of_any_size(size: int) -> None:
    data = frame(bytes(size), mask=True) + frame(bytes(size))
    for step in (1, 3, len(data)):
        frames, ends = Frames(), 0
        for at in range(0, len(data), step):
            ends += frames.feed(data[at : at + step]) > 0
        assert frames.between
        assert ends == (1 if step == len(data) else 2)


async def web_socket(peer: Peer, own: Engine) -> None:
    """Echoes frames until told to stop in the middle of one."""
    await peer.reader.readuntil(b"\r\n\r\n")
    await peer.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + frame(b"hi")
    )
    while data := await peer.reader.read(65536):
        await peer.send(data)
    peer.writer.write_eof()
    own.gone.set()


async def shake_hands(gate: Front, path: bytes = b"/v1/realtime") -> Peer:
    client = await gate.client()
    await client.send(b"GET " + path + b" HTTP/1.1\r\nHost: e\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    assert b"Upgrade: websocket" in head
    assert await client.reader.readexactly(4) == frame(b"hi")
    return client


@pytest.mark.parametrize("path", [b"/v1/realtime", b"/health"])
async def test_a_web_socket_is_tunnelled_and_counted(path: bytes) -> None:
    async with engine(web_socket) as own, front(own.port) as gate:
        client = await shake_hands(gate, path)
        for size in (1, 200, 100_000):
            data = frame(bytes(size), mask=True)
            await client.send(data)
            assert await client.reader.readexactly(len(data)) == data
        assert (gate.state()["inFlight"], gate.state()["streams"]) == (1, 1)
        client.writer.write_eof()
        assert await client.rest() == b""
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert gate.failures() == {}
        client.close()


@pytest.mark.parametrize("half", [False, True])
async def test_a_web_socket_gets_a_close_frame_between_two_frames(half: bool) -> None:
    whole = frame(bytes(300), mask=True)
    async with engine(web_socket) as own, front(own.port) as gate:
        client = await shake_hands(gate)
        await client.send(whole[:100] if half else whole)
        assert await client.reader.readexactly(100 if half else len(whole)) == whole[: 100 if half else None]
        gate.gateway.drain.post(DrainRequest("d", "", 5, propagation=0, flush=4.9))
        await gate.until(lambda: gate.state()["cut"] == 1)
        if half:
            await client.send(whole[100:])
            assert await client.reader.readexactly(len(whole) - 100) == whole[100:]
        assert await client.rest() == close_frame(1001, "server shutdown")
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        client.close()
