"""Runs every load against every rival, in turns, and keeps all figures."""

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .rivals import Rival, Running

HERE = Path(__file__).resolve().parent
DIRECT = "direct"
START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load. `streams` of `chunks` chunks each, or short calls where `arrivals` is `short`."""

    streams: int
    arrivals: str
    chunks: int

    @property
    def name(self) -> str:
        """As the table has it."""
        return f"{self.streams} {self.arrivals}"

    def arguments(self) -> list[str]:
        """Of the client."""
        if self.arrivals == "short":
            return ["short", "--connections", str(self.streams), "--calls", str(self.chunks)]
        return ["streams", "--count", str(self.streams), "--chunks", str(self.chunks), "--arrivals", self.arrivals]


Figure = dict[str, Any]


class Failed(Exception):
    """Something that does not start or does not answer; the text holds its last words."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextmanager
def upstream() -> Iterator[int]:
    """The engine without a model, while the block runs; yields its port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "gatewaybench.upstream", "--port", str(port)], cwd=HERE.parent)
    try:
        wait_open(port, lambda: "the upstream does not start")
        yield port
    finally:
        process.terminate()
        process.wait(10)


def wait_open(port: int, what: Any) -> None:
    """Until something listens. Raises Failed with the words of `what` after START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            if time.monotonic() > deadline:
                raise Failed(what()) from None
            time.sleep(0.1)


def wait_answer(port: int, what: Any) -> None:
    """Until it relays, not merely listens: a proxy may still be waiting for its upstream."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ask(port, Load(1, "short", 1))
        except Failed:
            if time.monotonic() > deadline:
                raise Failed(what()) from None
            time.sleep(0.2)
        else:
            return


def ask(port: int, load: Load) -> Figure:
    """The figures of one load, from a client of its own. Raises Failed."""
    command = [sys.executable, "-m", "gatewaybench.client", "--port", str(port), *load.arguments()]
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, timeout=180, check=False)
    if done.returncode:
        raise Failed(f"{load.name}: the client says: {done.stderr.decode(errors='replace')[-500:]}")
    return dict(json.loads(done.stdout))


def measure(rival: Rival | None, engine: int, loads: Sequence[Load]) -> list[Figure]:
    """All loads against one rival, freshly started; None: straight to the engine."""
    if rival is None:
        return [ask(engine, load) | {"rival": DIRECT, "load": load.name} for load in loads]
    ports = {"listen": free_port(), "admin": free_port(), "upstream": engine}
    running = Running(rival, ports)
    try:
        wait_open(ports["listen"], lambda: f"{rival.name} does not start: {running.log_tail()}")
        wait_answer(ports["listen"], lambda: f"{rival.name} does not answer: {running.log_tail()}")
        found = []
        for load in loads:
            before = running.cpu_seconds()
            figure = ask(ports["listen"], load)
            figure |= {
                "rival": rival.name,
                "load": load.name,
                "cpuSeconds": running.cpu_seconds() - before,
                "memoryMb": running.memory_mb(),
            }
            found.append(figure)
        return found
    finally:
        running.close()


def rounds(rivals: Sequence[Rival], loads: Sequence[Load], count: int) -> Iterator[Figure]:
    """Every rival once a round, the order turned by one each time; the direct connection in each round too."""
    contenders: list[Rival | None] = [None, *rivals]
    for number in range(count):
        turn = number % len(contenders)
        for rival in contenders[turn:] + contenders[:turn]:
            with upstream() as engine:
                for figure in measure(rival, engine, loads):
                    yield figure | {"round": number}


def median(values: Sequence[float]) -> float | None:
    """None of nothing."""
    return statistics.median(values) if values else None


def _per(figures: Sequence[Figure], unit: str) -> float | None:
    return median([f["cpuSeconds"] * 1e6 / f[unit] for f in figures if "cpuSeconds" in f])


def summary(figures: Sequence[Figure]) -> list[Figure]:
    """Per load and rival: medians over the rounds; latencies as what is added to the direct connection's, by round."""
    direct = {(f["load"], f["round"]): f for f in figures if f["rival"] == DIRECT}
    rows = []
    for load in dict.fromkeys(f["load"] for f in figures):
        for rival in dict.fromkeys(f["rival"] for f in figures):
            mine = [f for f in figures if (f["load"], f["rival"]) == (load, rival)]
            if not mine:
                continue
            rows.append(_row(load, rival, mine, direct))
    return rows


def _row(load: str, rival: str, mine: Sequence[Figure], direct: Mapping[tuple[str, int], Figure]) -> Figure:
    row: Figure = {"load": load, "rival": rival, "runs": len(mine)}
    if "chunks" in mine[0]:
        for key in ("p50", "p99"):
            row[key] = median([f[key] for f in mine])
            row[f"{key}Added"] = median([f[key] - direct[load, f["round"]][key] for f in mine])
        row["cpuMicrosecondsPerChunk"] = _per(mine, "chunks")
    else:
        row["callsPerSecond"] = median([f["perSecond"] for f in mine])
        row["cpuMicrosecondsPerCall"] = _per(mine, "calls")
    row["memoryMb"] = median([f["memoryMb"] for f in mine if "memoryMb" in f])
    return row
