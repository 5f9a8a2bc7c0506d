"""Each API's clients are told of trouble in the form that their API documents, before and within an answer."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.rig import Engine, Front, Peer, engine, front
from tidegate.contract.terms import DrainRequest
from tidegate.gateway.dialects import Dialect, dialect_of
from tidegate.gateway.sse import Reader

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
TOKEN_FIELDS = {"reason": "Rollout", "requestId": "mine", "generatedTokens": 1}
NOW = DrainRequest("d", "Rollout", None, since_withdrawal=60, propagation=0)
SOON = DrainRequest("d", "Rollout", 0.6, propagation=0, flush=0.4)


def named(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


BEGUN = {
    MESSAGES: named("message_start", message={"usage": {"output_tokens": 1}})
    + named("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}),
    RESPONSES: named("response.created", sequence_number=0)
    + named("response.output_text.delta", delta="a", sequence_number=7),
}
OVER = {MESSAGES: named("message_stop"), RESPONSES: named("response.completed", sequence_number=8)}
# What vLLM makes of an aborted request, and what says in the API itself that somebody has cancelled it.
COMPLETED_CANCELLED = named("response.completed", sequence_number=8, response={"status": "cancelled", "output": []})
CANCELLED = named("response.cancelled", sequence_number=8, response={"status": "cancelled", "output": []})
WHOLE = {**OVER, "failed": named("response.failed", sequence_number=8), "error": named("error", error={"type": "x"})}


def stream(path: str, then: bytes = b""):
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        await peer.chunk(BEGUN[path])
        await own.go.wait()
        if then != b"reset":
            if then:
                await peer.chunk(then)
            await peer.end_chunks()
            await peer.closed()
        else:
            await asyncio.sleep(0.05)
            peer.reset()

    return script


async def begin(gate: Front, path: str, **headers: str) -> tuple[Peer, "asyncio.Task[bytes]"]:
    client = await gate.client()
    await client.request("POST", path, b"{}", X_Request_Id="mine", **headers)
    await gate.until(lambda: gate.state()["streams"] == 1)

    async def body() -> bytes:
        return (await client.hear()).body

    return client, asyncio.create_task(body())


def last_event(body: bytes, path: str) -> dict[str, Any]:
    """The event behind what the engine sent: an `event: error` line, one data line, and nothing after it."""
    assert body.startswith(BEGUN[path])
    event, nothing = body.removeprefix(BEGUN[path]).split(b"\n\n")
    name, data = event.split(b"\n")
    assert (name, nothing) == (b"event: error", b"")
    document = json.loads(data.removeprefix(b"data: "))
    assert isinstance(document, dict)
    return document


def check_event(document: dict[str, Any], path: str, code: str, kind: str) -> dict[str, Any]:
    """The documented form: Anthropic's {type, error: {type, message}}, Responses' {type, code, message, param, ...}."""
    error = document["error"]
    assert document["type"] == "error"
    assert isinstance(error["message"], str) and error["code"] == code
    if path == MESSAGES:
        assert error["type"] == kind
        assert document["request_id"] == "mine"
    else:
        own = {name: document[name] for name in ("code", "message", "param", "sequence_number")}
        assert own == {"code": code, "message": error["message"], "param": None, "sequence_number": 8}
        assert next(iter(document)) == "error"  # what the openai package raises for
    return dict(error)


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_the_token_ends_a_stream_as_an_error_of_its_own_api(path: str, tmp_path: Path) -> None:
    async with engine(stream(path)) as own, front(own.port, tmp_path) as gate:
        client, body = await begin(gate, path)
        gate.gateway.drain.post(SOON)
        document = last_event(await body, path)
        error = check_event(document, path, "server_shutdown", "overloaded_error")
        assert TOKEN_FIELDS.items() <= error.items() and TOKEN_FIELDS.items() <= document.items()
        assert str(error["resumeToken"]).startswith("tgr1.") and document["resumeToken"] == error["resumeToken"]
        client.close()


TOOL = named("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"a'})
DELTA = named("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 77})

REPEATED = [
    named("response.output_text.done", text="a.delta"), named("response.refusal.done", refusal="a"),
    named("response.content_part.done", part={"type": "output_text", "text": "a"}),
    named("response.output_item.done", item={"content": [{"type": "output_text", "text": "a"}], "arguments": "{}"}),
    named("response.function_call_arguments.done", arguments="{}"), named("response.output_text.delta", delta=""),
    named("response.completed", response={"output": [{"content": [{"text": "a"}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "then", "count"), [
    (MESSAGES, [TOOL, TOOL], 3), (MESSAGES, [named("message_start", usage={"output_tokens": 0}), TOOL], 2),
    (MESSAGES, [TOOL, DELTA], 77),
    (RESPONSES, [named("response.refusal.delta", delta="no")], 2),
    (RESPONSES, REPEATED, 1),
    (MESSAGES, [named("content_block_start", content_block={"type": "text", "text": "a"})], 1),
    (RESPONSES, [b'data: {"sequence_number":1,"delta" : "b","type" : "response.reasoning_text.delta"}\n\n'], 2),
])  # fmt: skip
def test_generated_tokens_are_counted_in_each_api_s_events(path: str, then: list[bytes], count: int) -> None:
    reader = Reader(dialect_of(path).stream)
    for event in (BEGUN[path], *then):
        reader.read(event)
    assert reader.generated == count


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_a_failure_ends_a_stream_as_an_error_of_its_own_api(path: str) -> None:
    async with engine(stream(path, b"reset")) as own, front(own.port) as gate:
        client, body = await begin(gate, path)
        own.go.set()
        check_event(last_event(await body, path), path, "upstream_reset", "api_error")
        assert gate.failures() == {"upstream_reset": 1}
        client.close()


@pytest.mark.parametrize("path", [MESSAGES, RESPONSES])
async def test_the_named_event_stands_alone_where_the_api_knows_no_done(path: str) -> None:
    async with engine(stream(path)) as own, front(own.port) as gate:
        client, body = await begin(gate, path, Tidegate_Shutdown="event")
        gate.gateway.drain.post(SOON)
        event, nothing = (await body).removeprefix(BEGUN[path]).split(b"\n\n")
        name, data = event.split(b"\n")
        assert (name, nothing) == (b"event: shutdown", b"")
        assert json.loads(data.removeprefix(b"data: ")) == TOKEN_FIELDS | {"type": "shutdown", "resumeToken": None}
        client.close()


@pytest.mark.parametrize(
    ("path", "then", "hidden"),
    [
        (MESSAGES, OVER[MESSAGES], False), (MESSAGES, WHOLE["error"], False), (MESSAGES, b"", True),
        (RESPONSES, OVER[RESPONSES], False), (RESPONSES, WHOLE["failed"], False), (RESPONSES, b"", True),
        (RESPONSES, named("response.incomplete", sequence_number=8), False),
        (RESPONSES, b'data: {"sequence_number": 8, "error": {"message": "no"}}\n\n', False),
        (MESSAGES, b'event: error\ndata: {"request_id": "r", "error": {"type": "x"}, "type": "error"}\n\n', False),
        (RESPONSES, COMPLETED_CANCELLED, True), (RESPONSES, CANCELLED, False),
        (MESSAGES, named("message_delta", delta={"stop_reason": None}) + OVER[MESSAGES], True),
        (MESSAGES, named("message_delta", delta={"stop_reason": "end_turn"}) + OVER[MESSAGES], False),
        (RESPONSES, b"data: [DONE]\n\n", True), (RESPONSES, OVER[RESPONSES] + b"data: [DONE]\n\n", False),
    ],
)  # fmt: skip
async def test_of_a_stopped_engine_an_end_that_its_api_does_not_know_becomes_the_token(
    path: str, then: bytes, hidden: bool
) -> None:
    async with engine(stream(path, then)) as own, front(own.port) as gate:
        client, body = await begin(gate, path)
        gate.gateway.drain.prestop()
        own.go.set()
        if hidden:
            check_event(last_event(await body, path), path, "server_shutdown", "overloaded_error")
        else:
            assert await body == BEGUN[path] + then
        assert gate.state()["cut"] == hidden
        client.close()


JSON = {
    "/v1/chat/completions": (
        b'{"choices": [{"finish_reason" : "abort", "message": {"content": "a"}}]}',
        b'{"choices": [{"finish_reason": "stop", "message": {"content": "\\"finish_reason\\": \\"abort\\""}}]}',
    ),
    "/generate": (b'{"text": "a", "meta_info": {"finish_reason": {"type": "abort"}}}', b'{"text": "a"}'),
    MESSAGES: (b'{"content": [], "stop_reason": null}', b'{"content": [], "stop_reason": "end_turn"}'),
    RESPONSES: (b'{"status": "cancelled", "output": []}', b'{"status": "incomplete", "output": []}'),
    RESPONSES + "/r1/cancel": (b"", b'{"status": "cancelled"}'),
    "/v1/embeddings": (b"", b'{"data": []}'),
}


@pytest.mark.parametrize("end", ["whole", "aborted", "broken", "aborted, by nobody"])
@pytest.mark.parametrize("path", JSON)
async def test_a_stopped_engine_s_abort_of_a_body_becomes_a_retryable_refusal(path: str, end: str) -> None:
    aborted, whole = JSON[path]
    body = whole if end in ("whole", "broken") or not aborted else aborted

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await own.go.wait()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        for piece in (head, body[:9], body[9:]):
            await peer.send(piece if end != "broken" or piece != body[9:] else b"")
            await asyncio.sleep(0.1)
        if end == "broken":
            peer.close()
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", path, b"{}")
        await gate.until(lambda: own.peers)
        if end == "aborted, by nobody":
            gate.gateway.drain.post(DrainRequest("d", "Rollout", None, propagation=60))
        else:
            gate.gateway.drain.prestop()
        own.go.set()
        heard = await client.hear()
        cut = end == "broken" or (end == "aborted" and aborted != b"")
        if cut:
            assert (heard.head.status_code, heard.fields[b"retry-after"]) == (503, b"1")
            assert json.loads(heard.body)["error"]["code"] == "server_shutdown"
        else:
            assert (heard.head.status_code, heard.body) == (200, body)
        assert (gate.state()["inFlight"], gate.state()["cut"]) == (0, cut)
        client.close()


async def silent(peer: Peer, own: Engine) -> None:
    await peer.hear()
    await peer.closed()


@pytest.mark.parametrize(
    ("options", "drain", "status", "code", "kind"),
    [
        ({"TIDEGATE_TOTAL_SECONDS": "0.3"}, None, 504, "total_timeout", "timeout_error"),
        ({}, SOON, 503, "server_shutdown", "overloaded_error"),
        ({}, NOW, 503, "server_draining", "overloaded_error"),
    ],
    ids=["a failure", "the token", "a refusal"],
)
@pytest.mark.parametrize("path", [MESSAGES, MESSAGES + "/count_tokens", RESPONSES])
async def test_before_the_answer_the_body_is_that_of_the_api(
    path: str, options: dict[str, str], drain: DrainRequest | None, status: int, code: str, kind: str
) -> None:
    async with engine(silent) as own, front(own.port, options=options) as gate:
        if drain is NOW:
            held = await gate.client()
            await held.request("POST", path, b"{}")
            await gate.until(lambda: gate.state()["queued"] == 1)
            gate.gateway.drain.post(NOW)
        client = await gate.client()
        await client.request("POST", path, b"{}", X_Request_Id="mine")
        if drain is SOON:
            await gate.until(lambda: gate.state()["queued"] == 1)
            gate.gateway.drain.post(SOON)
        heard = await client.hear()
        document = json.loads(heard.body)
        assert heard.head.status_code == status
        assert heard.fields.get(b"retry-after") == (b"1" if drain else None)
        assert document["error"]["code"] == code
        if path.startswith(MESSAGES):
            assert (document["type"], document["error"]["type"], document["request_id"]) == ("error", kind, "mine")
        else:
            assert next(iter(document)) == "error"
        if drain is NOW:
            held.close()
        client.close()


async def test_a_bad_request_of_anthropic_s_client_is_told_in_its_form() -> None:
    async with engine(silent) as own, front(own.port) as gate:
        client = await gate.client()
        refused = await client.ask("POST", MESSAGES, b"{}", Tidegate_Deadline_Seconds="soon")
        document = json.loads(refused.body)
        assert (refused.head.status_code, document["type"]) == (400, "error")
        assert document["error"]["type"] == "invalid_request_error"
        client.close()


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/messages", Dialect.MESSAGES), ("/llm/v1/messages", Dialect.MESSAGES), ("/v1/messagesx", Dialect.CHAT),
        ("/v1/responses/r1/cancel", Dialect.RESPONSES), ("/responses", Dialect.RESPONSES),
        ("/openai/responses", Dialect.RESPONSES), ("/my/responses", Dialect.CHAT), ("/messages", Dialect.CHAT),
        ("/v1/threads/t/messages", Dialect.CHAT), ("/openai/v1/responses", Dialect.RESPONSES),
        ("/v1/chat/completions", Dialect.CHAT), ("*", Dialect.CHAT),
    ],
)  # fmt: skip
def test_the_path_says_which_api_is_spoken(path: str, dialect: Dialect) -> None:
    assert dialect_of(path) is dialect
