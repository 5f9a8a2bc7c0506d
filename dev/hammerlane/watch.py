"""The gateway's process, what it holds, and whether anything of a round is left in it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from .book import Book

KEY = "hammer-key"
SETTLE_SECONDS = 60.0
"""Longer than an answered upload may linger."""
STEADY_BYTES = 6 * 1024 * 1024
"""What the memory may differ between two quiet moments; a leak of 1 KB per request is more."""
OPTIONS = {
    "listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "grace-seconds": "8", "propagation-seconds": "60",
    "quiet-seconds": "1", "flush-seconds": "1", "idle-seconds": "3", "total-seconds": "12",
}  # fmt: skip
ZERO = ("inFlight", "streams", "queued", "stalled")
_FAILED = re.compile(r"Traceback|Exception|exception|never retrieved|was destroyed|Warning|-failed\Z")


class Ended(Exception):
    """The gateway's process has ended by itself."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """The process while nothing happens. `open`: its descriptors."""

    state: dict[str, object]
    gauges: dict[str, float]
    rss: int
    open: int


class Gateway:
    """One running gateway."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path, err: Path) -> None:
        self.process = process
        self.port = self.admin = 0
        self._out = out
        self._err = err

    def lines(self) -> list[str]:
        """All that it has written."""
        return [*self._out.read_text().splitlines(), *self._err.read_text().splitlines()]

    def stray(self) -> list[str]:
        """The lines that are no event of its log, or tell of a fault of its own."""
        return [
            line for line in self._out.read_text().splitlines() if is_stray(line)
        ] + self._err.read_text().splitlines()

    def cpu_seconds(self) -> float:
        """CPU used so far."""
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")

    def now(self) -> Quiet:
        """What it holds now."""
        root = Path(f"/proc/{self.process.pid}")
        rss = int((root / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        state = dict(json.loads(self._get("/drain")))
        page = self._get("/metrics").splitlines()
        numbers = (line.rsplit(" ", 1) for line in page if not line.startswith("#"))
        gauges = {name.removeprefix("tidegate_gateway_"): float(value) for name, value in numbers}
        return Quiet(state, gauges, rss, len(list((root / "fd").iterdir())))

    async def quiet(self, open_before: int | None) -> Quiet:
        """Wait until nothing is in flight and no more descriptors are open than before; what is so then, or at last.

        None: before any traffic. Raises Ended.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        if open_before is None:
            # The gateway looks for its engine once a second, which takes a descriptor for a moment.
            return min([await self._soon() for _ in range(5)], key=lambda moment: moment.open)
        while True:
            now = await self._soon()
            if (now.open <= open_before and not any(now.state[name] for name in ZERO)) or time.monotonic() > deadline:
                return now

    async def end(self) -> int:
        """SIGTERM; returns the exit code. Raises TimeoutError."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 30)

    async def _soon(self) -> Quiet:
        await asyncio.sleep(0.3)
        if self.process.returncode is not None:
            raise Ended("\n".join([f"the gateway has ended with {self.process.returncode}", *self.stray()[:20]]))
        return await asyncio.to_thread(self.now)

    def _get(self, path: str) -> str:
        asked = urllib.request.Request(f"http://127.0.0.1:{self.admin}{path}", headers={"Tidegate-Key": KEY})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return str(answer.read().decode())


@asynccontextmanager
async def gateway(command: Sequence[str], upstream: int, directory: Path) -> AsyncIterator[Gateway]:
    """Start `command`, a gateway, in front of a port of this machine, and kill it at the end. Raises Ended."""
    keys, out, err = directory / "keys", directory / "gateway.jsonl", directory / "gateway.err"
    keys.mkdir()
    (keys / "current").write_text(KEY)
    options = [f"--{name}={value}" for name, value in OPTIONS.items()]
    # Unclosed transports and coroutines that nobody awaited are lines too.
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command, f"--upstream=127.0.0.1:{upstream}", f"--key-dir={keys}", *options,
            stdout=stdout, stderr=stderr, env=environment,
        )  # fmt: skip
    made = Gateway(process, out, err)
    try:
        async with asyncio.timeout(30):
            while not (made.port and any('"serving"' in line for line in made.lines())):
                await asyncio.sleep(0.05)
                if process.returncode is not None:
                    raise Ended("\n".join(["the gateway has not started:", *made.lines()]))
                for line in made.lines():
                    event = json.loads(line) if line.startswith("{") else {}
                    if event.get("event") == "listening":
                        made.port, made.admin = event["port"], event["adminPort"]
        yield made
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def is_stray(line: str) -> bool:
    """Whether a line is no event of the log, or the event of a fault in the gateway."""
    try:
        event = json.loads(line)
    except ValueError:
        return True
    if not isinstance(event, dict) or not {"at", "event", "instance"} <= event.keys():
        return True
    return _FAILED.search(str(event["event"])) is not None


def faults(before: Quiet, after: Quiet, book: Book, stray: Sequence[str]) -> list[str]:
    """What a round has broken, in sentences; empty if all is as it was."""
    found = [f"{name} is {after.state[name]}, and nothing runs" for name in ZERO if after.state[name]]
    for name in ("in_flight", "streams", "queued", "stalled"):
        if after.gauges[name]:
            found.append(f"the metric {name} is {after.gauges[name]:g}, and nothing runs")
    if after.state["state"] != "serving":
        found.append(f"the state is {after.state['state']}, and every drain was undone")
    if after.open > before.open:
        found.append(f"{after.open} descriptors are open, {before.open} were")
    if after.rss > before.rss + STEADY_BYTES:
        found.append(f"the memory has grown from {before.rss >> 10} to {after.rss >> 10} KiB")
    found += [f"request {name} was sent {book.sent[name]} and seen {book.seen[name]} times" for name in book.replayed()]
    found += [f"forgotten clients: {end}, {n} times" for end, n in book.ends.items() if end.endswith(" forgotten")]
    return found + [f"stray line: {line}" for line in stray]
