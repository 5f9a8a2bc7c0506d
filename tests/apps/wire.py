"""HTTP/1.1 on asyncio streams, the server's side: requests in, chunks out, ends that are no reset."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
LINGER_SECONDS = 1.0
SEND_BUFFER_BYTES = 64 * 1024
REASONS = {
    200: "OK", 202: "Accepted", 302: "Found", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found",
    405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip


class BadRequestError(ValueError):
    """What the client sent is not HTTP/1.1 as understood here."""


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    keep_alive: bool

    def json(self) -> object:
        """The decoded body; raises ValueError."""
        return json.loads(self.body)


class ClientReader(asyncio.StreamReader):
    """A reader that says when its client is gone, so that silent streams notice without reading or writing."""

    def __init__(self) -> None:
        super().__init__(limit=MAX_HEAD_BYTES)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


@dataclass(slots=True, eq=False)
class Connection:
    """One client connection. `idle`: no request has been read that is not answered; `closing`: our FIN is sent."""

    reader: ClientReader
    writer: asyncio.StreamWriter
    idle: bool = True
    closing: bool = False
    headers: dict[str, str] = field(default_factory=dict)

    async def read(self) -> Request | None:
        """The next request; None when the client has closed. Raises BadRequestError."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise BadRequestError("the connection ended within a request") from None
            return None
        except asyncio.LimitOverrunError:
            raise BadRequestError("the head of the request is too long") from None
        except ConnectionError:
            return None
        self.idle = False
        return await self._request(head)

    async def _request(self, head: bytes) -> Request:
        lines = head.decode("latin-1").split("\r\n")[:-2]
        parts = lines[0].split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            raise BadRequestError("not an HTTP/1.1 request line")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon:
                raise BadRequestError("a header line without a colon")
            headers[name.strip().lower()] = value.strip()
        target = urlsplit(parts[1])
        tokens = {token.strip() for token in headers.get("connection", "").lower().split(",")}
        keep_alive = "keep-alive" in tokens if parts[2] == "HTTP/1.0" else "close" not in tokens
        body = await self._body(headers)
        return Request(parts[0], target.path, dict(parse_qsl(target.query)), headers, body, keep_alive)

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            if "chunked" in headers.get("transfer-encoding", "").lower():
                return await self._chunks()
            length = int(headers.get("content-length", "0"))
            if not 0 <= length <= MAX_BODY_BYTES:
                raise BadRequestError("Content-Length is out of range")
            return await self.reader.readexactly(length)
        except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            raise BadRequestError(f"the body cannot be read: {error}") from None

    async def _chunks(self) -> bytes:
        parts, length = [], 0
        while size := int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16):
            length += size
            if length > MAX_BODY_BYTES:
                raise BadRequestError("the body is too long")
            parts.append(await self.reader.readexactly(size))
            await self.reader.readexactly(2)
        while await self.reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)

    async def answer(
        self, status: int, body: object, *, close: bool = False, headers: Mapping[str, str] | None = None
    ) -> None:
        """One whole response; `body` is bytes, or anything that JSON can say."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode() + b"\n"
        kind = "text/plain" if isinstance(body, bytes) else "application/json"
        extra = {"Content-Type": kind, "Content-Length": str(len(payload)), **(headers or {})}
        self._head(status, extra, close)
        self.writer.write(payload)
        await self.writer.drain()

    async def begin(self, status: int, content_type: str, *, close: bool) -> None:
        """The head of a chunked response."""
        headers = {"Content-Type": content_type, "Cache-Control": "no-cache", "Transfer-Encoding": "chunked"}
        self._head(status, headers, close)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        """One chunk; returns when the socket has taken it, which a client that does not read delays."""
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()

    async def end(self) -> None:
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def _head(self, status: int, headers: Mapping[str, str], close: bool) -> None:
        fields = {**self.headers, **headers, "Connection": "close" if close else "keep-alive"}
        lines = [f"HTTP/1.1 {status} {REASONS[status]}", *(f"{name}: {value}" for name, value in fields.items())]
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    async def close(self) -> None:
        """FIN first, then wait a moment for the client's own: closing with unread bytes would be a reset."""
        with contextlib.suppress(ConnectionError, OSError, TimeoutError):
            if not self.closing:
                self.writer.write_eof()
            async with asyncio.timeout(LINGER_SECONDS):
                while await self.reader.read(65536):
                    pass
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()


class HttpServer:
    """Listens on one port; calls `handle` for each request, which answers and returns whether the connection stays."""

    def __init__(self, handle: Callable[[Connection, Request], Awaitable[bool]], headers: Mapping[str, str]) -> None:
        self._handle = handle
        self._headers = dict(headers)
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Returns the port, which the system chose if it was 0."""

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(ClientReader(), self._connected)

        self._server = await asyncio.get_running_loop().create_server(protocol, host, port, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    def close_idle(self) -> int:
        """FIN on every connection that has nothing to answer; returns how many."""
        idle = [connection for connection in self._connections if connection.idle and not connection.closing]
        for connection in idle:
            connection.closing = True
            # The connection's own task waits for the client's FIN; a client that sends none is closed.
            with contextlib.suppress(OSError):
                connection.writer.write_eof()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, connection.writer.close)
        return len(idle)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, ClientReader)
        connection = Connection(reader, writer, headers=self._headers)
        # A request ends when the kernel has its last byte. So there is no buffer of our own, and the kernel's is small.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        writer.transport.set_write_buffer_limits(high=0)
        self._connections.add(connection)
        try:
            await self._converse(connection)
        except ConnectionError:
            pass
        except asyncio.CancelledError:
            # The process exits: there is no time left to wait for anybody's FIN.
            writer.close()
            return
        finally:
            self._connections.discard(connection)
        await connection.close()

    async def _converse(self, connection: Connection) -> None:
        while True:
            try:
                request = await connection.read()
            except BadRequestError as error:
                if connection.closing:
                    return
                await connection.answer(
                    400, {"error": {"message": str(error), "type": "invalid_request_error"}}, close=True
                )
                return
            if request is None or connection.closing or not await self._handle(connection, request):
                return
            connection.idle = True
