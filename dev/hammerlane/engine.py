"""Two engines in this process: the tests' own, which behaves, and one that answers with anything."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from apps.events import EventLog
from apps.misbehave import Misbehaviour
from apps.plain import Plain
from apps.service import Service
from apps.wire import Connection, HttpServer, Request
from tidegate.contract.terms import Settings

from .book import HEADER, Book
from .clients import reset
from .noise import mutated, pieces, response

MOST_BODY_BYTES = 1024 * 1024
PAUSES = (0.0, 0.0, 0.0, 0.005, 0.05)
RETRYABLE = ("GET", "HEAD", "OPTIONS")
"""May be sent again where an idle connection breaks under them; nothing else may."""
_NAME = re.compile(rb"^%b: (\S+)\r?$" % HEADER.encode(), re.IGNORECASE | re.MULTILINE)
_LENGTH = re.compile(rb"^content-length: (\d+)\r?$", re.IGNORECASE | re.MULTILINE)
_CHUNKED = re.compile(rb"^transfer-encoding: chunked\r?$", re.IGNORECASE | re.MULTILINE)


@asynccontextmanager
async def well_behaved(book: Book, log: Path) -> AsyncIterator[int]:
    """The tests' engine, each of whose requests is noted; the port."""
    with log.open("w") as out:
        events = EventLog("engine", "engine", None)
        events._files = [out]
        service = Service(Settings(), "engine", events, Misbehaviour.parse(""))
        service.contract.started()
        plain = Plain(service, "numbers")

        async def handle(connection: Connection, request: Request) -> bool:
            name = request.headers.get(HEADER.lower())
            if name and request.method not in RETRYABLE:
                book.seen[name] += 1
            return await plain.handle(connection, request)

        server = HttpServer(handle, {})
        keeping = asyncio.create_task(service.keep_time())
        try:
            yield await server.listen("127.0.0.1", 0)
        finally:
            server.close_idle()
            keeping.cancel()


class WildEngine:
    """Reads requests as it should, and answers each with something that is nearly a response, or with nothing."""

    def __init__(self, book: Book, seed: int) -> None:
        self._book = book
        self._rng = random.Random(seed)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            while await self._one(reader, writer):
                pass
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; whether the connection stays."""
        rng = self._rng
        head = await reader.readuntil(b"\r\n\r\n")
        name = _NAME.search(head)
        if name is not None and head.partition(b" ")[0].decode("latin-1") not in RETRYABLE:
            self._book.seen[name[1].decode()] += 1
        early = rng.random() < 0.1
        if not early:
            await _take_body(head, reader)
        what = rng.random()
        if what < 0.15:
            return _end(writer, rng)
        data, keep = response(rng)
        if what < 0.6:
            changed = mutated(data, rng)
            keep = keep and changed == data
            data = changed
        for piece in pieces(data, rng):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(rng.choice(PAUSES))
            if rng.random() < 0.01:
                return _end(writer, rng)
        if keep and not early:
            return True
        if rng.random() < 0.1:
            # Silent until somebody else has had enough.
            await reader.read()
        return _end(writer, rng)


@asynccontextmanager
async def wild(book: Book, seed: int) -> AsyncIterator[int]:
    """A `WildEngine`; the port."""
    server = await asyncio.start_server(WildEngine(book, seed).serve, "127.0.0.1", 0, backlog=1024)
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()


async def _take_body(head: bytes, reader: asyncio.StreamReader) -> None:
    if _CHUNKED.search(head):
        while size := int((await reader.readuntil(b"\r\n")), 16):
            await reader.readexactly(min(size, MOST_BODY_BYTES) + 2)
        await reader.readuntil(b"\r\n")
    elif length := _LENGTH.search(head):
        await reader.readexactly(min(int(length[1]), MOST_BODY_BYTES))


def _end(writer: asyncio.StreamWriter, rng: random.Random) -> bool:
    if rng.random() < 0.5:
        reset(writer)
    return False
