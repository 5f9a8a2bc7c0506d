"""Load that checks every stream and never retries: `python -m apps.load --url http://HOST:PORT ...`.

Prints one JSON line per finished stream, progress lines, and at the end one line {"summary": ...}. On SIGTERM or
SIGINT it starts nothing more, lets what runs finish and prints the summary. The counts judge, not the exit code: it is
0 unless the load cannot run at all.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TextIO
from urllib.parse import urlsplit

from apps.check import Client, Cut, Exchange, Refused, Target

PAUSE_AFTER_REFUSAL_SECONDS = 0.25
IN_A_ROW = 5


@dataclass(slots=True)
class Counts:
    """What happened so far."""

    started: int = 0
    running: int = 0
    results: collections.Counter[str] = field(default_factory=collections.Counter)
    tokens: int = 0
    cut_by: collections.Counter[str] = field(default_factory=collections.Counter)
    refused_by: collections.Counter[str] = field(default_factory=collections.Counter)
    by_pod: collections.Counter[str] = field(default_factory=collections.Counter)
    by_version: collections.Counter[str] = field(default_factory=collections.Counter)
    probes: collections.Counter[str] = field(default_factory=collections.Counter)
    probes_by: collections.Counter[str] = field(default_factory=collections.Counter)

    def describe(self) -> dict[str, object]:
        return {
            "started": self.started,
            "running": self.running,
            **{name: self.results[name] for name in ("complete", "cut", "refused", "abandoned")},
            "tokens": self.tokens,
            "cutBy": dict(self.cut_by),
            "refusedBy": dict(self.refused_by),
            "byPod": dict(self.by_pod),
            "byVersion": dict(self.by_version),
            "probes": {name: self.probes[name] for name in ("complete", "cut", "refused", "abandoned")},
            "probesBy": dict(self.probes_by),
        }


class Load:
    """Starts the streams that the options ask for and judges each."""

    def __init__(self, options: argparse.Namespace, out: list[TextIO]) -> None:
        urls = [urlsplit(url) for url in options.url]
        self._targets = itertools.cycle([Target(u.hostname or "", u.port or 80, options.idle_timeout) for u in urls])
        self._options = options
        self._out = out
        self._random = random.Random(options.seed)
        self._counts = Counts()
        self._begun = time.monotonic()
        self._run = f"{options.tag or 'load'}-{self._random.getrandbits(32):08x}-{int(time.time())}"
        self.stop = asyncio.Event()

    async def reach(self, patience: float) -> None:
        """Connect until it works several times in a row, at most so long: Ready comes before a node's routes follow."""
        for url in map(urlsplit, self._options.url):
            end, well = time.monotonic() + patience, 0
            while well < IN_A_ROW and time.monotonic() < end and not self.stop.is_set():
                try:
                    async with asyncio.timeout(5):
                        _, writer = await asyncio.open_connection(url.hostname, url.port or 80)
                    writer.close()
                    well += 1
                except OSError:
                    well = 0
                await self._pause(0.1)

    async def run(self) -> None:
        """Everything, within the budget; what still runs then is reported as abandoned."""
        options = self._options
        tasks = [asyncio.create_task(self._report()), asyncio.create_task(self._timer())]
        if options.arrival:
            work = [asyncio.create_task(self._arrivals(options.arrival, self._one_new))]
        else:
            work = [asyncio.create_task(self._worker()) for _ in range(options.streams)]
        if options.probe_rate:
            work.append(asyncio.create_task(self._arrivals(options.probe_rate, self._probe)))
        streams = work[: len(work) - bool(options.probe_rate)]
        try:
            async with asyncio.timeout(options.budget):
                await asyncio.gather(*streams)
                self.stop.set()
                await asyncio.gather(*work)
        except TimeoutError:
            self.stop.set()
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
        for task in tasks:
            task.cancel()
        self._emit({"summary": self._describe()})

    def _more(self) -> bool:
        return not self.stop.is_set() and (self._options.total is None or self._counts.started < self._options.total)

    async def _timer(self) -> None:
        if self._options.duration is not None:
            await asyncio.sleep(self._options.duration)
            self.stop.set()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._options.progress)
            self._emit({"progress": self._describe()})

    async def _worker(self) -> None:
        """Closed loop: one stream after another, at the start spread a little so that not all end at once."""
        client = Client(next(self._targets), keep_alive=self._options.keep_alive)
        await self._pause(self._random.uniform(0, 0.5))
        while self._more():
            if not await self._one(client):
                await self._pause(PAUSE_AFTER_REFUSAL_SECONDS)
            await self._pause(self._random.uniform(*self._options.think))
        client.close()

    async def _one_new(self) -> None:
        await self._one(Client(next(self._targets), keep_alive=False))

    async def _arrivals(self, rate: float, start: Callable[[], Coroutine[None, None, None]]) -> None:
        """Open loop: start on schedule whatever the others do; ends when all it started have ended."""
        begun, running = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while self._more():
                group.create_task(start())
                running += 1
                await self._pause(begun + running / rate - time.monotonic())

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), max(seconds, 0))

    async def _one(self, client: Client) -> bool:
        """One stream, judged and written down; False if it was refused."""
        counts, options = self._counts, self._options
        counts.started += 1
        counts.running += 1
        length = self._random.uniform(*options.seconds)
        exchange = Exchange(f"{self._run}-{counts.started}", max(round(length * options.rate), 1), options.rate)
        begun = time.monotonic()
        result, by, status = await self._judge(client, exchange, stream=True)
        counts.running -= 1
        counts.results[result] += 1
        counts.tokens += exchange.tokens
        counts.by_pod[exchange.pod or "none"] += 1
        counts.by_version[exchange.version or "none"] += 1
        if by is not None:
            (counts.refused_by if result == "refused" else counts.cut_by)[by] += 1
        self._emit({
            "at": round(time.time(), 4), "id": exchange.id, "result": result, "by": by, "status": status,
            "pod": exchange.pod, "version": exchange.version,
            "seconds": round(time.monotonic() - begun, 3), "tokens": exchange.tokens,
            "expected": exchange.expected, "reused": exchange.reused, "tag": options.tag,
        })  # fmt: skip
        if result == "abandoned":
            raise asyncio.CancelledError
        return result != "refused"

    async def _probe(self) -> None:
        """One short request on a connection of its own; written down only if it fails."""
        exchange = Exchange(f"{self._run}-probe-{self._random.getrandbits(48):012x}", 1, 0)
        result, by, status = await self._judge(Client(next(self._targets), keep_alive=False), exchange, stream=False)
        self._counts.probes[result] += 1
        if by is not None:
            self._counts.probes_by[by] += 1
            line = {"id": exchange.id, "result": result, "by": by, "status": status, "pod": exchange.pod}
            self._emit({"at": round(time.time(), 4), "probe": line})

    async def _judge(self, client: Client, exchange: Exchange, *, stream: bool) -> tuple[str, str | None, int | None]:
        try:
            await client.ask(exchange, stream=stream)
        except Refused as refused:
            return "refused", refused.by, refused.status
        except Cut as cut:
            return "cut", cut.by, None
        except asyncio.CancelledError:
            return "abandoned", None, None
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, asyncio.LimitOverrunError):
            return "cut", "rubbish", None
        return "complete", None, None

    def _describe(self) -> dict[str, object]:
        seconds = round(time.monotonic() - self._begun, 3)
        return {"at": round(time.time(), 4), "tag": self._options.tag, "seconds": seconds, **self._counts.describe()}

    def _emit(self, line: dict[str, object]) -> None:
        for file in self._out:
            file.write(json.dumps(line) + "\n")
            file.flush()


def span(text: str) -> tuple[float, float]:
    """`5-60` or `5`, in seconds."""
    low, dash, high = text.partition("-")
    result = float(low), float(high if dash else low)
    if not 0 <= result[0] <= result[1]:
        raise ValueError(text)
    return result


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m apps.load", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--url", required=True, action="append", help="http://HOST[:PORT] of the Service; of several, in turn")
    add("--streams", type=int, default=10, help="closed loop: so many streams at once")
    add("--arrival", type=float, help="open loop instead: so many new connections a second")
    add("--seconds", type=span, default=(5.0, 60.0), help="length of a stream, MIN-MAX, drawn evenly")
    add("--rate", type=float, default=10.0, help="tokens a second of each stream")
    add("--total", type=int, help="end after so many streams")
    add("--duration", type=float, help="start streams for so many seconds, then let them finish")
    add("--keep-alive", action="store_true", help="closed loop: each worker keeps its connection")
    add("--think", type=span, default=(0.0, 0.0), help="closed loop: pause between a worker's streams, MIN-MAX")
    add("--probe-rate", type=float, help="short requests a second, each on a new connection")
    add("--idle-timeout", type=float, default=30.0, help="a stream silent for so long is cut: stalled")
    add("--budget", type=float, default=3600.0, help="seconds after which everything is given up")
    add("--progress", type=float, default=5.0, help="seconds between progress lines")
    add("--patience", type=float, default=0.0, help="seconds to wait before all until connections are taken")
    add("--seed", type=int, default=1)
    add("--tag", default="")
    add("--out", help="append the lines to this file as well")
    return parser.parse_args(arguments)


async def main() -> int:
    """Run the load that the command line describes."""
    options = parse()
    out = [sys.stdout]
    with contextlib.ExitStack() as stack:
        if options.out:
            out.append(stack.enter_context(open(options.out, "a")))  # noqa: ASYNC230, PTH123
        load = Load(options, out)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, load.stop.set)
        await load.reach(options.patience)
        await load.run()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
