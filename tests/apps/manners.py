"""Clients that do what the ordinary one does not: read slowly, leave, ask ahead, send much, hold a WebSocket."""

import asyncio
import hashlib
import itertools
import json
import random
import socket
import struct
from collections.abc import Awaitable

from apps import websocket
from apps.check import Client, Cut, Exchange, Refused, Target

SLOW_READS, SLOW_PAUSE_SECONDS = 400, 0.05
SLOW_BUFFER_BYTES = 16 * 1024
UPLOAD_BYTES = 50 * 1000 * 1000
UPLOAD_PIECE_BYTES = 256 * 1024
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
RESETS = struct.pack("ii", 1, 0)


class SlowClient(Client):
    """Takes what comes by and by, from a socket that holds little."""

    reads = 0

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (self._target.host, self._target.port))
        except OSError as error:
            sock.close()
            raise Refused(f"connect-error-{error.errno}") from None
        return await asyncio.open_connection(sock=sock)

    async def _read(self, reading: Awaitable[bytes]) -> bytes:
        self.reads += 1
        if not self.reads % SLOW_READS:
            await asyncio.sleep(SLOW_PAUSE_SECONDS)
        return await super()._read(reading)


class AbortingClient(Client):
    """Can leave with a RST, as a process that is killed over unread bytes does, instead of a FIN."""

    def reset(self) -> None:
        if self._open is not None:
            sock = self._open[1].get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
        self.close()

    async def upload_half(self, name: str) -> None:
        """Begin an upload and leave it at that."""
        _, writer = self._open = await self._connect()
        writer.write(upload_head(self._target, name, UPLOAD_BYTES))
        for _ in range(UPLOAD_BYTES // UPLOAD_PIECE_BYTES // 4):
            writer.write(bytes(UPLOAD_PIECE_BYTES))
            await writer.drain()


class PipeliningClient(Client):
    """Sends all its requests at once and reads the answers in their order."""

    async def ask_all(self, exchanges: list[Exchange]) -> list[Exchange]:
        """Returns those that the server rightly left unanswered: it had said that it closes. Raises Refused, Cut."""
        try:
            reader, writer = self._open = await self._connect()
            writer.write(b"".join(self._request(exchange, True) for exchange in exchanges))
            for number, exchange in enumerate(exchanges):
                exchange.reused = number > 0
                await self._head(reader, exchange)
                await self._stream(reader, exchange)
                if self.headers.get("connection", "").lower() == "close":
                    return exchanges[number + 1 :]
        finally:
            self.close()
        return []


class UploadingClient(Client):
    """Sends 50 MB and wants to hear what they were."""

    async def upload(self, exchange: Exchange, *, chunked: bool) -> None:
        piece = random.randbytes(UPLOAD_PIECE_BYTES)
        pieces, rest = divmod(UPLOAD_BYTES, len(piece))
        digest = hashlib.sha256()
        try:
            reader, writer = self._open = await self._connect()
            writer.write(upload_head(self._target, exchange.id, None if chunked else UPLOAD_BYTES))
            for part in itertools.chain(itertools.repeat(piece, pieces), [piece[:rest]]):
                digest.update(part)
                writer.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
                await writer.drain()
            writer.write(b"0\r\n\r\n" if chunked else b"")
            await self._head(reader, exchange)
            answer = json.loads(await self._read(reader.readexactly(int(self.headers["content-length"]))))
        except ConnectionError:
            raise Refused("reset-before-response") from None
        finally:
            self.close()
        if answer != {"bytes": UPLOAD_BYTES, "sha256": digest.hexdigest()}:
            raise Cut("another-body")


def upload_head(target: Target, name: str, length: int | None) -> bytes:
    framing = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return (
        f"POST /upload HTTP/1.1\r\nHost: {target.host}:{target.port}\r\nX-Request-Id: {name}\r\n"
        f"Connection: close\r\n{framing}\r\n\r\n"
    ).encode()


class Socket:
    """A WebSocket on which the engine counts, and this client with it."""

    def __init__(self, target: Target, stop: asyncio.Event) -> None:
        self._target = target
        self._stop = stop

    async def count_along(self, exchange: Exchange) -> int | None:
        """Take numbers until somebody closes: the code with which the server did, None if it was this client.

        Raises Refused, Cut, and what the connection and its frames raise.
        """
        reader, writer = await asyncio.open_connection(self._target.host, self._target.port)
        stopping = asyncio.create_task(self._goodbye(writer))
        try:
            await self._shake_hands(reader, writer, exchange)
            while True:
                opcode, payload = await websocket.read(reader)
                if opcode == websocket.CLOSE:
                    writer.write(websocket.frame(opcode, payload, masked=True))
                    return None if self._stop.is_set() else int.from_bytes(payload[:2])
                if payload != str(exchange.tokens + 1).encode():
                    raise Cut("wrong-number")
                exchange.tokens += 1
        finally:
            stopping.cancel()
            writer.close()

    async def _shake_hands(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: Exchange
    ) -> None:
        writer.write((
            f"GET /socket HTTP/1.1\r\nHost: {self._target.host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nX-Request-Id: {exchange.id}\r\n\r\n"
        ).encode())  # fmt: skip
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if " 101 " not in status or fields.get("sec-websocket-accept") != websocket.accept(KEY):
            raise Refused(status)
        exchange.pod, exchange.version = fields.get("x-pod"), fields.get("x-version")

    async def _goodbye(self, writer: asyncio.StreamWriter) -> None:
        await self._stop.wait()
        writer.write(websocket.frame(websocket.CLOSE, (1000).to_bytes(2), masked=True))


def refused_well(client: Client, refused: Refused) -> bool:
    """Whether any client would ask again, at once nearly, and elsewhere."""
    headers = client.headers
    closes = headers.get("connection", "").lower() == "close"
    return refused.status == 503 and headers.get("retry-after") == "1" and closes
