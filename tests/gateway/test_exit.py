"""What is told of the requests that a process cuts as it ends: log, contract and metrics agree, of every kind."""

import asyncio
import json
from pathlib import Path

import pytest

from gateway.rig import FAST, Engine, Front, Peer, engine, front
from tidegate.contract.terms import DrainRequest
from tidegate.gateway import process

CONTENT = b'data: {"choices": [{"delta": {"content": "a"}, "finish_reason": null}]}\n\n'
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
SWITCH = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
BEGINS = {
    "/stream": OK + b"Content-Type: text/event-stream\r\n" + CHUNKED + b"%x\r\n%b\r\n" % (len(CONTENT), CONTENT),
    "/head": OK + b"Content-Type: text/event-stream\r\n" + CHUNKED,
    "/body": OK + b"Content-Length: 9\r\n\r\nabc",
    "/bare": OK + b"Content-Length: 9\r\n\r\n",
    "/lines": OK + b"Content-Type: application/x-ndjson\r\n" + CHUNKED + b"3\r\n{}\n\r\n",
    "/until-close": OK + b"Connection: close\r\n\r\nabc",
    "/frame": SWITCH + b"\x82\x02a",
    "/socket": SWITCH + b"\x82\x01a",
    "/raw": SWITCH.replace(b"websocket", b"other") + b"abc",
}
SILENT = "/queued", "/upload"
UPGRADES = {"/frame": "websocket", "/socket": "websocket", "/raw": "other"}


async def behave(peer: Peer, own: Engine) -> None:
    head = await peer.reader.readuntil(b"\r\n\r\n")
    path = head.split()[1].decode()
    if path in BEGINS:
        await peer.send(BEGINS[path])
    await peer.closed()


async def ask(gate: Front, path: str) -> Peer:
    client = await gate.client()
    fields = f"Connection: Upgrade\r\nUpgrade: {UPGRADES[path]}\r\n" if path in UPGRADES else "Content-Length: 2\r\n"
    method = "GET" if path in UPGRADES else "POST"
    body = "" if path in UPGRADES else "{" if path == "/upload" else "{}"
    await client.send(f"{method} {path} HTTP/1.1\r\nHost: e\r\n{fields}\r\n{body}".encode())
    if path in BEGINS:
        await gate.until(lambda: client.reader._buffer)
    return client


def page(gate: Front) -> dict[str, str]:
    text = gate.gateway.metrics.render(gate.state(), gate.gateway.drain.contract.ever_cut).decode()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name.removeprefix("tidegate_gateway_"): value for name, value in lines}


@pytest.mark.parametrize("posted", [True, False])
async def test_every_request_that_is_cut_is_in_every_sum(
    posted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine(behave) as own, front(own.port, tmp_path) as gate:
        drain = gate.gateway.drain
        paths = [*BEGINS, *SILENT]
        clients = [await ask(gate, path) for path in paths]
        await gate.until(lambda: gate.state()["inFlight"] == len(paths))
        if posted:
            drain.post(DrainRequest("d", "Rollout", None, propagation=60))
        drain.sigterm()
        waiting = asyncio.create_task(waits_for_the_seal(gate))
        began = gate.gateway._shared.clock.monotonic()
        await process.end(gate.gateway, drain._log, gate.gateway._shared.clock)
        took = gate.gateway._shared.clock.monotonic() - began
        assert took < float(FAST["TIDEGATE_GRACE_SECONDS"])
        told = await waiting
        assert (told["state"], told["cut"], told["inFlight"]) == ("sealed", len(paths), 0)
        assert (page(gate)["cut_total"], page(gate)["in_flight"]) == (str(len(paths)), "0")
        assert page(gate)['failures_total{class="drained"}'] == str(len(paths))
        logged = {line["event"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
        for event in ("sealed", "exit"):
            assert (logged[event]["cut"], logged[event]["inFlight"]) == (len(paths), 0)
        assert logged["exit"]["everCut"] == len(paths)
        for client in clients:
            client.close()


async def test_at_the_deadline_of_a_drain_every_request_is_in_every_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine(behave) as own, front(own.port, tmp_path) as gate:
        paths = [*BEGINS, *SILENT]
        clients = [await ask(gate, path) for path in paths]
        await gate.until(lambda: gate.state()["inFlight"] == len(paths))
        gate.gateway.drain.post(DrainRequest("d", "Rollout", 3, propagation=60))
        told = await waits_for_the_seal(gate)
        assert (told["cut"], told["inFlight"]) == (len(paths), 0)
        assert (page(gate)["cut_total"], page(gate)["in_flight"]) == (str(len(paths)), "0")
        [sealed] = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["event"] == "sealed"]
        assert (sealed["cut"], sealed["inFlight"]) == (len(paths), 0)
        for client in clients:
            client.close()


async def test_when_the_engine_is_stopped_every_request_is_in_every_sum(tmp_path: Path) -> None:
    async with engine(behave) as own, front(own.port, tmp_path) as gate:
        # The other two may end by a close of the connection.
        paths = [path for path in (*BEGINS, *SILENT) if path not in ("/until-close", "/raw")]
        clients = [await ask(gate, path) for path in paths]
        await gate.until(lambda: gate.state()["inFlight"] == len(paths))
        gate.gateway.drain.prestop()
        for peer in own.peers:
            peer.close()
        await gate.until(lambda: gate.state()["inFlight"] == 0)
        assert (gate.state()["cut"], page(gate)["cut_total"]) == (len(paths), str(len(paths)))
        for client in clients:
            client.close()


async def test_the_end_of_prestop_tells_what_was_cut_and_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with engine(behave) as own, front(own.port, tmp_path, options={"TIDEGATE_PRESTOP_KEY": "p"}) as gate:
        clients = [await ask(gate, path) for path in ("/stream", "/queued", "/body")]
        await gate.until(lambda: gate.state()["inFlight"] == 3)
        told = (await gate.call("GET", "/drain/prestop", key="p")).json()
        [line] = [e for e in map(json.loads, capsys.readouterr().out.splitlines()) if e["event"] == "prestop-over"]
        assert (told["cut"], told["inFlight"]) == (line["cut"], line["inFlight"]) == (2, 1)
        assert page(gate)["cut_total"] == "2"
        for client in clients:
            client.close()


async def waits_for_the_seal(gate: Front) -> dict[str, object]:
    """The last that a waiting operator is told."""
    state = gate.state()
    while state["state"] != "sealed":
        state = (await gate.call("GET", f"/drain?wait=60s&since={state['sequence']}")).json()
    return state


async def test_what_earlier_drains_have_cut_is_in_the_last_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    async with engine(behave) as own, front(own.port) as gate:
        drain = gate.gateway.drain
        clients = [await ask(gate, "/stream")]
        drain.post(DrainRequest("d", "Rollout", 0.6, propagation=60, flush=0.6))
        assert (drain.contract.cut, gate.state()["state"]) == (1, "draining")
        drain.undrain("d")
        clients.append(await ask(gate, "/body"))
        drain.sigterm()
        await process.end(gate.gateway, drain._log, gate.gateway._shared.clock)
        [last] = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if line["event"] == "exit"]
        assert (last["cut"], last["everCut"], last["inFlight"]) == (1, 2, 0)
        for client in clients:
            client.close()
