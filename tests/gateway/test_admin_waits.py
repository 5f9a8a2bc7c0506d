"""Calls on the admin port as the operator and the kubelet make them: those that wait, those without a body."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.rig import KEY, Engine, Front, Peer, connect, echo, engine, front
from tidegate.contract.terms import DrainRequest

OTHER = "/drain/prestop?container=other"


async def stream(peer: Peer, own: Engine) -> None:
    await peer.hear()
    await peer.begin_events()
    await peer.chunk(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n')
    await own.go.wait()
    await peer.chunk(b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    await peer.end_chunks()


def hook(gate: Front, path: str) -> "asyncio.Task[dict[str, object]]":
    async def called() -> dict[str, object]:
        answer = await gate.call("GET", path)
        assert answer.status == 200
        return dict(answer.json())

    return asyncio.create_task(called())


async def test_waits_that_end_without_news_leave_their_connection_whole(tmp_path: Path) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with engine(echo) as own, front(own.port, tmp_path) as gate:
        operator = await connect(gate.admin)
        for _ in range(3):
            path = f"/drain?wait=50ms&since={gate.state()['sequence']}"
            heard = await operator.ask("GET", path, Tidegate_Key=KEY)
            assert heard.head.status_code == 200
        operator.close()
    assert complaints == []


async def test_the_hook_of_another_container_alone_withdraws_nothing(tmp_path: Path) -> None:
    async with engine(echo) as own, front(own.port, tmp_path) as gate:
        assert (await hook(gate, OTHER))["state"] == "serving"
        assert (await gate.call("GET", "/readyz", key=None)).status == 200
        gate.gateway.drain.post(DrainRequest("d", propagation=60))
        assert (await hook(gate, OTHER))["drainId"] == "d"
        assert (await gate.call("DELETE", "/drain?id=d")).status == 200
        assert (await gate.call("GET", "/drain/prestop?container=mine")).status == 400
        assert gate.state()["state"] == "serving"


@pytest.mark.parametrize("first", [True, False])
async def test_the_hook_of_another_container_lasts_as_long_as_the_serving_one_s(first: bool, tmp_path: Path) -> None:
    async with engine(stream) as own, front(own.port, tmp_path) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/chat/completions", b"{}")
        await gate.until(lambda: gate.state()["streams"] == 1)
        others = [hook(gate, OTHER)] if first else []
        await asyncio.sleep(0.1)
        serving = hook(gate, "/drain/prestop")
        await gate.until(lambda: gate.state()["state"] == "draining")
        others.append(hook(gate, OTHER))
        await asyncio.sleep(0.6)  # the propagation time and more
        assert not any(task.done() for task in (serving, *others))
        own.go.set()
        assert {(await task)["inFlight"] for task in (serving, *others)} == {0}
        client.close()


async def test_head_is_answered_without_a_body(tmp_path: Path) -> None:
    async with engine(echo) as own, front(own.port, tmp_path) as gate:
        probe = await connect(gate.admin)
        for path, status in (("/readyz", 200), ("/livez", 200), ("/metrics", 405), ("/none", 404), ("/readyz", 200)):
            # h11 would take a body for the next response.
            heard = await probe.ask("HEAD", path)
            assert (heard.head.status_code, heard.body) == (status, b"")
            assert int(heard.fields[b"content-length"]) > 0
        assert json.loads((await probe.ask("GET", "/readyz")).body) == {"state": "serving"}
        probe.close()
