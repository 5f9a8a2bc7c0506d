"""Real processes: the engine killed beneath the gateway, the gateway killed above it, and calls in any order."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from apps.check import Cut, Refused
from apps.gateway import gateway, gateway_and_engine
from apps.running import held_port, server

# The gateway is a process of its own here, on uvloop; which loop the test itself runs on says nothing about it.
pytestmark = [pytest.mark.sockets, pytest.mark.asyncio(loop_factories=["asyncio"])]


async def test_an_engine_that_is_killed_and_comes_back_serves_again(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for each in (first, second):
        each.mkdir()
    options = {"TIDEGATE_PRESTOP_KEY": "p", "TIDEGATE_PROPAGATION_SECONDS": "60"}
    with held_port() as port:
        async with gateway(tmp_path, port, ready=False, **options) as s:
            assert (await s.call("GET", "/readyz", key=None)).status == 503
            async with server(first, key=None, PORT=str(port)) as engine:
                await s.until(state="serving")
                instance = (await s.state())["instance"]
                stream = s.stream(10_000, 50)
                await s.until(streams=1)
                # The kubelet finds the engine dead: preStop first, then SIGTERM, and at last SIGKILL.
                prestop = asyncio.create_task(s.call("GET", "/drain/prestop", key="p"))
                await s.until(state="draining")
                assert not prestop.done()
                engine.signal(signal.SIGKILL)
                with pytest.raises(Cut, match=r"^token$"):
                    await stream
                assert (await prestop).json()["state"] == "draining"
                await s.logged("engine-gone")
                # At once: nobody is left to wait for.
                assert (await s.call("GET", "/drain/prestop", key="p")).status == 200
                assert (await s.call("GET", "/readyz", key=None)).status == 503
            async with server(second, key=None, PORT=str(port)):
                state = await s.until(state="serving")
                assert (state["instance"], state["drainId"], state["cut"]) == (instance, None, 0)
                assert (await s.metrics())["cut_total"] == 1  # of that drain, which is over; never taken back
                assert (await s.stream(5, 0)).tokens == 5
                assert [entry["event"] for entry in s.events][-2:] == ["engine-back", "serving"]


async def test_an_engine_that_is_gone_for_good(tmp_path: Path) -> None:
    async with gateway_and_engine(tmp_path, TIDEGATE_PRESTOP_KEY="p") as s:
        assert s.engine is not None
        stream = s.stream(10_000, 50)
        await s.until(streams=1)
        s.engine.signal(signal.SIGKILL)
        with pytest.raises(Cut, match=r"^error-event$"):
            await stream
        await s.until(state="starting", inFlight=0)
        refused = await s.post({"max_tokens": 1})
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (502, "upstream_connect_failed")
        assert (await s.call("GET", "/livez", key=None)).status == 200
        assert (await s.call("GET", "/drain/prestop", key="p")).status == 200
        refused = await s.post({"max_tokens": 1})
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await s.drain("d"))["state"] == "draining"
        assert (await s.sealed())["drainId"] == "d"
        s.signal()
        assert await s.exited() == 0
        assert (await s.logged("exit"))[0]["inFlight"] == 0


async def test_a_gateway_that_is_killed_is_seen_by_client_and_engine(tmp_path: Path) -> None:
    async with gateway_and_engine(tmp_path) as s:
        assert s.engine is not None
        stream = s.stream(10_000, 50)
        await s.until(streams=1)
        s.signal(signal.SIGKILL)
        with pytest.raises(Cut, match=r"eof|reset"):
            await stream
        assert (await s.engine.logged("stream-end"))[0]["by"] == "client-gone"
        await s.exited()
        with pytest.raises(Refused, match="connection-refused"):
            await s.stream(1, 0)


async def test_readiness_waits_for_the_engine_and_for_a_real_answer(tmp_path: Path) -> None:
    asked: list[bytes] = []
    answers = [b"503 Loading", b"200 OK", b"500 Not yet", b"200 OK", b"200 OK"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        if head:
            asked.append(head.partition(b" HTTP")[0])
            status = answers.pop(0)
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status)
        writer.close()

    behind = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = behind.sockets[0].getsockname()[1]
    async with gateway(
        tmp_path, port, TIDEGATE_READY_PATH="/health", TIDEGATE_WARMUP_PATH="/v1/completions", TIDEGATE_WARMUP_BODY="{}"
    ) as s:
        assert asked == [
            b"GET /health",
            b"GET /health",
            b"POST /v1/completions",
            b"GET /health",
            b"POST /v1/completions",
        ]
        assert (await s.call("GET", "/readyz", key=None)).status == 200
        messages = [entry["message"] for entry in s.named("engine-not-ready")]
        assert messages == ["GET /health: HTTP 503", "POST /v1/completions: HTTP 500"]
        assert (await s.state())["lastArrivalSeconds"] is None
    behind.close()


async def test_sigterm_prestop_and_post_in_any_order_and_number_have_one_deadline(tmp_path: Path) -> None:
    async with gateway_and_engine(tmp_path, TIDEGATE_PRESTOP_KEY="p", TIDEGATE_GRACE_SECONDS="6") as s:
        # Both are seen at once, and every call is made, before the short one and the grace are over.
        short, long = s.stream(60, 20, "short"), s.stream(10_000, 50, "long")
        await s.begun(2)
        prestops = [asyncio.create_task(s.call("GET", "/drain/prestop", key="p")) for _ in range(3)]
        await s.logged("prestop", 3)
        s.signal()
        await s.drain("a", remainingSeconds=500)
        s.signal()
        await s.drain("b", remainingSeconds=400)
        assert (await s.call("DELETE", "/drain?id=b")).status == 409
        assert (await short).tokens == 60
        with pytest.raises(Cut, match=r"^token$"):
            await long
        assert {(await prestop).status for prestop in prestops} == {200}
        assert await s.exited() == 0
        [last] = s.named("exit")
        assert (last["cut"], last["inFlight"]) == (1, 0)


async def test_the_installed_command_refuses_a_wrong_option_with_one_sentence() -> None:
    process = await asyncio.create_subprocess_exec(
        "env", "TIDEGATE_UPSTREAM=:8000", str(Path(__file__).parents[2] / ".venv/bin/tidegate"), "gateway",
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, told = await process.communicate()
    assert process.returncode == 2
    assert told.decode().startswith("tidegate gateway: --upstream")
    assert len(told.decode().splitlines()) == 1
