"""The load client sees every kind of cut and refusal, against a server that is made to produce each."""

import asyncio
import contextlib
import json
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from apps.check import Client, Cut, Exchange, Refused, Target
from apps.load import parse, span
from apps.running import LIMIT_SECONDS, ROOT, held_port, server

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def number(value: int, finish: str | None = None, content: str | None = None) -> bytes:
    delta = {"content": f"{value} " if content is None else content}
    return chunk(json.dumps({"choices": [{"delta": delta, "finish_reason": finish}]}))


STOP = number(0, "stop", "")
DONE = chunk("[DONE]")
END = b"0\r\n\r\n"
TOKEN = chunk('{"error": {"type": "shutdown"}, "type": "shutdown"}')
BAD_TOKEN = chunk('{"type": "shutdown", "error": {"type": "shutdown"}}')
ONE_TO_THREE = number(1) + number(2) + number(3)
RESET = b"<reset>"
HOLD = b"<hold>"

CUTS = {
    "eof": HEAD + number(1),
    "reset": HEAD + number(1) + RESET,
    "stalled": HEAD + number(1) + HOLD,
    "no-finish-reason": HEAD + ONE_TO_THREE + DONE + END,
    "no-done": HEAD + ONE_TO_THREE + STOP + END,
    "after-done": HEAD + ONE_TO_THREE + STOP + DONE + STOP + END,
    "token": HEAD + number(1) + TOKEN + DONE + END,
    "token-without-done": HEAD + number(1) + TOKEN + END,
    "error-event": HEAD + number(1) + BAD_TOKEN + DONE + END,
    "not-json": HEAD + chunk("{") + END,
    "bad-chunk": HEAD + b"zz\r\n",
    "not-chunked": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "half-event": HEAD + ONE_TO_THREE + STOP + DONE + b"6\r\ndata: \r\n" + END,
}
WRONG_NUMBERS = {
    "missing": number(1) + number(3) + STOP,
    "twice": number(1) + number(1) + number(2) + number(3) + STOP,
    "out of order": number(2) + number(1) + number(3) + STOP,
    "too few": number(1) + number(2) + STOP,
    "too many": ONE_TO_THREE + number(4) + STOP,
    "after the end": number(1) + STOP + number(2) + number(3),
}
REFUSALS = {
    "status-503": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
    "status-429": b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n",
    "closed-before-response": b"",
    "reset-before-response": RESET,
    "no-response": HOLD,
}


@contextlib.asynccontextmanager
async def scripted(script: bytes) -> AsyncIterator[Target]:
    """A server that reads one request and answers with these bytes, then a FIN, a reset, or nothing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}}")
        writer.write(script.removesuffix(RESET).removesuffix(HOLD))
        await writer.drain()
        if script.endswith(HOLD):
            await reader.read()
        if script.endswith(RESET):
            await asyncio.sleep(0.1)  # so that the client has read what came before the reset
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        # Where no silence is meant none is judged: a machine that gives no turn for a second is not stalled.
        idle_seconds = 1.0 if script.endswith(HOLD) else LIMIT_SECONDS
        yield Target("127.0.0.1", listener.sockets[0].getsockname()[1], idle_seconds)
    finally:
        listener.close()


async def ask(script: bytes) -> Exchange:
    exchange = Exchange("x", 3, 0)
    async with scripted(script) as target:
        await Client(target, keep_alive=False).ask(exchange, stream=True)
    return exchange


async def test_a_whole_stream_is_complete_however_its_bytes_are_split() -> None:
    body = ONE_TO_THREE + STOP + DONE
    assert (await ask(HEAD + body + END)).tokens == 3
    event = b'data: {"choices": [{"delta": {"content": "1 "}, "finish_reason": null}]}\n\n'
    halves = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (event[:9], event[9:]))
    assert (await ask(HEAD + halves + number(2) + number(3) + STOP + DONE + END)).tokens == 3


@pytest.mark.parametrize("by", CUTS)
async def test_every_kind_of_cut_is_seen(by: str) -> None:
    with pytest.raises(Cut) as seen:
        await ask(CUTS[by])
    assert seen.value.by == by


@pytest.mark.parametrize("case", WRONG_NUMBERS)
async def test_every_wrong_number_is_seen(case: str) -> None:
    with pytest.raises(Cut) as seen:
        await ask(HEAD + WRONG_NUMBERS[case] + DONE + END)
    assert seen.value.by == "wrong-number"


async def test_the_end_of_the_connection_is_not_the_end_of_the_stream() -> None:
    with pytest.raises(Cut, match="eof"):
        await ask(HEAD + ONE_TO_THREE + STOP + DONE)


@pytest.mark.parametrize("by", REFUSALS)
async def test_every_refusal_is_seen(by: str) -> None:
    with pytest.raises(Refused) as seen:
        await ask(REFUSALS[by])
    assert seen.value.by == by


async def run(port: int, *options: str, stop_after: int | None = None) -> tuple[list[dict], dict]:
    """Run the client as a process; SIGTERM once so many lines are out. Its stream lines and its summary."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "apps.load", "--url", f"http://127.0.0.1:{port}", *options, cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    lines: list[dict] = []
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            assert process.stdout is not None
            async for line in process.stdout:
                lines.append(json.loads(line))
                if len(lines) == stop_after:
                    process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
    return [line for line in lines if "id" in line], lines[-1]["summary"]


async def test_a_closed_loop_to_its_total(tmp_path: Path) -> None:
    async with server(tmp_path, VERSION="v1") as s:
        out = tmp_path / "out.jsonl"
        lines, summary = await run(
            s.port, "--streams", "4", "--seconds", "0.1-0.3", "--rate", "50", "--total", "12", "--keep-alive",
            "--probe-rate", "10", "--tag", "t", "--out", str(out),
        )  # fmt: skip
        assert (summary["complete"], summary["cut"], summary["refused"], summary["tag"]) == (12, 0, 0, "t")
        assert summary["byVersion"] == {"v1": 12}
        assert summary["probes"]["complete"] > 0
        assert summary["tokens"] == sum(line["tokens"] for line in lines) == sum(line["expected"] for line in lines)
        assert sum(line["reused"] for line in lines) == 8
        # The client has the last byte before the server writes down that it sent it.
        assert {end["id"] for end in await s.logged("stream-end", 12)} == {line["id"] for line in lines}
        assert len(out.read_text().splitlines()) == 13


async def test_with_patience_it_begins_when_connections_are_taken(tmp_path: Path) -> None:
    options = ("--streams", "2", "--seconds", "0.1-0.2", "--rate", "50", "--total", "4")
    with held_port() as port:
        _, hasty = await run(port, *options)
        assert (hasty["complete"], hasty["refused"]) == (0, 4)
        patient = asyncio.create_task(run(port, *options, "--patience", "60"))
        await asyncio.sleep(1)
        async with server(tmp_path, PORT=str(port)):
            _, summary = await patient
    assert (summary["complete"], summary["refused"]) == (4, 0)


async def test_an_open_loop_against_a_draining_server_counts_refusals(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        await s.drain(propagationSeconds=0)
        await s.sealed()
        _, summary = await run(s.port, "--arrival", "40", "--seconds", "0.1", "--total", "8", "--probe-rate", "20")
        assert (summary["complete"], summary["refused"], summary["refusedBy"]) == (0, 8, {"status-503": 8})
        assert summary["probes"]["refused"] > 0


async def test_sigterm_lets_running_streams_finish(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        options = ("--streams", "3", "--seconds", "2-3", "--rate", "50", "--duration", "600", "--progress", "600")
        lines, summary = await run(s.port, *options, stop_after=2)
        assert summary["complete"] == summary["started"] == len(lines) < 8
        assert summary["cut"] + summary["refused"] + summary["abandoned"] == 0


async def test_a_server_that_exits_at_sigterm_cuts_and_then_refuses(tmp_path: Path) -> None:
    async with server(tmp_path, MISBEHAVE="exit-on-sigterm") as s:
        load = asyncio.create_task(run(s.port, "--streams", "3", "--seconds", "30", "--rate", "20", "--total", "5"))
        await s.logged("stream-start", 3)
        await asyncio.sleep(0.5)  # the heads are out: what ends now is a cut
        s.signal()
        _, summary = await load
        assert (summary["complete"], summary["cut"], summary["refused"]) == (0, 3, 2)
        assert summary["cutBy"].keys() <= {"eof", "reset"}
        # A connection made while the process ends may still be taken by its listening socket, which then goes.
        assert summary["refusedBy"].keys() <= {"connection-refused", "reset-before-response", "closed-before-response"}


async def test_the_budget_ends_everything(tmp_path: Path) -> None:
    async with server(tmp_path) as s:
        _, summary = await run(s.port, "--streams", "2", "--seconds", "100", "--budget", "1.5")
        assert (summary["abandoned"], summary["complete"], summary["running"]) == (2, 0, 0)


def test_options() -> None:
    assert parse(["--url", "http://x", "--seconds", "5-60"]).seconds == (5, 60)
    assert span("7") == (7, 7)
    with pytest.raises(ValueError, match="9-3"):
        span("9-3")
