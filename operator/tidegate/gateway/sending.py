"""The request on its way to the engine: over an open connection, or over a new one."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from tidegate.gateway.failures import Failure
from tidegate.gateway.framing import LAST_CHUNK, chunk
from tidegate.gateway.heads import CHUNKED, END, RequestHead, write_request
from tidegate.gateway.timeouts import DEADLINE_HEADER
from tidegate.gateway.upstream import UpstreamConnection

if TYPE_CHECKING:
    from tidegate.gateway.exchange import Exchange
    from tidegate.gateway.gateway import Gateway

AFTERTHOUGHT_SECONDS = 0.1
MAX_OUTBOX_BYTES = 64 * 1024
RETRYABLE = (b"GET", b"HEAD", b"OPTIONS")
# Compression would hold a stream back and could not be written into; between two containers of a pod it saves nothing.
DROPPED = frozenset({b"accept-encoding", b"expect", b"http2-settings", DEADLINE_HEADER})


class Sending:
    """One request's side towards the engine. `done`: all of its body has come from the client."""

    def __init__(
        self, exchange: Exchange, gateway: Gateway, head: RequestHead, request_id: str, deadline: float | None
    ) -> None:
        self.done = not head.length
        self.full = False
        """Whether the engine takes no more at the moment."""
        self.connection: UpstreamConnection | None = None
        self._exchange = exchange
        self._gateway = gateway
        self._head = head
        self._request_id = request_id.encode()
        self._deadline = deadline
        self._connecting: asyncio.Task[None] | None = None
        self._reused = False
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0

    def start(self) -> None:
        """Send the head off, over an open connection if there is one."""
        connection = self._gateway.pool.take()
        if connection is None:
            self._open()
        else:
            self._gateway.metrics.reused += 1
            self._attach(connection, reused=True)

    def data(self, data: bytes) -> None:
        """The next piece of the request's body."""
        if self._head.length == CHUNKED:
            data = chunk(data)
        self._write(data)

    def end(self) -> None:
        """The request's body is whole."""
        self.done = True
        if self._head.length == CHUNKED:
            self._write(LAST_CHUNK)

    def again(self) -> bool:
        """Send it once more, if the engine closed an idle connection just as it was used again; else False."""
        if not self._reused or self._head.method not in RETRYABLE or self._head.length:
            return False
        self.drop()
        self._open()
        return True

    def pause_answer(self, paused: bool) -> None:
        """Read no more of the answer, or go on: the client's socket is full, or has room again."""
        if self.connection is not None and not self.connection.transport.is_closing():
            transport = self.connection.transport
            (transport.pause_reading if paused else transport.resume_reading)()

    def release(self, *, reusable: bool) -> None:
        """The answer is over: keep the connection for another request, or close it."""
        connection = self.connection
        if connection is None or not reusable or not self.done or self.full or self._exchange.client.paused:
            # While the client is paused, the connection is not read from.
            self.drop()
        else:
            self.connection = None
            self._gateway.pool.give(connection)

    def drop(self) -> None:
        """Close at once: that is how an engine learns that nobody wants the rest."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self.connection is not None:
            self.connection.drop()
            self.connection = None

    # -- inside

    def _write(self, data: bytes) -> None:
        if self._exchange.over:
            return
        if self.connection is not None:
            # uvloop raises where asyncio says nothing; that the connection is lost is told in a moment.
            if not self.connection.transport.is_closing():
                self.connection.transport.write(data)
            return
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if self._outbox_bytes > MAX_OUTBOX_BYTES:
            self._exchange.client.hold_reading(True)

    def _open(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        limit = self._exchange.watch.timeouts.connect
        opening = asyncio.ensure_future(self._gateway.pool.connect())
        try:
            await asyncio.wait([opening], timeout=limit or None)
            # A process that got no turn for so long finds the time over and the connection made in the same moment.
            connection = await asyncio.wait_for(opening, AFTERTHOUGHT_SECONDS)
        except TimeoutError:
            self._connecting = None
            self._exchange.ending.fail(Failure.CONNECT, f"none within {limit:g} s")
        except OSError as error:
            self._connecting = None
            self._gateway.engine.unreachable(error)
            self._exchange.ending.fail(Failure.CONNECT, error.strerror or type(error).__name__)
        except Exception as error:
            self._connecting = None
            self._exchange.ending.fail(Failure.CONNECT, type(error).__name__)
        else:
            self._connecting = None
            self._connected(connection)
        finally:
            # Nobody wants it any more; it may have been made in the very moment in which that was said.
            if not opening.cancel() and self.connection is None and not opening.cancelled() and not opening.exception():
                opening.result().drop()

    def _connected(self, connection: UpstreamConnection) -> None:
        if self._exchange.over:
            return
        if connection.lost or connection.transport.is_closing():
            # Between the moment in which it was made and this one nobody was there to be told.
            self._exchange.ending.fail(Failure.UPSTREAM_RESET)
            return
        try:
            self._attach(connection, reused=False)
        except Exception as error:
            self._exchange.ending.fail(Failure.UPSTREAM_RESET, type(error).__name__)

    def _attach(self, connection: UpstreamConnection, *, reused: bool) -> None:
        client = self._exchange.client
        self.connection, self._reused = connection, reused
        connection.receiver = self._exchange
        connection.transport.write(b"".join([self._head_to_send(), *self._outbox]))
        if self._head.expects and not self.done and not self._outbox:
            client.write(b"HTTP/1.1 100 Continue" + END)
        self._outbox.clear()
        client.hold_reading(False)

    def _head_to_send(self) -> bytes:
        extra, drop = [], DROPPED
        if self._head.get(b"x-request-id") != self._request_id:
            extra.append((b"X-Request-Id", self._request_id))
            drop = DROPPED | {b"x-request-id"}
        if self._deadline is not None:
            rest = max(math.floor((self._deadline - time.monotonic()) * 1000), 1) / 1000
            extra.append((b"Tidegate-Deadline-Seconds", b"%.3f" % rest))
        return write_request(self._head, extra, drop=drop)
