"""The contract over real sockets and signals, for the service that drains itself and for the gateway before it."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from apps.check import Client, Cut, Refused
from apps.gateway import gateway_and_engine
from apps.running import KEY, LIMIT_SECONDS, Server, call, server

Start = Callable[..., AbstractAsyncContextManager[Server]]
LONG = 120
"""Tokens of a stream that still runs, at 30 a second, when the calls that are about it have been made."""


@pytest.fixture(params=["service", "gateway"])
def start(request: pytest.FixtureRequest) -> Start:
    return server if request.param == "service" else gateway_and_engine


async def test_every_drain_call_needs_the_key(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, TIDEGATE_PRESTOP_KEY="prestop-key") as s:
        for given in (None, "", "wrong", "drain-ke", "prestop-key"):
            for method, path in (("POST", "/drain"), ("DELETE", "/drain?id=d"), ("GET", "/drain"), ("PUT", "/drain")):
                assert (await s.call(method, path, {"id": "d"}, key=given)).status == 401
            if given != "prestop-key":
                assert (await s.call("GET", "/drain/prestop", key=given)).status == 401
        assert (await s.state())["state"] == "serving"
        for path in ("/readyz", "/livez"):
            assert (await s.call("GET", path, key=None)).status == 200


async def test_without_any_key_there_is_no_drain(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, key=None, TIDEGATE_PRESTOP_KEY="") as s:
        for given in (None, "", "x"):
            assert (await s.call("POST", "/drain", {"id": "d"}, key=given)).status == 401
            assert (await s.call("GET", "/drain/prestop", key=given)).status == 401
        assert (await s.call("GET", "/readyz", key=None)).status == 200


async def test_keys_are_read_again_when_they_rotate(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        (s.keys / "previous").write_text(KEY)
        (s.keys / "current").write_text("new")
        assert [(await s.call("GET", "/drain", key=key)).status for key in (KEY, "new")] == [200, 200]
        (s.keys / "previous").unlink()
        assert [(await s.call("GET", "/drain", key=key)).status for key in (KEY, "new")] == [401, 200]


async def test_a_drain_waits_for_its_streams_and_serves_late_ones(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        streams = [s.stream(LONG, 30, f"s{number}") for number in range(3)]
        await s.begun(3)
        state = await s.drain(reason="Rollout", remainingSeconds=60, propagationSeconds=4, quietSeconds=0.1)
        assert (state["state"], state["drainId"], state["inFlight"], state["streams"]) == ("draining", "d", 3, 3)
        assert (await s.call("GET", "/readyz")).status == 503
        assert (await s.call("GET", "/livez")).status == 200
        late = await call(s.port, "POST", "/v1/completions", b'{"max_tokens": 2}', {"Connection": "keep-alive"})
        assert (late.status, late.headers["connection"]) == (200, "close")
        state = await s.sealed()
        assert (state["inFlight"], state["cut"], state["drainId"]) == (0, 0, "d")
        assert [(await stream).tokens for stream in streams] == [LONG, LONG, LONG]
        refused = await call(s.port, "POST", "/v1/completions", b"{}")
        assert (refused.status, refused.headers["retry-after"], refused.headers["connection"]) == (503, "1", "close")
        assert refused.json()["error"]["code"] == "server_draining"
        assert (await s.call("GET", "/livez")).status == 200
        assert (await s.call("DELETE", "/drain?id=d")).status == 409
        assert s.process.returncode is None


async def test_the_waiting_get_answers_at_the_change_at_once_or_after_the_wait(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        state = await s.state()
        assert (await s.state("100ms", state["sequence"]))["sequence"] == state["sequence"]
        waiting = asyncio.create_task(s.state("60s", state["sequence"]))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await s.drain(propagationSeconds=60)
        assert (await waiting)["state"] == "draining"
        assert (await s.state("60s", state["sequence"]))["state"] == "draining"
        await s.drain(propagationSeconds=0)
        sealed = await s.sealed()
        assert (await s.state("60s", sealed["sequence"])) == sealed | {}


async def test_a_wrong_call_is_refused_and_changes_nothing(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        for query in ("wait=soon", "wait=-1s", "since=x", "wait=5h"):
            assert (await s.call("GET", f"/drain?{query}")).status == 400
        for body in (b"", b"not json", b"[]", b'{"id": ""}', b'{"id": "d", "remainingSeconds": "x"}'):
            assert (await s.call("POST", "/drain", body)).status == 400
        assert (await s.state())["state"] == "serving"


async def test_post_delete_post(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        stream = s.stream(LONG, 30)
        await s.begun()
        first = await s.drain("a", propagationSeconds=0)
        assert (await s.call("DELETE", "/drain?id=b")).status == 409
        back = await s.call("DELETE", "/drain?id=a")
        assert (back.status, back.json()["state"], back.json()["drainId"]) == (200, "serving", None)
        assert (await s.call("GET", "/readyz")).status == 200
        assert (await s.ask(Client(s.target, keep_alive=True), "x", 1, 0)).tokens == 1
        again = await s.drain("b", propagationSeconds=0)
        assert again["sequence"] == first["sequence"] + 2
        assert (await s.sealed())["drainId"] == "b"
        assert (await stream).tokens == LONG


async def test_prestop_and_post_at_once(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, TIDEGATE_PRESTOP_KEY="p") as s:
        stream = s.stream(LONG, 30)
        await s.begun()
        prestop = asyncio.create_task(s.call("GET", "/drain/prestop", key="p"))
        await s.logged("prestop")
        assert (await s.state())["drainId"] is None
        assert (await s.drain("d"))["drainId"] == "d"
        assert not prestop.done()
        assert (await prestop).json()["inFlight"] == 0
        assert (await s.sealed())["drainId"] == "d"
        assert (await stream).tokens == LONG
        assert (await s.call("GET", "/drain/prestop")).status == 200


async def test_prestop_alone_never_seals_and_its_deadline_sends_tokens(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, TIDEGATE_GRACE_SECONDS="1") as s:
        stream = s.stream(1000, 20)
        await s.begun()
        answer = await s.call("GET", "/drain/prestop")
        assert (answer.json()["state"], answer.json()["cut"]) == ("draining", 1)
        with pytest.raises(Cut, match=r"^token$"):
            await stream
        await asyncio.sleep(0.7)
        assert (await s.state())["state"] == "draining"


async def test_the_shutdown_token_has_the_form_that_clients_notice(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        body = b'{"stream": true, "max_tokens": 100, "tidegate_test": {"rate": 20}}'
        raw = asyncio.create_task(call(s.port, "POST", "/v1/completions", body, {"X-Request-Id": "r"}))
        whole = asyncio.create_task(call(s.port, "POST", "/v1/completions", body.replace(b"true", b"false")))
        await s.begun()
        async with asyncio.timeout(LIMIT_SECONDS):
            while (await s.state())["inFlight"] != 2:  # noqa: ASYNC110  (another process counts)
                await asyncio.sleep(0.01)
        await s.drain(reason="Rollout", remainingSeconds=0.8, flushSeconds=0.5)
        # Which events share a chunk is nobody's business.
        lines = [line for line in (await raw).body.decode().splitlines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        assert (await raw).body.endswith(b"0\r\n\r\n")
        token = json.loads(lines[-2].removeprefix("data: "))
        assert next(iter(token)) == "error"
        fields = {key: value for key, value in token.items() if key not in ("error", "resumeToken")}
        sent = sum('"text": "' in line for line in lines)
        assert fields == {
            "type": "shutdown", "reason": "Rollout", "requestId": "r", "generatedTokens": sent,
        }  # fmt: skip
        assert fields.items() <= token["error"].items()
        assert token["resumeToken"] == token["error"]["resumeToken"]
        assert ((await whole).status, (await whole).json()["type"]) == (503, "shutdown")
        assert (await s.sealed())["cut"] == 2


async def test_at_the_seal_idle_connections_get_a_fin_and_the_process_lingers(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        reader, writer = await asyncio.open_connection("127.0.0.1", s.port)
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"connection: close" not in (await reader.readuntil(b"\r\n\r\n")).lower()
        await s.drain(propagationSeconds=0)
        await s.sealed()
        async with asyncio.timeout(20):
            assert (await reader.read(-1)).startswith(b'{"object": "list"')  # and then the end, not a reset
        writer.close()
        assert s.process.returncode is None


async def test_a_client_that_goes_is_no_longer_in_flight(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, MISBEHAVE="stall-streams") as s:
        stream = s.stream(100, 100)
        await s.begun()
        before = await s.state()
        stream.cancel()
        state = await s.state("60s", before["sequence"])
        assert state["inFlight"] == 0
        assert (await s.logged("stream-end"))[0]["by"] == "client-gone"


async def test_a_client_that_does_not_read_is_in_flight_until_its_last_byte(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        small = socket.socket()
        small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        small.connect(("127.0.0.1", s.port))
        reader, writer = await asyncio.open_connection(sock=small, limit=1024)
        body = b'{"stream": true, "max_tokens": 8000}'
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await s.begun()
        await s.drain(propagationSeconds=0)
        await asyncio.sleep(0.5)
        assert (await s.state())["inFlight"] == 1
        async with asyncio.timeout(25):
            # The last bytes may come in two reads.
            end = b""
            while not end.endswith(b"0\r\n\r\n"):
                data = await reader.read(1 << 20)
                assert data, "it ended before its end"
                end = (end + data)[-5:]
        assert (await s.sealed())["cut"] == 0
        writer.close()


async def test_a_stalled_stream_is_ended_with_a_token(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, MISBEHAVE="stall-streams") as s:
        stream = s.stream(10, 100)
        await s.begun()
        await s.drain(propagationSeconds=0, stalledAfterSeconds=0.5)
        assert (await s.sealed())["cut"] == 1
        with pytest.raises(Cut, match=r"^token$"):
            await stream


async def test_a_queued_request_counts_and_is_served(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        body = b'{"stream": true, "max_tokens": 1, "tidegate_test": {"first_after": 3}}'
        asked = asyncio.create_task(call(s.port, "POST", "/v1/completions", body))
        await s.logged("stream-start")
        state = await s.drain(propagationSeconds=0, stalledAfterSeconds=0.1)
        assert (state["inFlight"], state["queued"], state["streams"]) == (1, 1, 0)
        await s.sealed()
        assert (await asked).status == 200
        assert (await asked).body.endswith(b"0\r\n\r\n")


async def test_calls_and_probes_are_neither_work_nor_arrivals(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        await s.drain(propagationSeconds=0.5, quietSeconds=0.5)
        for _ in range(5):
            await s.call("GET", "/readyz")
            state = await s.state()
            assert (state["inFlight"], state["lastArrivalSeconds"]) == (0, None)
        await s.sealed()


async def test_sigterm_drains_and_exits_0_and_a_second_one_cuts_nothing(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        streams = [s.stream(LONG, 30, f"s{number}") for number in range(3)]
        await s.begun(3)
        s.signal()
        await s.logged("sigterm", 1)
        assert (await s.call("DELETE", "/drain?id=d")).status == 409
        s.signal()
        assert await s.exited() == 0
        assert [(await stream).tokens for stream in streams] == [LONG, LONG, LONG]
        assert [entry["event"] for entry in s.events][-2:] == ["sealed", "exit"]


async def test_sigterm_ends_what_outlasts_the_grace_with_a_token(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, TIDEGATE_GRACE_SECONDS="3") as s:
        long, short = s.stream(1000, 20, "long"), s.stream(20, 20, "short")
        # Not until both are seen at once: the short one may be over by then.
        await s.logged("stream-start", 2)
        s.signal()
        assert await s.exited() == 0
        assert (await short).tokens == 20
        with pytest.raises(Cut, match=r"^token$"):
            await long


async def test_without_a_key_sigterm_drains_all_the_same(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path, key=None) as s:
        stream = s.stream(20, 30)
        await s.logged("stream-start")
        s.signal()
        assert await s.exited() == 0
        assert (await stream).tokens == 20


async def test_a_killed_server_is_seen_by_its_client(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        stream = s.stream(1000, 20)
        await s.begun()
        await asyncio.sleep(0.2)
        s.signal(signal.SIGKILL)
        with pytest.raises(Cut, match=r"eof|reset"):
            await stream
        # The kernel closes its sockets one by one: the listening one may outlive the stream's for a moment.
        await s.exited()
        with pytest.raises(Refused, match="connection-refused"):
            await s.stream(1, 0)


async def test_the_drain_endpoint_is_not_on_the_serving_port(start: Start, tmp_path: Path) -> None:
    async with start(tmp_path) as s:
        for method, path in (("POST", "/drain"), ("GET", "/drain/prestop"), ("POST", "/misbehave")):
            assert (await call(s.port, method, path, b'{"id": "d"}', {"Tidegate-Key": KEY})).status == 404
        assert (await s.state())["state"] == "serving"
