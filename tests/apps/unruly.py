"""Clients that are unlike the ordinary one, each judged by what it was promised: `python -m apps.unruly --url ...`.

`abort` goes away in the middle of its answer or of its own request, `slow` takes its answer more slowly than it is
made, `kept` keeps its connection, `pipeline` asks again before it is answered, `upload` sends 50 MB, `socket` holds a
WebSocket until it is closed. Prints one JSON line per request, progress lines and a summary, as apps.load does.

Nothing is tried again but what a pod that drains has refused as it should, on a connection that was used before: that
is `retried`, and must then succeed on a new one.
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
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from apps import websocket
from apps.check import Client, Cut, Exchange, Refused, Target
from apps.manners import AbortingClient, PipeliningClient, SlowClient, Socket, UploadingClient, refused_well

RATE = 5.0
TOKENS = (5, 25)
ENDLESS_TOKENS = 100_000
SLOW_TOKENS = 8_000
"""Some 1.5 MB: more than all buffers on the way hold, so that the engine is held back as well."""
PIPELINED = 3
PAUSE_SECONDS = {"slow": (1.0, 4.0), "upload": (1.0, 4.0), "abort": (0.0, 1.0)}
"""Between two requests of one client: without it the machine would do little else. `kept` must not pause: a connection
that idles may be closed at any time, and no client can know that before it asks."""
IDLE_SECONDS = 120.0


@dataclass(slots=True)
class Book:
    """One line per request, and the counts of all."""

    out: list[Any]
    running: int = 0
    started: int = 0
    results: collections.Counter[str] = field(default_factory=collections.Counter)
    kinds: dict[str, collections.Counter[str]] = field(default_factory=dict)

    def end(self, kind: str, exchange: Exchange, result: str, by: str | None, **more: object) -> None:
        self.running -= 1
        self.results[result] += 1
        self.kinds.setdefault(kind, collections.Counter())[result] += 1
        self.emit({
            "kind": kind, "id": exchange.id, "result": result, "by": by, "pod": exchange.pod,
            "version": exchange.version, "tokens": exchange.tokens, "expected": exchange.expected, **more,
        })  # fmt: skip

    def describe(self) -> dict[str, object]:
        named = {name: self.results[name] for name in ("complete", "cut", "refused", "abandoned", "aborted", "closed")}
        return {"started": self.started, "running": self.running, **named, "kinds": self.kinds}

    def emit(self, line: dict[str, object]) -> None:
        for file in self.out:
            file.write(json.dumps(line) + "\n")
            file.flush()


class Unruly:
    """Runs `each` clients of every kind, one request after the other, until it is stopped."""

    def __init__(self, target: Target, book: Book, seed: int) -> None:
        self.stop = asyncio.Event()
        self._target = target
        self._book = book
        self._dice = random.Random(seed)
        self._names = itertools.count(1)
        self._run = f"{self._dice.getrandbits(32):08x}"

    async def run(self, kinds: list[str], each: int) -> None:
        """Everything, until `stop`; what runs then comes to its end."""
        async with asyncio.TaskGroup() as group:
            progress = group.create_task(self._report())
            workers = [group.create_task(self._work(kind)) for kind in kinds for _ in range(each)]
            await asyncio.wait(workers)
            progress.cancel()
        self._book.emit({"summary": self._book.describe()})

    async def _work(self, kind: str) -> None:
        await asyncio.sleep(self._dice.uniform(0, 0.5))
        kept = Client(self._target, keep_alive=True)
        while not self.stop.is_set():
            if kind == "kept":
                await self._keep(kept)
            else:
                await {"abort": self._abort, "slow": self._slow, "pipeline": self._pipeline, "upload": self._upload,
                       "socket": self._socket}[kind]()  # fmt: skip
            if kind == "socket":
                return
            if kind in PAUSE_SECONDS:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), self._dice.uniform(*PAUSE_SECONDS[kind]))
        kept.close()

    async def _report(self) -> None:
        while True:
            self._book.emit({"progress": self._book.describe()})
            await asyncio.sleep(1)

    def _begin(self, kind: str, tokens: int | None = None, rate: float = RATE) -> Exchange:
        self._book.started += 1
        self._book.running += 1
        wanted = self._dice.randint(*TOKENS) if tokens is None else tokens
        return Exchange(f"{kind}-{self._run}-{next(self._names)}", wanted, rate)

    async def _judge(self, kind: str, exchange: Exchange, asking: Awaitable[object], **more: object) -> None:
        """Write down how one request ended that nothing may go wrong with."""
        try:
            await asking
        except Refused as refused:
            self._book.end(kind, exchange, "refused", refused.by, **more)
        except Cut as cut:
            self._book.end(kind, exchange, "cut", cut.by, **more)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, asyncio.LimitOverrunError):
            self._book.end(kind, exchange, "cut", "rubbish", **more)
        else:
            self._book.end(kind, exchange, "complete", None, **more)

    async def _slow(self) -> None:
        exchange = self._begin("slow", SLOW_TOKENS, rate=0)
        await self._judge("slow", exchange, SlowClient(self._target, keep_alive=False).ask(exchange, stream=True))

    async def _upload(self) -> None:
        exchange = self._begin("upload", 0)
        chunked = self._dice.random() < 0.5
        await self._judge("upload", exchange, UploadingClient(self._target, keep_alive=False).upload(
            exchange, chunked=chunked), chunked=chunked)  # fmt: skip

    async def _keep(self, client: Client) -> None:
        exchange = self._begin("kept")
        reused = False

        async def ask() -> None:
            nonlocal reused
            try:
                await client.ask(exchange, stream=True)
            except Refused as refused:
                if not (exchange.reused and refused_well(client, refused)):
                    raise
                reused = True
                await client.ask(exchange, stream=True)

        try:
            await self._judge("kept", exchange, ask())
        finally:
            if reused:
                self._retried("kept", exchange)

    async def _pipeline(self) -> None:
        exchanges = [self._begin("pipeline", self._dice.randint(3, 10)) for _ in range(PIPELINED)]
        waiting = exchanges
        while waiting:
            client = PipeliningClient(self._target, keep_alive=True)
            asked = waiting
            try:
                waiting = await client.ask_all(asked)
            except Refused as refused:
                first = next(exchange for exchange in asked if not whole(exchange))
                if first.reused and refused_well(client, refused):
                    waiting = asked[asked.index(first) :]
                else:
                    waiting = self._failed(asked, "refused", refused.by)
            except Cut as cut:
                waiting = self._failed(asked, "cut", cut.by)
            for exchange in asked[: len(asked) - len(waiting)]:
                if whole(exchange):
                    self._book.end("pipeline", exchange, "complete", None)
            for exchange in waiting:
                self._retried("pipeline", exchange)

    def _failed(self, asked: list[Exchange], result: str, by: str) -> list[Exchange]:
        for exchange in asked:
            if not whole(exchange):
                self._book.end("pipeline", exchange, result, by)
        return []

    def _retried(self, kind: str, exchange: Exchange) -> None:
        self._book.kinds.setdefault(kind, collections.Counter())["retried"] += 1
        self._book.emit({"retried": exchange.id, "kind": kind})

    async def _abort(self) -> None:
        exchange = self._begin("abort", ENDLESS_TOKENS)
        client = AbortingClient(self._target, keep_alive=False)
        way = self._dice.choice(("fin", "reset", "upload"))
        enough = self._dice.randint(1, 20)
        asking = asyncio.create_task(
            client.upload_half(exchange.id) if way == "upload" else client.ask(exchange, stream=True)
        )
        while not asking.done() and exchange.tokens < enough:
            await asyncio.wait([asking], timeout=0.02)
        if way == "reset":
            client.reset()
        asking.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await asking
        except Refused as refused:
            self._book.end("abort", exchange, "refused", refused.by, way=way)
        except (Cut, ConnectionError) as error:
            by = error.by if isinstance(error, Cut) else "reset"
            self._book.end("abort", exchange, "cut", by, way=way)
        else:
            self._book.end("abort", exchange, "aborted", None, way=way)
        finally:
            client.close()

    async def _socket(self) -> None:
        exchange = self._begin("socket", 0)
        code: int | None = None
        try:
            code = await Socket(self._target, self.stop).count_along(exchange)
        except (asyncio.IncompleteReadError, ConnectionError, websocket.FrameError) as error:
            result, by = ("cut" if exchange.pod else "refused"), type(error).__name__
        except (Refused, Cut) as error:
            result, by = ("cut" if isinstance(error, Cut) else "refused"), error.by
        else:
            result, by = ("complete" if code is None else "closed"), None
        self._book.end("socket", exchange, result, by, code=code)


def whole(exchange: Exchange) -> bool:
    return exchange.tokens == exchange.expected


KINDS = ("abort", "slow", "kept", "pipeline", "upload", "socket")


async def main() -> int:
    """Run the clients that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m apps.unruly", description=__doc__.split("\n\n")[0])
    parser.add_argument("--url", required=True, help="http://HOST:PORT")
    parser.add_argument("--kind", action="append", choices=KINDS, help="absent: all")
    parser.add_argument("--each", type=int, default=2, help="clients of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="append the lines to this file as well")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        out = [sys.stdout, *([stack.enter_context(options.out.open("a"))] if options.out else [])]
        url = urlsplit(options.url)
        unruly = Unruly(Target(url.hostname or "", url.port or 80, IDLE_SECONDS), Book(out), options.seed)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, unruly.stop.set)
        await unruly.run(options.kind or list(KINDS), options.each)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
