"""Watches the engine: whether it is ready, and whether it is gone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os

from tidegate.gateway.bodies import body_of
from tidegate.gateway.clock import Clock
from tidegate.gateway.draining import Drain
from tidegate.gateway.log import Log
from tidegate.gateway.options import Options
from tidegate.gateway.response_heads import ResponseHeads

LOOK_SECONDS = 1.0
"""Between two checks of a serving engine: only whether it listens, which costs it nothing."""
START_SECONDS = 0.25
"""Between two checks of an engine that is starting, or that a preStop hook waits for."""
LISTEN_SECONDS = 2.0
READY_SECONDS = 10.0
WARMUP_SECONDS = 600.0
REMIND_SECONDS = 60.0
"""Between two log lines with the same reason for the engine not being ready."""
MAX_READ_BYTES = 64 * 1024


class Engine:
    """Watches one engine and reports its state to the drain."""

    def __init__(self, options: Options, drain: Drain, log: Log, clock: Clock) -> None:
        self._options = options
        self._drain = drain
        self._log = log
        self._clock = clock
        self._ready = False
        self._was_up = False
        self._look = asyncio.Event()
        self._connect_error = ""
        self._warned, self._warned_at = "", 0.0
        self._invalid = False

    def unreachable(self, error: OSError) -> None:
        """A request could not connect; acts if nothing listens any more."""
        if error.errno == errno.ECONNREFUSED:
            self._gone()

    def answers_invalidly(self, kind: str, message: str) -> None:
        """A response is not valid HTTP/1.1. Logs the first such response, not each."""
        if not self._invalid:
            self._invalid = True
            self._log.write("engine-invalid", **{"class": kind}, message=message)

    def answers(self) -> None:
        """A response has begun as it should."""
        self._invalid = False

    async def watch(self) -> None:
        """Check the engine periodically, until cancelled."""
        while True:
            try:
                await self._check()
            except Exception as error:
                # Without its watch a pod would be `starting` for ever, and nobody would know why.
                self._warn(f"{type(error).__name__}: {error}")
            self._look.clear()
            pause = LOOK_SECONDS if self._ready and not self._drain.contract.prestopped else START_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), pause)

    async def _check(self) -> None:
        listens = await self._listens()
        if not listens and not self._ready:
            self._warn(f"{self._options.upstream.host}:{self._options.upstream.port}: {self._connect_error}")
        if listens is False:
            self._gone()
        elif listens and not self._ready:
            self._was_up = True
            self._drain.engine_back()
            if await self._is_ready() and await self._is_warm():
                self._ready, self._warned = True, ""
                self._drain.started()

    def _gone(self) -> None:
        # Until it has been up once it is starting, not gone.
        if self._was_up:
            self._ready = False
            self._drain.engine_gone()
            self._look.set()

    async def _listens(self) -> bool | None:
        """None: unknown, for example because the machine is too busy to answer in time."""
        upstream = self._options.upstream
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                _, writer = await asyncio.open_connection(upstream.host, upstream.port)
        except TimeoutError:
            self._connect_error = f"no connection within {LISTEN_SECONDS:g} s"
            return None
        except OSError as error:
            number = error.errno or 0
            self._connect_error = os.strerror(number) if number > 0 else str(error)
            return False if number in (errno.ECONNREFUSED, 0) else None
        writer.close()
        return True

    async def _is_ready(self) -> bool:
        path = self._options.ready_path
        return not path or await self._succeeds("GET", path, "", READY_SECONDS)

    async def _is_warm(self) -> bool:
        path, body = self._options.warmup_path, self._options.warmup_body
        return not path or await self._succeeds("POST" if body else "GET", path, body, WARMUP_SECONDS)

    async def _succeeds(self, method: str, path: str, body: str, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                status = await self._ask(method, path, body.encode())
        except (OSError, ValueError, asyncio.LimitOverrunError, EOFError, TimeoutError) as error:
            self._warn(f"{method} {path}: {error or type(error).__name__}")
            return False
        if not 200 <= status < 300:
            self._warn(f"{method} {path}: HTTP {status}")
            return False
        return True

    async def _ask(self, method: str, path: str, body: bytes) -> int:
        """Send a request and read its whole response; returns the status. Raises OSError, ValueError, EOFError."""
        upstream = self._options.upstream
        reader, writer = await asyncio.open_connection(upstream.host, upstream.port)
        try:
            head = f"{method} {path} HTTP/1.1\r\nHost: {upstream.host}:{upstream.port}\r\nConnection: close\r\n"
            if body:
                head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(head.encode() + b"\r\n" + body)
            heads = ResponseHeads()
            while (response := heads.next_head()) is None:
                heads.add(await _some(reader))
            answer = body_of(response)
            answer.feed(heads.take())
            while not answer.done and (data := await reader.read(MAX_READ_BYTES)):
                answer.feed(data)
            if not answer.done and not answer.eof():
                raise EOFError("the response is truncated")
            return response.status
        finally:
            writer.close()

    def _warn(self, message: str) -> None:
        """Log why the engine is not ready: each reason at once, and repeatedly while it lasts."""
        now = self._clock.monotonic()
        if message != self._warned or now >= self._warned_at + REMIND_SECONDS:
            self._warned, self._warned_at = message, now
            self._log.write("engine-not-ready", message=message)


async def _some(reader: asyncio.StreamReader) -> bytes:
    """What has arrived of a response. Raises EOFError at its end."""
    data = await reader.read(MAX_READ_BYTES)
    if not data:
        raise EOFError("the response is truncated")
    return data
