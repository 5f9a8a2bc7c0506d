"""The request in transit to the engine, over a reused connection or a new one."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from tidegate.gateway.client import Client
from tidegate.gateway.failures import Failure
from tidegate.gateway.framing import LAST_CHUNK, chunk
from tidegate.gateway.heads import CHUNKED, END, RequestHead, write_request
from tidegate.gateway.shared import Shared
from tidegate.gateway.timeouts import DEADLINE_HEADER
from tidegate.gateway.upstream import Receiver, UpstreamConnection

LATE_CONNECTION_SECONDS = 0.1
MAX_OUTBOX_BYTES = 64 * 1024
RETRYABLE = (b"GET", b"HEAD", b"OPTIONS")
# A compressed stream is delayed and nothing can be inserted into it; between containers of a pod it saves nothing.
DROPPED = frozenset({b"accept-encoding", b"expect", b"http2-settings", DEADLINE_HEADER})


class UpstreamRequest:
    """Sends one request to the engine; the response goes to `receiver`.

    `deadline`: set by the client, in the clock's monotonic seconds. `connect_seconds`: 0 means no limit. `on_failure`
    is called with the failure and a detail if the engine cannot be reached.
    """

    def __init__(
        self,
        shared: Shared,
        client: Client,
        head: RequestHead,
        request_id: str,
        *,
        deadline: float | None,
        connect_seconds: float,
        receiver: Receiver,
        on_failure: Callable[[Failure, str], None],
    ) -> None:
        self.done = not head.length
        """Whether the complete body has arrived from the client."""
        self._shared = shared
        self._client = client
        self._head = head
        self._request_id = request_id.encode()
        self._deadline = deadline
        self._connect_seconds = connect_seconds
        self._receiver = receiver
        self._on_failure = on_failure
        self._over = False
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reused = False
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0

    def start(self) -> None:
        """Send the head, over an idle connection if there is one."""
        connection = self._shared.pool.take()
        if connection is None:
            self._open()
        else:
            self._shared.metrics.connection_reused()
            self._attach(connection, reused=True)

    def data(self, data: bytes) -> None:
        """The next piece of the request's body."""
        if self._head.length == CHUNKED:
            data = chunk(data)
        self._write(data)

    def end(self, data: bytes) -> None:
        """The request's body is complete with `data`, which may be empty."""
        self.done = True
        if self._head.length == CHUNKED:
            data = chunk(data) + LAST_CHUNK if data else LAST_CHUNK
        if data:
            self._write(data)

    def retry(self) -> bool:
        """Resend it if the engine closed an idle connection just as it was reused; else return False."""
        if not self._reused or self._head.method not in RETRYABLE or self._head.length:
            return False
        self._disconnect()
        self._open()
        return True

    def tunnel_data(self, data: bytes) -> None:
        """Forward bytes after a protocol switch."""
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.write(data)

    def tunnel_eof(self) -> None:
        """Close the half towards the engine, which may go on sending."""
        if self._connection is not None and not self._connection.transport.is_closing():
            self._connection.transport.write_eof()

    def pause_response(self, paused: bool) -> None:
        """Pause reading the response because the client's socket is full, or resume."""
        if self._connection is not None:
            self._connection.hold(paused)

    def release(self, *, reusable: bool) -> None:
        """The response is over: keep the connection for another request, or close it."""
        self._over = True
        connection = self._connection
        # While the client's socket is full, reading from the connection is paused.
        if connection is None or not reusable or not self.done or connection.paused or self._client.paused:
            self._disconnect()
        else:
            self._connection = None
            self._shared.pool.give(connection)

    def drop(self) -> None:
        """Close at once: that is how an engine learns that the rest is not needed."""
        self._over = True
        self._disconnect()

    # -- inside

    def _disconnect(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def _write(self, data: bytes) -> None:
        if self._over:
            return
        if self._connection is not None:
            # uvloop raises where asyncio ignores the write; the loss of the connection is reported in a moment.
            if not self._connection.transport.is_closing():
                self._connection.transport.write(data)
            return
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if self._outbox_bytes > MAX_OUTBOX_BYTES:
            self._client.hold_reading(True)

    def _open(self) -> None:
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        limit = self._connect_seconds
        opening = asyncio.ensure_future(self._shared.pool.connect())
        try:
            await asyncio.wait([opening], timeout=limit or None)
            # A process that got no CPU for so long sees the timeout and the new connection at the same moment.
            connection = await asyncio.wait_for(opening, LATE_CONNECTION_SECONDS)
        except TimeoutError:
            self._connecting = None
            self._on_failure(Failure.CONNECT, f"no connection within {limit:g} s")
        except OSError as error:
            self._connecting = None
            self._shared.engine.unreachable(error)
            self._on_failure(Failure.CONNECT, error.strerror or type(error).__name__)
        except Exception as error:
            self._connecting = None
            self._on_failure(Failure.CONNECT, type(error).__name__)
        else:
            self._connecting = None
            self._connected(connection)
        finally:
            # Not needed any more; it may have been established at the very moment of the cancellation.
            if (
                not opening.cancel()
                and self._connection is None
                and not opening.cancelled()
                and not opening.exception()
            ):
                opening.result().drop()

    def _connected(self, connection: UpstreamConnection) -> None:
        if self._over:
            return
        if connection.lost or connection.transport.is_closing():
            # Lost after it was established and before it had a receiver.
            self._on_failure(Failure.UPSTREAM_RESET, "")
            return
        try:
            self._attach(connection, reused=False)
        except Exception as error:
            self._on_failure(Failure.UPSTREAM_RESET, type(error).__name__)

    def _attach(self, connection: UpstreamConnection, *, reused: bool) -> None:
        self._connection, self._reused = connection, reused
        connection.attach(self._receiver)
        if not self.done:
            connection.keep_readable()
        connection.transport.write(b"".join([self._head_bytes(), *self._outbox]))
        if self._head.expects and not self.done and not self._outbox:
            self._client.write(b"HTTP/1.1 100 Continue" + END)
        self._outbox.clear()
        self._client.hold_reading(False)

    def _head_bytes(self) -> bytes:
        extra, drop = [], DROPPED
        if self._head.get(b"host") is None:
            # HTTP/1.0 may come without, the engine's HTTP/1.1 may not.
            extra.append((b"Host", self._shared.pool.authority))
        if self._head.get(b"x-request-id") != self._request_id:
            extra.append((b"X-Request-Id", self._request_id))
            drop = DROPPED | {b"x-request-id"}
        if self._deadline is not None:
            left = max(math.floor((self._deadline - self._shared.clock.monotonic()) * 1000), 1) / 1000
            extra.append((b"Tidegate-Deadline-Seconds", b"%.3f" % left))
        return write_request(self._head, extra, drop=drop)
