"""A client's connection: requests are read one at a time and answered in order."""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Callable
from typing import Protocol, cast

from tidegate.gateway import failures
from tidegate.gateway.clock import Clock
from tidegate.gateway.dialects import Dialect
from tidegate.gateway.exchange import Exchange
from tidegate.gateway.framing import Chunks, Counted, FramingError
from tidegate.gateway.heads import CHUNKED, HeadError, RequestHead
from tidegate.gateway.metrics import Metrics
from tidegate.gateway.reading import Reading
from tidegate.gateway.request_heads import RequestHeads
from tidegate.gateway.upstream import VIEW

HEAD_SECONDS = 10.0
"""From the first byte of a head to its last."""
LINGER_SECONDS = 1.0
"""Silence between our FIN and the close. Closing with unread bytes sends a reset, which can overtake the response."""
MAX_LINGER_SECONDS = 30.0
"""How long a client may continue an upload that has been answered already."""
SEND_BUFFER_BYTES = 64 * 1024
MAX_AHEAD_BYTES = 64 * 1024
SMALL_READ_BYTES = 4 * 1024
"""Read at a time while the chunks are tiny: following them keeps the event loop from everybody else."""
TINY_BYTES = 64
_SMALL_VIEW = VIEW[:SMALL_READ_BYTES]
CROSSING_SECONDS = 0.1
"""Until the event loop has read what was in the kernel."""
_RESET, _NO_RESET = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)


class Server(Protocol):
    """The gateway as its connections see it."""

    def opened(self, connection: ClientConnection) -> None:
        """A client has connected."""

    def closed(self, connection: ClientConnection) -> None:
        """A client's connection is closed."""

    def admit(self, client: ClientConnection, head: RequestHead) -> Exchange | None:
        """Admit a request; None: it has been answered, and the connection must be closed."""


class ClientConnection(asyncio.BufferedProtocol):
    """Reads requests and passes the bytes of their bodies to the current exchange.

    Implements `client.Client` for that exchange. `keep_alive`: seconds for which it is kept without a request; 0 means
    for as long as the client likes.
    """

    _reading: Reading

    def __init__(self, server: Server, metrics: Metrics, clock: Clock, keep_alive: float) -> None:
        self.paused = False
        """Whether the client's socket is full."""
        self.eof = False
        self.sent = 0
        self._server = server
        self._metrics = metrics
        self._clock = clock
        self._keep_alive = keep_alive
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._body: Chunks | Counted | None = None
        self._input = RequestHeads()
        self._view = VIEW
        self._switched = False
        self._closing = False
        self._fin_sent = False
        self._timer: asyncio.TimerHandle | None = None
        self._linger_until = 0.0
        self._in_head = False

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the transport."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        # A request ends when the kernel has its last byte: no buffer of our own, and a small one in the kernel.
        self._transport.set_write_buffer_limits(high=0)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._reading = Reading(self._transport, self.abort)
        self._server.opened(self)
        self._await_request()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Called by the transport."""
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the transport."""
        if self._closing:
            self._linger()
            return
        data = bytes(VIEW[:nbytes])
        self._view = VIEW
        if self._body is not None:
            self._take_body(data)
        elif self._exchange is None:
            self._input.add(data)
            self._next()
        elif self._switched:
            self._exchange.client_data(data)
        else:
            self._input.add(data)
            if len(self._input) > MAX_AHEAD_BYTES:
                self._reading.hold("ahead")

    def eof_received(self) -> bool:
        """Called by the transport."""
        self.eof = True
        self._reading.end()
        if self._closing:
            return False
        if self._exchange is not None:
            self._exchange.client_eof()
            return True
        return False

    def connection_lost(self, _exc: Exception | None) -> None:
        """Called by the transport."""
        self._cancel_timer()
        self._reading.end()
        self._closing = True
        self._server.closed(self)
        if self._exchange is not None:
            self._exchange.client_gone()

    def pause_writing(self) -> None:
        """Called by the transport."""
        self.paused = True
        if self._exchange is not None:
            self._exchange.client_paused(True)

    def resume_writing(self) -> None:
        """Called by the transport."""
        self.paused = False
        if self._exchange is not None:
            self._exchange.client_paused(False)

    # -- for the exchange

    @property
    def held(self) -> bool:
        """Whether reading from the client is paused."""
        return self._reading.held

    def write(self, data: bytes) -> None:
        """Send data; it is ignored when the connection is closing."""
        if self._transport is not None and not self._fin_sent and not self._transport.is_closing():
            self.sent += len(data)
            self._transport.write(data)

    def write_eof(self) -> None:
        """Close our half of the connection."""
        if self._transport is not None and not self._fin_sent and not self._transport.is_closing():
            self._fin_sent = True
            self._transport.write_eof()

    def end_by_close(self) -> None:
        """Make a close of the socket a reset, also when the process dies; `close` undoes it."""
        self._set_linger(_RESET)

    def hold_reading(self, hold: bool) -> None:
        """Pause reading while the engine does not take the request's body."""
        if hold:
            self._reading.hold("engine")
        elif self.held:
            self._reading.release("engine")
            if self._exchange is not None:
                self._exchange.client_read_again()

    def switched(self) -> None:
        """The protocol has switched: what arrives from now on is not a request."""
        self._switched = True
        data = self._input.take()
        self._reading.release("ahead")
        if data and self._exchange is not None:
            self._exchange.client_data(data)

    def exchange_over(self, *, close: bool) -> None:
        """The response has been sent: continue with the next request, or close."""
        self._exchange = None
        if close or self._closing or self.last or self._body is not None:
            self.close()
            return
        self._reading.release("ahead", "engine")
        self._next()

    # -- ends

    @property
    def last(self) -> bool:
        """Whether no other request can follow: the client has closed its half, and nothing more has been received."""
        return self.eof and not self._input

    @property
    def idle(self) -> bool:
        """Whether no byte of an unanswered request has arrived."""
        return self._exchange is None and not self._input and not self._closing

    def close_idle(self) -> None:
        """Close it if it is without a request, so that the client sends its next one elsewhere."""
        if not self.idle:
            return
        if self._has_unread():
            # A request that crosses the FIN would get no answer. This one is read, and answered, in a moment.
            self._await(CROSSING_SECONDS, self.close_idle)
        else:
            self.close()

    def close(self) -> None:
        """Send what is left, then FIN, and wait a moment for the client's FIN."""
        if self._closing or self._transport is None:
            return
        self._closing = True
        self._cancel_timer()
        self._set_linger(_NO_RESET)
        if self.eof or self._transport.is_closing():
            self._transport.close()
            return
        self.write_eof()
        self._reading.release("ahead", "engine")
        self._linger_until = self._clock.monotonic() + MAX_LINGER_SECONDS
        self._linger()

    def abort(self) -> None:
        """Cut the connection."""
        self._closing = True
        self._cancel_timer()
        if self._transport is not None:
            self._transport.abort()

    # -- requests

    def _next(self) -> None:
        """Start the next request if its head has arrived."""
        try:
            head = self._input.next_head()
            if head is None and not self.eof:
                self._input.check_partial()
        except HeadError as error:
            self._refuse(error.status, str(error))
            return
        if head is not None:
            self._cancel_timer()
            self._in_head = False
            self._begin(head)
        elif self.eof:
            self.close()
        elif not self._input:
            self._in_head = False
            self._await_request()
        elif not self._in_head:
            self._in_head = True
            self._await(HEAD_SECONDS, self._too_slow)

    def _too_slow(self) -> None:
        self._refuse(408, f"the head of the request did not arrive within {HEAD_SECONDS:g} s")

    def _begin(self, head: RequestHead) -> None:
        exchange = self._server.admit(self, head)
        if exchange is None:
            self.close()
            return
        self._exchange = exchange
        if head.length:
            self._body = Chunks() if head.length == CHUNKED else Counted(head.length)
        exchange.start()
        if self._body is not None and self._input:
            self._take_body(self._input.take())
        if self.eof and self._exchange is not None:
            # It arrived after this request, while an earlier one was in progress.
            self._exchange.client_eof()

    def _take_body(self, data: bytes) -> None:
        body, exchange = self._body, self._exchange
        if body is None:
            return
        try:
            spans = body.feed(data)
        except FramingError as error:
            self._body = None
            self._metrics.request_invalid()
            if exchange is None:
                self.close()
            else:
                exchange.bad_request(str(error))
            return
        if len(spans) * TINY_BYTES > len(data) > TINY_BYTES:
            self._view = _SMALL_VIEW
            self._reading.take_turns()
        # One write for all chunks of a read.
        payload = b"".join([data[start:end] for start, end in spans])
        if body.done:
            self._body = None
            if body.excess:
                self._input.add(data[len(data) - body.excess :])
            if exchange is not None:
                exchange.request_end(payload)
        elif exchange is not None and payload:
            exchange.request_data(payload)

    def _refuse(self, status: int, message: str) -> None:
        """Refuse what cannot be served, and close: the start of a next request could not be trusted."""
        self._metrics.request_invalid()
        self._input.take()
        # Without a head the client's API is unknown.
        body = Dialect.CHAT.body(failures.bad_request(status, message))
        self.write(failures.response(status, body, close=True))
        self.close()

    # -- inside

    def _await_request(self) -> None:
        if self._keep_alive:
            self._await(self._keep_alive, self.close_idle)
        else:
            self._cancel_timer()

    def _has_unread(self) -> bool:
        """Whether the kernel has something for us that the event loop has not read yet."""
        if self._transport is None:
            return False
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _set_linger(self, linger: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def _linger(self) -> None:
        left = self._linger_until - self._clock.monotonic()
        self._await(max(min(LINGER_SECONDS, left), 0.0), self.abort)

    def _await(self, seconds: float, action: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(seconds, action)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
