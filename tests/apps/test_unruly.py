"""The unruly clients against the plain engine, without anything between: each gets what it came for and says so."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from apps.check import Cut, Exchange, Refused, Target
from apps.manners import PipeliningClient, SlowClient, Socket, UploadingClient, refused_well
from apps.running import LIMIT_SECONDS, ROOT, Server, read_events, server

GOOD = {"abort": "aborted", "slow": "complete", "kept": "complete", "pipeline": "complete", "upload": "complete"}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DRAINING = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 S\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"


def answer(tokens: int) -> bytes:
    events = [{"choices": [{"delta": {"content": f"{n} "}, "finish_reason": None}]} for n in range(1, tokens + 1)]
    events.append({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    lines = [json.dumps(event) for event in events] + ["[DONE]"]
    chunks = [f"data: {line}\n\n".encode() for line in lines]
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


async def run(s: Server, out: Path, until: dict[str, int]) -> dict[str, Any]:
    """The program, stopped when so many requests of each kind have ended; its summary."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "apps.unruly", f"--url=http://127.0.0.1:{s.port}", "--each=1", f"--out={out}",
        env={"PYTHONPATH": str(ROOT)}, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            while not all(count(out, kind) >= least for kind, least in until.items()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    summary = read_events(out)[-1]["summary"]
    assert isinstance(summary, dict)
    return summary


def count(out: Path, kind: str) -> int:
    return len([line for line in read_events(out) if line.get("kind") == kind and "result" in line])


async def test_every_kind_ends_as_it_should_and_is_counted(tmp_path: Path) -> None:
    async with server(tmp_path, key=None, module="apps.plain") as s:
        out = tmp_path / "clients.jsonl"
        summary = await run(s, out, {"abort": 4, "slow": 1, "kept": 2, "pipeline": 3, "upload": 1})
        lines = [line for line in read_events(out) if "result" in line]
        assert {(line["kind"], line["result"]) for line in lines} == {*GOOD.items(), ("socket", "complete")}, lines
        assert (summary["started"], summary["running"]) == (len(lines), 0)
        # The engine's word for it: those that left did so, and no other. It notices the last ones after they are gone.
        ends = await s.logged("stream-end", len(s.named("stream-start")))
        left = {line["id"] for line in ends if not line["whole"]}
        assert left == {line["id"] for line in lines if line["kind"] == "abort" and line["way"] != "upload"}
        (ended,) = await s.logged("socket-end")
        assert ended["heard"] == 0


async def scripted(client: asyncio.StreamWriter, reader: asyncio.StreamReader, out: bytes) -> None:
    await reader.readuntil(b"\r\n\r\n")
    client.write(out)
    await client.drain()
    client.write_eof()
    await reader.read(-1)
    client.close()


async def against(out: bytes, kind: str) -> Any:
    """What the client of this kind says of a server that answers with these bytes and closes."""
    started = await asyncio.start_server(lambda r, w: scripted(w, r, out), "127.0.0.1", 0)
    target = Target("127.0.0.1", started.sockets[0].getsockname()[1], LIMIT_SECONDS)
    exchange = Exchange(kind, 3, 10)
    async with started, asyncio.timeout(LIMIT_SECONDS):
        if kind == "pipeline":
            client = PipeliningClient(target, keep_alive=True)
            try:
                return await client.ask_all([exchange, Exchange("second", 2, 10)])
            except Refused as refused:
                return refused.by, refused_well(client, refused)
        try:
            if kind == "slow":
                await SlowClient(target, keep_alive=False).ask(exchange, stream=True)
            elif kind == "upload":
                await UploadingClient(target, keep_alive=False).upload(exchange, chunked=False)
            else:
                return await Socket(target, asyncio.Event()).count_along(exchange), exchange.tokens
        except (Cut, Refused, asyncio.IncompleteReadError) as error:
            return getattr(error, "by", type(error).__name__)


@pytest.mark.parametrize(
    ("kind", "out", "found"),
    [
        ("pipeline", answer(3) + answer(2), []),
        ("pipeline", answer(3).replace(b"Transfer", b"Connection: close\r\nTransfer"), [Exchange("second", 2, 10)]),
        ("pipeline", answer(3) + DRAINING, ("status-503", True)),
        ("pipeline", answer(3) + DRAINING.replace(b"Retry-After: 1\r\n", b""), ("status-503", False)),
        ("pipeline", answer(3) + DRAINING.replace(b"Connection: close\r\n", b""), ("status-503", False)),
        ("pipeline", answer(3), ("closed-before-response", False)),
        ("slow", answer(2), "wrong-number"),
        ("upload", b'HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{"bytes": 1, "sha256": 0}', "another-body"),
        ("socket", SWITCHED + b"\x81\x011\x81\x012\x88\x02\x03\xe9", (1001, 2)),
        ("socket", SWITCHED + b"\x81\x011\x81\x013", "wrong-number"),
        ("socket", SWITCHED + b"\x81\x011", "IncompleteReadError"),
    ],
)
async def test_what_is_not_as_promised_is_seen(kind: str, out: bytes, found: object) -> None:
    assert await against(out, kind) == found
