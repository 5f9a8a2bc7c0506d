"""Each way to fail has its class in the metrics, and its form for the client: a body, an event, or a cut."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from gateway.rig import Engine, Heard, Peer, echo, engine, front
from tidegate.gateway import connection, timers
from tidegate.gateway.upstream import UpstreamConnection

CONTENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n'
FINISH = b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n'


def error(heard: Heard) -> dict[str, object]:
    document = json.loads(heard.body)
    assert list(document) == ["error"]
    assert {"message", "type", "param", "code"} <= set(document["error"])
    return dict(document["error"])


async def silent(peer: Peer, own: Engine) -> None:
    await peer.hear()
    await peer.closed()


async def begins(peer: Peer, own: Engine) -> None:
    await peer.hear()
    await peer.begin_events()
    await peer.chunk(CONTENT)
    await peer.closed()


@asynccontextmanager
async def lasts(seconds: float) -> AsyncIterator[None]:
    """What is done within takes so long, in virtual time."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    yield
    assert loop.time() - start == pytest.approx(seconds, abs=0.1)


async def breaks_in_an_event(peer: Peer, own: Engine) -> None:
    await peer.hear()
    await peer.begin_events()
    await peer.chunk(CONTENT)
    await peer.send(b"80\r\n" + CONTENT[:20])
    await asyncio.sleep(0.05)
    peer.reset()


@pytest.mark.sockets
async def test_nobody_listens() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        assert own.server is not None
        own.server.close()
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, error(heard)["code"]) == (502, "upstream_connect_failed")
        assert gate.failures() == {"connect": 1}
        assert gate.state()["state"] == "starting"  # known at once, not at the next look
        client.close()


@pytest.mark.sockets
async def test_a_connection_that_is_not_accepted() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        full = [socket.socket() for _ in range(4)]
        for each in full:
            each.setblocking(False)
            each.connect_ex(deaf.getsockname())
        options = {"TIDEGATE_CONNECT_SECONDS": "0.2"}
        async with front(deaf.getsockname()[1], ready=False, options=options) as gate:
            client = await gate.client()
            heard = await client.ask("POST", "/v1/x", b"{}")
            assert (heard.head.status_code, error(heard)["code"]) == (502, "upstream_connect_failed")
            assert gate.failures() == {"connect": 1}
            client.close()
        for each in full:
            each.close()


@pytest.mark.sockets
async def test_a_gateway_that_got_no_turn_does_not_take_its_own_absence_for_the_engine_s() -> None:
    async with engine(echo) as own, front(own.port, options={"TIDEGATE_CONNECT_SECONDS": "0.1"}) as gate:
        connect = gate.gateway.pool.connect

        async def absent() -> UpstreamConnection:
            time.sleep(0.2)  # noqa: ASYNC251  (as a process does that the machine gives no time)
            return await connect()

        gate.gateway.pool.connect = absent  # type: ignore[method-assign]
        client = await gate.client()
        assert (await client.ask("POST", "/v1/x", b"{}")).body == b"{}"
        assert gate.failures() == {}
        client.close()


@pytest.mark.parametrize(
    ("script", "options", "code", "label"),
    [
        (silent, {"TIDEGATE_TOTAL_SECONDS": "0.3", "TIDEGATE_IDLE_SECONDS": "0.1"}, "total_timeout", "total"),
        (begins, {"TIDEGATE_TOTAL_SECONDS": "0.3"}, "total_timeout", "total"),
        (begins, {"TIDEGATE_IDLE_SECONDS": "0.3"}, "upstream_idle_timeout", "idle"),
        pytest.param(breaks_in_an_event, {}, "upstream_reset", "upstream_reset", marks=pytest.mark.sockets),
    ],
    ids=["total before the answer", "total in a stream", "idle in a stream", "reset in an event"],
)
async def test_a_failure_is_told(
    script: Callable[[Peer, Engine], Awaitable[None]], options: dict[str, str], code: str, label: str
) -> None:
    async with engine(script) as own, front(own.port, options=options) as gate:
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        if script is silent:
            assert (heard.head.status_code, error(heard)["code"]) == (504, code)
        else:
            first, told, done, nothing = heard.body.split(b"\n\n")
            assert (first + b"\n\n", done, nothing) == (CONTENT, b"data: [DONE]", b"")
            assert json.loads(told.removeprefix(b"data: "))["error"]["code"] == code
        assert gate.failures() == {label: 1}
        client.close()


async def test_silence_before_the_answer_is_no_idleness() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await asyncio.sleep(0.6)
        await peer.answer(200, b"at last")

    async with engine(script) as own, front(own.port, options={"TIDEGATE_IDLE_SECONDS": "0.1"}) as gate:
        client = await gate.client()
        assert (await client.ask("POST", "/v1/x", b"{}")).body == b"at last"
        client.close()


async def test_routes_have_times_of_their_own() -> None:
    routes = '[{"pathPrefix": "/v1/quick", "timeouts": {"totalSeconds": 0.2}}]'
    async with engine(silent) as own, front(own.port, options={"TIDEGATE_ROUTES": routes}) as gate:
        quick, slow = await gate.client(), await gate.client()
        await slow.request("POST", "/v1/quicker", b"{}")
        heard = await quick.ask("POST", "/v1/quick/x", b"{}")
        assert error(heard)["code"] == "total_timeout"
        assert gate.state()["inFlight"] == 1
        quick.close()
        slow.close()


async def test_a_client_s_deadline_counts_and_is_passed_on_reduced() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        own.heard.append(await peer.hear())
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}", Tidegate_Deadline_Seconds="0.4")
        assert error(heard)["code"] == "total_timeout"
        assert 0 < float(own.heard[0].fields[b"tidegate-deadline-seconds"]) < 0.4
        for value, status in (("0", 504), ("-1", 504), ("soon", 400), ("inf", 400)):
            client = await gate.client()
            refused = await client.ask("POST", "/v1/x", b"{}", Tidegate_Deadline_Seconds=value)
            assert refused.head.status_code == status
            client.close()
        assert len(own.heard) == 1
        client = await gate.client()
        await client.request("POST", "/v1/x", b"{}", Tidegate_Deadline_Seconds="1e308")
        await gate.until(lambda: len(own.heard) == 2)
        assert float(own.heard[1].fields[b"tidegate-deadline-seconds"]) <= 1e9
        client.close()


async def test_a_body_without_events_that_breaks_is_cut_and_not_passed_off_as_whole() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        await asyncio.sleep(0.05)
        peer.close()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("GET", "/v1/x")
        with pytest.raises(Exception, match=r"peer|reset|[Cc]onnection|receive"):
            await client.hear()
        assert gate.failures() == {"upstream_reset": 1}
        client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"rubbish\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", b"HTTP/1.1 200 OK\r\n X: folded\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40000 + b"\r\n\r\n",
    ],
    ids=["rubbish", "two lengths", "two framings", "a coding", "a fold", "an upgrade", "too long"],
)  # fmt: skip
async def test_an_engine_that_does_not_speak_http(answer: bytes) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(answer)
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, error(heard)["code"]) == (502, "upstream_invalid")
        assert gate.failures() == {"upstream_invalid": 1}
        client.close()


async def test_a_stream_that_is_framed_wrongly_ends_in_good_form() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.begin_events()
        await peer.chunk(CONTENT)
        await asyncio.sleep(0.05)
        await peer.send(b"zz\r\n")
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert heard.body.startswith(CONTENT)
        assert b"upstream_invalid" in heard.body
        assert heard.body.endswith(b"data: [DONE]\n\n")
        client.close()


async def test_a_client_that_takes_its_time_with_a_head_or_a_body() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.closed()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HT")
        async with lasts(connection.HEAD_SECONDS):
            assert (await client.rest()).startswith(b"HTTP/1.1 408")
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: e\r\nContent-Length: 9\r\n\r\nabc")
        async with lasts(timers.BODY_SECONDS):
            await client.closed()
        assert gate.failures() == {"client_gone": 1}
        client.close()


async def test_a_client_that_has_closed_one_half_and_hears_nothing_is_gone() -> None:
    async with engine(silent) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/x", b"{}")
        await gate.until(lambda: gate.state()["inFlight"] == 1)
        client.writer.write_eof()
        async with lasts(timers.HALF_CLOSED_SECONDS):
            await client.closed()
        assert gate.failures() == {"client_gone": 1}
        client.close()


async def test_idle_connections_end_with_a_fin() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        async with lasts(620):
            assert await client.rest() == b""
        client.close()


async def test_the_time_for_idle_connections_is_an_option() -> None:
    async with engine(echo) as own, front(own.port, options={"TIDEGATE_KEEP_ALIVE_SECONDS": "75"}) as gate:
        client = await gate.client()
        async with lasts(20 + 75):
            await asyncio.sleep(20)
            await client.ask("POST", "/v1/x", b"{}")
            assert await client.rest() == b""
        client.close()


async def test_a_connection_is_kept_as_long_as_the_client_likes_where_it_is_told_so() -> None:
    async with engine(echo) as own, front(own.port, options={"TIDEGATE_KEEP_ALIVE_SECONDS": "0"}) as gate:
        client = await gate.client()
        for _ in range(3):
            await asyncio.sleep(3_000)
            assert (await client.ask("POST", "/v1/x", b"{}")).head.status_code == 200
        client.close()


@pytest.mark.parametrize("waiting", [90, 600])
async def test_a_post_after_the_idle_times_that_load_balancers_have_is_answered(waiting: int) -> None:
    """60 s, 90 s, 350 s and 600 s are the defaults of the common ones: they have to close first."""
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        for _ in range(3):
            assert (await client.ask("POST", "/v1/x", b"{}")).head.status_code == 200
            await asyncio.sleep(waiting)
        client.close()


async def test_the_metrics_page_has_every_class_and_counts() -> None:
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        await client.ask("POST", "/v1/x", b"{}")
        page = (await gate.call("GET", "/metrics", key=None)).body.decode()
        for line in (
            'tidegate_gateway_requests_total{code="2xx"} 1', 'tidegate_gateway_failures_total{class="client_gone"} 0',
            "tidegate_gateway_in_flight 0", 'tidegate_gateway_state{state="serving"} 1',
            "tidegate_gateway_connections_total 1",
        ):  # fmt: skip
            assert line in page.splitlines()
        client.close()
