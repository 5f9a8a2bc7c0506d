"""Clients without manners: each act is one connection, and ends as it pleases."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from .book import HEADER, Book
from .noise import call, chunk, mutated, pieces, request

PATIENCE_SECONDS = 20.0
"""Longer than any of a round's own limits: who waits longer has been forgotten."""
CURIOSITY_SECONDS = 0.3
"""How long noise waits for an answer."""
FRAME = b"\x81\x82abcd\x09\x0b"
CLOSE = b"\x88\x82abcd\x62\x8a"


def reset(writer: asyncio.StreamWriter) -> None:
    """Cut a connection with a TCP reset."""
    if not writer.is_closing():
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()


class Clients:
    """Acts against one gateway until `stop` is set; `port` is where it serves, `admin` its admin port."""

    def __init__(self, book: Book, port: int, admin: int, key: str, seed: int) -> None:
        self.stop = asyncio.Event()
        self._book = book
        self._port = port
        self._admin = admin
        self._key = key
        self._rng = random.Random(seed)

    async def repeat(self, act: Callable[[], Awaitable[str]], pause: float) -> None:
        """Do it again and again; note how each time ended."""
        while not self.stop.is_set():
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    end = await act()
            except TimeoutError:
                end = "forgotten"
            except (OSError, EOFError):
                end = "cut"
            self._book.ends[f"{act.__name__} {end}"] += 1
            await asyncio.sleep(self._rng.random() * pause)

    # -- rough, but in good form

    async def stream(self) -> str:
        """A stream, read to its end."""
        async with self._connected() as (reader, writer):
            writer.write(self._completion())
            return await _answer(reader)

    async def abort(self) -> str:
        """Leaves in the middle of its request or of the answer, with FIN or a reset."""
        rng = self._rng
        async with self._connected() as (reader, writer):
            asked = self._completion()
            if rng.random() < 0.3:
                writer.write(asked[: rng.randrange(len(asked))])
                await asyncio.sleep(rng.random() * 0.05)
            else:
                writer.write(asked)
                if rng.random() < 0.2:
                    writer.write_eof()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(rng.random() * 0.3):
                        await reader.readexactly(rng.randrange(1, 3000))
            if rng.random() < 0.6:
                reset(writer)
            return "left"

    async def pipeline(self) -> str:
        """Asks several times before it is answered."""
        rng = self._rng
        async with self._connected() as (reader, writer):
            count = rng.randrange(2, 8)
            writer.write(b"".join(self._completion(most=12) for _ in range(count)))
            for _ in range(count if rng.random() < 0.7 else rng.randrange(count)):
                if (end := await _answer(reader)) != "whole":
                    return end
            return "whole"

    async def kept(self) -> str:
        """Asks one time after the other."""
        async with self._connected() as (reader, writer):
            for _ in range(5):
                writer.write(self._completion(most=8))
                if (end := await _answer(reader)) != "whole":
                    return end
                # Sometimes just as long as the gateway keeps the engine's connection.
                await asyncio.sleep(self._rng.choice([0.0, 0.01, 1.0]))
            return "whole"

    async def upload(self) -> str:
        """A large body, counted or in chunks of any size; sometimes not all of it."""
        rng = self._rng
        async with self._connected() as (reader, writer):
            size, part = rng.choice([(2_000, 1), (200_000, 5_000), (1_000_000, 65_536)])
            body = rng.randbytes(size)
            if rng.random() < 0.5:
                head, parts = f"Content-Length: {size}", [body]
            else:
                head = "Transfer-Encoding: chunked"
                parts = [chunk(body[at : at + part]) for at in range(0, size, part)] + [b"0\r\n\r\n"]
            writer.write(self._head("POST", "/upload", head))
            if rng.random() < 0.2:
                parts = parts[: len(parts) // 2]
                writer.write(b"".join(parts))
                await asyncio.sleep(rng.random() * 0.1)
                reset(writer)
                return "left"
            writer.write(b"".join(parts))
            return await _answer(reader)

    async def slow(self) -> str:
        """Takes a long answer slowly, and leaves."""
        async with self._connected() as (reader, writer):
            writer.write(self._completion(most=8000, least=4000, rate=0))
            for _ in range(self._rng.randrange(5, 40)):
                await reader.readexactly(2000)
                await asyncio.sleep(0.02)
            if self._rng.random() < 0.5:
                reset(writer)
            return "left"

    async def upgrade(self) -> str:
        """A WebSocket, closed by frame, FIN or reset."""
        rng = self._rng
        async with self._connected() as (reader, writer):
            path = "/socket" if rng.random() < 0.8 else "/health"
            key = "Sec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13"
            writer.write(self._head("GET", path, f"Connection: Upgrade\r\nUpgrade: websocket\r\n{key}"))
            if b" 101 " not in await reader.readuntil(b"\r\n\r\n"):
                return "refused"
            for _ in range(rng.randrange(5)):
                writer.write(FRAME)
                await reader.readexactly(3)
            end = rng.randrange(4)
            if end == 0:
                writer.write(CLOSE)
                await reader.read()
                return "whole"
            if end == 1:
                writer.write_eof()
                await asyncio.sleep(0.05)
            elif end == 2:
                reset(writer)
            return "left"

    # -- noise

    async def noise(self) -> str:
        """Requests with faults in them."""
        names = [self._book.new_id() for _ in range(self._rng.choice([1, 1, 3]))]
        data = b"".join(mutated(request(name, self._rng), self._rng) for name in names)
        self._book.note(data)
        return await self._shout(self._port, data)

    async def admin_noise(self) -> str:
        """Calls with faults in them."""
        return await self._shout(self._admin, call(self._rng, self._key))

    async def drains(self) -> str:
        """A drain that is undone; some end what is running, none lasts to its deadline."""
        rng = self._rng
        name = self._book.new_id()
        ends = rng.random() < 0.5
        remaining = 30.2 if ends else 300
        drain = {"id": name, "reason": "Hammer", "remainingSeconds": remaining, "flushSeconds": 30}
        if await self._call("POST", "/drain", json.dumps(drain).encode()) != 202:
            return "refused"
        await asyncio.sleep(rng.random() * 0.8)
        return "undone" if await self._call("DELETE", f"/drain?id={name}", b"") == 200 else "refused"

    # -- inside

    async def _call(self, method: str, path: str, body: bytes) -> int:
        async with self._connected(self._admin) as (reader, writer):
            fields = f"Host: a\r\nTidegate-Key: {self._key}\r\nConnection: close\r\nContent-Length: {len(body)}"
            writer.write(f"{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
            head = await reader.readuntil(b"\r\n")
            await reader.read()
            return int(head[9:12])

    async def _shout(self, port: int, data: bytes) -> str:
        rng = self._rng
        async with self._connected(port) as (reader, writer):
            for piece in pieces(data, rng):
                writer.write(piece)
                await asyncio.sleep(rng.choice([0.0, 0.0, 0.01]))
            if rng.random() < 0.2:
                writer.write_eof()
            heard = b""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rng.random() * CURIOSITY_SECONDS):
                    while more := await reader.read(65536):
                        heard += more
            if rng.random() < 0.5:
                reset(writer)
            return heard[9:12].decode("latin-1") if heard.startswith(b"HTTP/1.1 ") else "unanswered"

    def _completion(self, *, most: int = 100, least: int = 1, rate: float | None = None) -> bytes:
        rng = self._rng
        document = {
            "max_tokens": rng.randrange(least, most),
            "stream": rate is not None or rng.random() < 0.7,
            "tidegate_test": {"rate": rng.choice([0, 0, 50, 500]) if rate is None else rate},
        }
        body = json.dumps(document).encode()
        return self._head("POST", "/v1/completions", f"Content-Length: {len(body)}") + body

    def _head(self, method: str, path: str, fields: str) -> bytes:
        name = self._book.new_id()
        self._book.sent[name] += 1
        return f"{method} {path} HTTP/1.1\r\nHost: e\r\n{HEADER}: {name}\r\n{fields}\r\n\r\n".encode()

    @asynccontextmanager
    async def _connected(
        self, port: int | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port or self._port)
        try:
            yield reader, writer
        finally:
            writer.close()


async def _answer(reader: asyncio.StreamReader) -> str:
    """Read one response; its status if that is not 200."""
    head = b"http/1.1 1"
    while head.startswith(b"http/1.1 1"):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if head.startswith((b"http/1.1 204", b"http/1.1 304")):
        pass
    elif b"\r\ntransfer-encoding: chunked\r\n" in head:
        while size := int(await reader.readuntil(b"\r\n"), 16):
            await reader.readexactly(size + 2)
        await reader.readexactly(2)
    elif b"\r\ncontent-length: " in head:
        await reader.readexactly(int(head.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0]))
    else:
        await reader.read()
    status = head[9:12].decode("latin-1")
    return "whole" if status == "200" else status
