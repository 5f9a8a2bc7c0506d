"""A gateway in the test's own process, engines that do what a script says, and clients that see every byte."""

import argparse
import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import h11

from apps.running import LIMIT_SECONDS, Answered, call
from gateway.virtual_loop import VirtualLoop
from tidegate.gateway.admin import Admin
from tidegate.gateway.clock import Clock
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.log import Log
from tidegate.gateway.options import OPTIONS, read

KEY = "drain-key"
FAST = {
    "TIDEGATE_GRACE_SECONDS": "20", "TIDEGATE_PROPAGATION_SECONDS": "0.3", "TIDEGATE_QUIET_SECONDS": "0.1",
    "TIDEGATE_FLUSH_SECONDS": "0.5", "TIDEGATE_LISTEN": "127.0.0.1:0", "TIDEGATE_ADMIN": "127.0.0.1:0",
}  # fmt: skip
GONE = (ConnectionError, asyncio.IncompleteReadError)


def limit_seconds() -> float:
    """How long a test waits for anything: in virtual time longer than every time that the gateway has."""
    return 3600 if isinstance(asyncio.get_running_loop(), VirtualLoop) else LIMIT_SECONDS


@dataclass(slots=True)
class Front:
    """A gateway that listens."""

    gateway: Gateway
    port: int
    admin: int

    async def call(self, method: str, path: str, body: bytes = b"", key: str | None = KEY) -> Answered:
        return await call(self.admin, method, path, body, {"Tidegate-Key": key} if key else {})

    def state(self) -> dict[str, object]:
        return self.gateway.drain.snapshot()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until it holds; a test that waits in vain fails."""
        async with asyncio.timeout(limit_seconds()):
            while not condition():  # noqa: ASYNC110  (several parts change it)
                await asyncio.sleep(0.005)

    async def settled(self, number: Callable[[], int]) -> int:
        """Wait until a number changes no more, and return it."""
        before = -1
        while before != (now := number()):
            before = now
            await asyncio.sleep(0.2)
        return now

    def failures(self) -> dict[str, int]:
        return dict(self.gateway.metrics.failures)

    def client(self) -> "Awaitable[Peer]":
        return connect(self.port)


@dataclass(slots=True)
class Heard:
    """A message as h11, which takes no liberties, understood it."""

    head: h11.Request | h11.Response
    body: bytes = b""

    @property
    def fields(self) -> dict[bytes, bytes]:
        return dict(self.head.headers)


@dataclass(slots=True)
class Peer:
    """One end of a connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    parser: h11.Connection
    raw: bytearray = field(default_factory=bytearray)
    events: list[object] = field(default_factory=list)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hear(self) -> Heard:
        """The next whole message from the other end. Raises what h11 finds wrong, and a cut as RemoteProtocolError."""
        if self.parser.our_state in (h11.DONE, h11.MUST_CLOSE) and self.parser.their_state is h11.DONE:
            self.parser.start_next_cycle()
        heard: Heard | None = None
        parts: list[bytes] = []
        while True:
            event = self.parser.next_event()
            if event is h11.NEED_DATA:
                # The limit is on silence: how long much takes that comes through small buffers is up to the machine.
                data = await asyncio.wait_for(self.reader.read(65536), limit_seconds())
                self.raw += data
                self.parser.receive_data(data)
            elif isinstance(event, h11.Request | h11.Response):
                heard = Heard(event)
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                assert heard is not None
                heard.body = b"".join(parts)
                return heard
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("closed between two messages")

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Heard:
        """Send a request in good form and read the response."""
        await self.request(method, path, body, **headers)
        return await self.hear()

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        fields = [("Host", "engine"), *((name.replace("_", "-"), value) for name, value in headers.items())]
        if body:
            fields.append(("Content-Length", str(len(body))))
        if self.parser.our_state is h11.DONE and self.parser.their_state is h11.DONE:
            self.parser.start_next_cycle()
        out = self.parser.send(h11.Request(method=method, target=path, headers=fields))
        assert out is not None
        data = out + (self.parser.send(h11.Data(data=body)) or b"") + (self.parser.send(h11.EndOfMessage()) or b"")
        await self.send(data)

    async def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer the request that was heard, with a counted body."""
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        self.answered()

    def answered(self) -> None:
        """Tell h11 that the response, which it did not write, is out."""
        fresh, behind = h11.Connection(h11.SERVER), self.parser.trailing_data[0]
        if behind:  # h11 takes no bytes for the end of the connection
            fresh.receive_data(behind)
        self.parser = fresh

    async def begin_events(self) -> None:
        """The head of a chunked stream of events."""
        await self.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def chunk(self, payload: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(payload), payload))

    async def end_chunks(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def closed(self) -> None:
        """Wait until the other end has closed or cut the connection."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(limit_seconds()):
                while await self.reader.read(65536):
                    pass

    async def rest(self) -> bytes:
        """Everything up to the other end's FIN; raises ConnectionError on a reset."""
        async with asyncio.timeout(limit_seconds()):
            return await self.reader.read(-1)

    def reset(self) -> None:
        """Close with a RST, as a process that dies with unread bytes does."""
        linger = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()


async def connect(port: int, *, buffers: int | None = None) -> Peer:
    """A client's connection, whose buffers in the kernel hold about that many bytes."""
    if isinstance(asyncio.get_running_loop(), VirtualLoop):
        assert buffers is None
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65536)
        return Peer(reader, writer, h11.Connection(h11.CLIENT))
    sock = socket.socket()
    if buffers is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=65536)
    return Peer(reader, writer, h11.Connection(h11.CLIENT))


@dataclass(slots=True)
class Engine:
    """An engine that runs a script for each connection on which something is asked."""

    port: int = 0
    peers: list[Peer] = field(default_factory=list)
    heard: list[Heard] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    server: asyncio.Server | None = None
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """For the script to wait on."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """For the script to say that the gateway has let go of it."""


@asynccontextmanager
async def engine(script: Callable[[Peer, Engine], Awaitable[None]]) -> AsyncIterator[Engine]:
    """Listen; connections that only look whether it listens run no script. What a script raises fails the test."""
    made = Engine()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer, h11.Connection(h11.SERVER))
        first = await reader.read(1)
        if first:
            peer.parser.receive_data(first)
            made.peers.append(peer)
            try:
                await script(peer, made)
            except (*GONE, asyncio.CancelledError):
                pass  # the test is over
            except Exception as error:  # told by the test that owns this engine
                if not writer.is_closing():  # uvloop raises RuntimeError on a write to what is closed
                    made.errors.append(error)
        writer.close()

    made.server = await asyncio.start_server(connected, "127.0.0.1", 0)
    made.port = made.server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.server.close()
        for peer in made.peers:
            # asyncio's transport fails when it is aborted after it has closed with something left to send.
            if not peer.writer.is_closing():
                peer.writer.transport.abort()
    if made.errors:
        raise made.errors[0]


async def echo(peer: Peer, own: Engine) -> None:
    """Answer every request with its body, until the connection ends."""
    while True:
        heard = await peer.hear()
        own.heard.append(heard)
        await peer.answer(200, heard.body or b"empty")


@asynccontextmanager
async def front(
    upstream: int, directory: Path | None = None, *, ready: bool = True, options: Mapping[str, str] | None = None
) -> AsyncIterator[Front]:
    """A gateway before a port of this machine, in this process. Afterwards nothing of it may be left."""
    environment = {**FAST, "TIDEGATE_UPSTREAM": f"127.0.0.1:{upstream}", **(options or {})}
    if directory is not None:
        (directory / "current").write_text(KEY)
        environment["TIDEGATE_KEY_DIR"] = str(directory)
    nothing = argparse.Namespace(**{option.field: None for option in OPTIONS})
    loop = asyncio.get_running_loop()
    clock = Clock(loop.time, loop.now) if isinstance(loop, VirtualLoop) else Clock()
    gateway = Gateway(read(nothing, environment), Log("test", clock), "test", clock)
    admin = Admin(gateway)
    made = Front(gateway, await gateway.listen(), await admin.listen())
    watching = asyncio.create_task(gateway.engine.watch())
    try:
        if ready:
            await made.until(lambda: made.state()["state"] == "serving")
        async with asyncio.timeout(4 * limit_seconds()):
            yield made
            await made.until(lambda: not made.state()["inFlight"])
            await made.until(lambda: not gateway.connections)
    finally:
        watching.cancel()
        gateway.close()
        admin.close()
