"""Each way to misbehave is seen from outside as what it says."""

import asyncio
from pathlib import Path

import pytest

from apps.check import Client, Cut
from apps.misbehave import Misbehaviour
from apps.running import KEY, Server, server


async def tell(s: Server, ways: str) -> None:
    assert (await s.call("POST", "/misbehave", ways.encode())).status == 200


async def test_wrong_answers(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        for ways, status in (("status-500", 500), ("status-404", 404), ("redirect", 302)):
            await tell(s, ways)
            for method, path in (
                ("POST", "/drain"),
                ("GET", "/drain"),
                ("DELETE", "/drain"),
                ("GET", "/drain/prestop"),
            ):
                assert (await s.call(method, path, {"id": "d"})).status == status
        assert (await s.call("GET", "/drain")).headers["location"].startswith("http://elsewhere")
        await tell(s, "rubbish")
        answer = await s.call("GET", "/drain")
        with pytest.raises(ValueError, match="Expecting"):
            answer.json()
        assert (await s.call("GET", "/readyz")).status == 200
        await tell(s, "")
        assert (await s.state())["state"] == "serving"


async def test_hang_and_endless_end_only_with_their_caller(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        await tell(s, "hang")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(s.call("POST", "/drain", {"id": "d"}), 0.5)
        await tell(s, "endless")
        reader, writer = await asyncio.open_connection("127.0.0.1", s.admin)
        writer.write(f"GET /drain HTTP/1.1\r\nHost: x\r\nTidegate-Key: {KEY}\r\n\r\n".encode())
        async with asyncio.timeout(20):
            await reader.readexactly(3_000_000)
        writer.close()
        await tell(s, "")
        assert (await s.state())["state"] == "serving"


async def test_lies_about_the_state(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        stream = s.stream(1000, 20)
        await s.logged("stream-start")
        await tell(s, "ignore-drain")
        assert (await s.drain())["state"] == "serving"
        await tell(s, "sequence-falls")
        sequences = [(await s.state())["sequence"] for _ in range(3)]
        assert sequences == sorted(sequences, reverse=True)
        assert len(set(sequences)) == 3 and sequences[-1] > 0
        await tell(s, "lie-negative")
        assert (await s.state())["inFlight"] == -1
        await tell(s, "lie-zero")
        assert (await s.state())["state"] == "serving"
        lie = await s.drain()
        assert (lie["state"], lie["inFlight"], lie["drainId"]) == ("sealed", 0, "d")
        await tell(s, "lie-sealed")
        lie = await s.state()
        assert (lie["state"], lie["inFlight"], lie["drainId"]) == ("sealed", 1, "d")
        await tell(s, "lie-id")
        lie = await s.state()
        assert (lie["state"], lie["inFlight"], lie["drainId"]) == ("draining", 1, "somebody-elses")
        await tell(s, "")
        assert ((await s.state())["state"], (await s.state())["inFlight"]) == ("draining", 1)
        stream.cancel()


async def test_lie_early_seals_before_the_propagation_is_over(tmp_path: Path) -> None:
    async with server(tmp_path, MISBEHAVE="lie-early") as s:
        assert (await s.drain(propagationSeconds=600))["state"] == "sealed"


async def test_foreign_id_drains_itself_and_is_adopted(tmp_path: Path) -> None:
    async with server(tmp_path, MISBEHAVE="foreign-id", TIDEGATE_PROPAGATION_SECONDS="60") as s:
        state = await s.state()
        assert (state["state"], str(state["drainId"])[:8]) == ("draining", "foreign-")
        assert (await s.drain("ours"))["drainId"] == "ours"
        assert (await s.call("DELETE", "/drain?id=ours")).json()["state"] == "serving"


async def test_never_ready_and_flap(tmp_path: Path) -> None:
    async with server(tmp_path, MISBEHAVE="never-ready") as s:
        assert (await s.call("GET", "/readyz")).status == 503
        assert (await s.state())["state"] == "serving"
        await tell(s, "flap")
        seen: set[int] = set()
        async with asyncio.timeout(20):
            while seen != {200, 503}:
                seen.add((await s.call("GET", "/readyz")).status)
                await asyncio.sleep(0.1)


async def test_slow_start_says_starting(tmp_path: Path) -> None:
    async with server(tmp_path, MISBEHAVE="slow-start=3") as s:
        assert (await s.state())["state"] == "starting"
        await s.logged("serving")
        assert (await s.state())["state"] == "serving"


async def test_crashes_exit_1_and_cut_what_runs(tmp_path: Path) -> None:
    async with server(tmp_path, listen=False, MISBEHAVE="crash-at-start") as s:
        assert await s.exited() == 1
    async with server(tmp_path) as s:
        stream = s.stream(1000, 20)
        await s.logged("stream-start")
        await tell(s, "crash-after=0.3")
        assert await s.exited() == 1
        with pytest.raises(Cut, match=r"eof|reset"):
            await stream
        [end] = s.named("stream-end")
        assert (end["whole"], end["by"]) == (False, "exit")


async def test_exit_on_sigterm_is_an_ordinary_process(tmp_path: Path) -> None:
    async with server(tmp_path, key=None, MISBEHAVE="exit-on-sigterm") as s:
        stream = s.stream(1000, 20)
        await s.logged("stream-start")
        await asyncio.sleep(0.2)
        s.signal()
        assert await s.exited() == 143
        with pytest.raises(Cut, match=r"eof|reset"):
            await stream
        assert [(end["whole"], end["by"]) for end in s.named("stream-end")] == [(False, "exit")]


async def test_stall_streams_stops_after_the_first_token(tmp_path: Path) -> None:
    async with server(tmp_path, MISBEHAVE="stall-streams") as s:
        assert (await s.ask(Client(s.target, keep_alive=False), "one", 1, 0)).tokens == 1
        stream = s.stream(5, 50, "five")
        await s.drain(propagationSeconds=600)
        await asyncio.sleep(0.5)
        assert (await s.state())["inFlight"] == 1
        stream.cancel()


@pytest.mark.parametrize("text", ["dance", "crash-after", "hang=3", "crash-after=soon"])
def test_an_unknown_way_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"MISBEHAVE|could not convert"):
        Misbehaviour.parse(text)


async def test_an_environment_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    async with server(tmp_path, listen=False, MISBEHAVE="dance") as s:
        assert await s.exited() == 2
