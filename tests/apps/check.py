"""One request as a careful client sends and reads it: nothing is taken for complete that is not."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass

CONNECT_SECONDS = 10.0
PATH = "/v1/chat/completions"


class Refused(Exception):
    """No answer began: connection refused, reset or closed before the head, or a status other than 200."""

    def __init__(self, by: str, status: int | None = None) -> None:
        super().__init__(by)
        self.by = by
        self.status = status


class Cut(Exception):
    """The answer began and is not whole; `by` says how one sees it."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    port: int
    idle_seconds: float


@dataclass(slots=True)
class Exchange:
    """What is known of one request while it runs and afterwards."""

    id: str
    expected: int
    rate: float
    tokens: int = 0
    pod: str | None = None
    version: str | None = None
    reused: bool = False


class Client:
    """One connection at most, kept between requests if told so and if the server allows it. Never retries."""

    def __init__(self, target: Target, *, keep_alive: bool) -> None:
        self._target = target
        self._keep_alive = keep_alive
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._headers: dict[str, str] = {}

    async def ask(self, exchange: Exchange, *, stream: bool) -> None:
        """Send one request and read all of its answer; raises Refused or Cut."""
        whole = False
        try:
            reader = await self._send(exchange, stream)
            await self._head(reader, exchange)
            await (self._stream(reader, exchange) if stream else self._body(reader, exchange))
            whole = True
        finally:
            if not (whole and self._keep_alive and self._headers.get("connection", "").lower() != "close"):
                self.close()

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the last answer, in lower case."""
        return self._headers

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    async def _send(self, exchange: Exchange, stream: bool) -> asyncio.StreamReader:
        # A connection that the server has closed while idle is not used again: every client's pool does that much.
        if self._open is not None and (self._open[0].at_eof() or self._open[1].is_closing()):
            self.close()
        exchange.reused = self._open is not None
        reader, writer = self._open = self._open or await self._connect()
        try:
            writer.write(self._request(exchange, stream))
            await writer.drain()
        except ConnectionError:
            raise Refused("reset-before-response") from None
        return reader

    def _request(self, exchange: Exchange, stream: bool) -> bytes:
        body = json.dumps({
            "model": "numbers", "stream": stream, "max_tokens": exchange.expected,
            "messages": [{"role": "user", "content": "count"}], "tidegate_test": {"rate": exchange.rate},
        }).encode()  # fmt: skip
        head = (
            f"POST {PATH} HTTP/1.1\r\nHost: {self._target.host}:{self._target.port}\r\n"
            "Content-Type: application/json\r\n"
            f"X-Request-Id: {exchange.id}\r\nConnection: {'keep-alive' if self._keep_alive else 'close'}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(self._target.host, self._target.port)
        except ConnectionRefusedError:
            raise Refused("connection-refused") from None
        except TimeoutError:
            raise Refused("connect-timeout") from None
        except OSError as error:
            raise Refused(f"connect-error-{error.errno}") from None

    async def _head(self, reader: asyncio.StreamReader, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(self._target.idle_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            raise Refused("closed-before-response") from None
        except ConnectionError:
            raise Refused("reset-before-response") from None
        except TimeoutError:
            raise Refused("no-response") from None
        status, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        self._headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        exchange.pod, exchange.version = self._headers.get("x-pod"), self._headers.get("x-version")
        code = int(status.split(" ")[1])
        if code != 200:
            raise Refused(f"status-{code}", code)

    async def _body(self, reader: asyncio.StreamReader, exchange: Exchange) -> None:
        data = await self._read(reader.readexactly(int(self._headers.get("content-length", "0"))))
        choice = json.loads(data)["choices"][0]
        if choice["finish_reason"] != "stop":
            raise Cut("no-finish-reason")
        if choice["message"]["content"] != "".join(f"{number} " for number in range(1, exchange.expected + 1)):
            raise Cut("wrong-number")
        exchange.tokens = exchange.expected

    async def _stream(self, reader: asyncio.StreamReader, exchange: Exchange) -> None:
        """Every number once and in order, the finish reason, [DONE], nothing after it, and the last chunk."""
        finished = done = token = False
        async for data in self._events(reader):
            if done:
                raise Cut("after-done")
            if data == "[DONE]":
                done = True
                continue
            try:
                event = json.loads(data)
            except ValueError:
                raise Cut("not-json") from None
            if "error" in event:
                if token or event.get("type") != "shutdown" or next(iter(event)) != "error":
                    raise Cut("error-event")
                token = True
                continue
            for choice in event["choices"]:
                content = choice["delta"].get("content")
                if content:
                    if content != f"{exchange.tokens + 1} " or token or finished:
                        raise Cut("wrong-number")
                    exchange.tokens += 1
                finished = finished or choice["finish_reason"] == "stop"
        if token:
            raise Cut("token" if done else "token-without-done")
        if not finished:
            raise Cut("no-finish-reason")
        if exchange.tokens != exchange.expected:
            raise Cut("wrong-number")
        if not done:
            raise Cut("no-done")

    async def _events(self, reader: asyncio.StreamReader) -> AsyncIterator[str]:
        """The data of each event; ends only with the chunked body's own end. Raises Cut."""
        if self._headers.get("transfer-encoding", "").lower() != "chunked":
            raise Cut("not-chunked")
        buffer = b""
        while True:
            size = await self._read(reader.readuntil(b"\r\n"))
            try:
                length = int(size, 16)
            except ValueError:
                raise Cut("bad-chunk") from None
            buffer += (await self._read(reader.readexactly(length + 2)))[:length]
            if not length:
                break
            *events, buffer = buffer.split(b"\n\n")
            for event in events:
                for line in event.decode().splitlines():
                    if line.startswith("data:"):
                        yield line.removeprefix("data:").strip()
        if buffer:
            raise Cut("half-event")

    async def _read(self, reading: Awaitable[bytes]) -> bytes:
        try:
            async with asyncio.timeout(self._target.idle_seconds):
                return await reading
        except asyncio.IncompleteReadError:
            raise Cut("eof") from None
        except ConnectionError:
            raise Cut("reset") from None
        except TimeoutError:
            raise Cut("stalled") from None
