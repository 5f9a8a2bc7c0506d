"""Connections to the engine, which has one address, on the same node."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Protocol, cast

from tidegate.gateway.clock import Clock

REUSE_SECONDS = 1.0
"""How long an idle connection may be reused: shorter than any engine's keep-alive (uvicorn has the shortest, 5 s), so
that the engine does not close it under a request that cannot be sent twice."""
MAX_IDLE = 64
NO_FILE = -1
READ_BYTES = 64 * 1024
# One buffer for all connections: nothing else runs between a read into it and the copy out of it.
VIEW = memoryview(bytearray(READ_BYTES))


class Receiver(Protocol):
    """Receives what the engine sends on a connection."""

    def upstream_data(self, data: bytes) -> None:
        """The next bytes from the engine."""

    def upstream_eof(self) -> bool:
        """The engine has closed its half; returns whether the other direction stays open."""

    def upstream_lost(self) -> None:
        """The connection is lost."""

    def upstream_paused(self, paused: bool) -> None:
        """The engine's socket is full, or has room again."""


class UpstreamConnection(asyncio.BufferedProtocol):
    """One connection. Without a receiver it is idle, and is closed if anything arrives."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.idle_since = 0.0
        self.lost = False
        self.paused = False
        """Whether the engine's socket is full."""
        self._receiver: Receiver | None = None
        self._held = False
        self._turn: asyncio.Handle | None = None
        self._spare = NO_FILE

    def keep_readable(self) -> None:
        """Keep the socket open if a write to it fails, so that what the engine has answered before can be read.

        An engine that answers early and closes resets the connection under the rest of the upload. The failed write
        closes the transport, and with it the answer that waits in the kernel.
        """
        if self._spare == NO_FILE:
            self._spare = os.dup(self.transport.get_extra_info("socket").fileno())

    def attach(self, receiver: Receiver) -> None:
        """Use it for one request."""
        self._receiver = receiver

    def detach(self, now: float) -> None:
        """The request is over; the connection is idle from now on."""
        self._receiver = None
        self.idle_since = now
        self._close_spare()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport."""
        # uvloop's transports are no subclasses of asyncio's.
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Called by the transport."""
        return VIEW

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the transport."""
        receiver = self._receiver
        if receiver is None:
            self.transport.abort()
        else:
            receiver.upstream_data(bytes(VIEW[:nbytes]))
            if nbytes == READ_BYTES:
                self._take_turns()

    def eof_received(self) -> bool:
        """Called by the transport."""
        return self._receiver is not None and self._receiver.upstream_eof()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Called by the transport."""
        self.lost = True
        self._read_rest()
        if self._receiver is not None:
            self._receiver.upstream_lost()

    def pause_writing(self) -> None:
        """Called by the transport."""
        self.paused = True
        if self._receiver is not None:
            self._receiver.upstream_paused(True)

    def resume_writing(self) -> None:
        """Called by the transport."""
        self.paused = False
        if self._receiver is not None:
            self._receiver.upstream_paused(False)

    def hold(self, held: bool) -> None:
        """Pause reading because the client's socket is full, or resume."""
        self._held = held
        if self._turn is None and not self.transport.is_closing():
            (self.transport.pause_reading if held else self.transport.resume_reading)()

    def drop(self) -> None:
        """Close at once: that is how an engine learns that the rest is not needed."""
        self._receiver = None
        self._close_spare()
        self.transport.abort()

    def _take_turns(self) -> None:
        """Let everybody else have a turn of the loop: uvloop reads on while there is more, up to 2 MB at a time."""
        if self._turn is None and not self._held and not self.transport.is_closing():
            self.transport.pause_reading()
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        if not self._held and not self.transport.is_closing():
            self.transport.resume_reading()

    def _read_rest(self) -> None:
        with contextlib.suppress(OSError):
            while self._spare != NO_FILE and self._receiver is not None and (data := os.read(self._spare, READ_BYTES)):
                # It may be the end of the response, which drops this connection.
                self._receiver.upstream_data(data)
        self._close_spare()

    def _close_spare(self) -> None:
        if self._spare != NO_FILE:
            os.close(self._spare)
            self._spare = NO_FILE


class Pool:
    """Opens connections, and keeps reusable ones for a moment."""

    def __init__(self, host: str, port: int, clock: Clock) -> None:
        self._clock = clock
        self._host = host
        self._port = port
        self._idle: list[UpstreamConnection] = []
        self._timer: asyncio.TimerHandle | None = None

    @property
    def authority(self) -> bytes:
        """The engine's host and port as in Host."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}".encode()

    async def connect(self) -> UpstreamConnection:
        """A new connection; raises OSError."""
        _, connection = await asyncio.get_running_loop().create_connection(UpstreamConnection, self._host, self._port)
        return connection

    def take(self) -> UpstreamConnection | None:
        """The open connection that has been idle for the shortest time, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if self._usable(connection):
                return connection
            connection.drop()
        return None

    def give(self, connection: UpstreamConnection) -> None:
        """Return a connection on which no request is in progress."""
        connection.detach(self._clock.monotonic())
        if len(self._idle) >= MAX_IDLE or connection.lost or connection.transport.is_closing():
            connection.drop()
            return
        self._idle.append(connection)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(REUSE_SECONDS, self._sweep)

    def close(self) -> None:
        """Close all idle connections."""
        while self._idle:
            self._idle.pop().drop()

    def _usable(self, connection: UpstreamConnection) -> bool:
        fresh = self._clock.monotonic() - connection.idle_since < REUSE_SECONDS
        return fresh and not connection.lost and not connection.transport.is_closing()

    def _sweep(self) -> None:
        self._timer = None
        for connection in [each for each in self._idle if not self._usable(each)]:
            self._idle.remove(connection)
            connection.drop()
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(REUSE_SECONDS, self._sweep)
