"""One request and its response: from the client's head to the last byte that the client takes."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from tidegate.gateway import failures
from tidegate.gateway.bodies import Events, Opaque, body_of
from tidegate.gateway.failures import Failure
from tidegate.gateway.framing import LAST_CHUNK, FramingError, chunk
from tidegate.gateway.heads import (
    CHUNKED,
    END,
    MAX_HEAD_BYTES,
    UNTIL_CLOSE,
    HeadError,
    RequestHead,
    ResponseHead,
    parse_response,
    write_request,
    write_response,
)
from tidegate.gateway.timeouts import DEADLINE_HEADER, Timeouts
from tidegate.gateway.token import Shutdown, sign
from tidegate.gateway.tunnel import Tunnel
from tidegate.gateway.upstream import UpstreamConnection
from tidegate.gateway.watch import Watch

if TYPE_CHECKING:
    from tidegate.gateway.connection import ClientConnection
    from tidegate.gateway.gateway import Gateway

MAX_OUTBOX_BYTES = 64 * 1024
RETRYABLE = (b"GET", b"HEAD", b"OPTIONS")
# Compression would hold a stream back and could not be written into; between two containers of a pod it saves nothing.
DROPPED = frozenset({b"accept-encoding", b"expect", b"http2-settings", DEADLINE_HEADER})
RETRY_AFTER = (("Retry-After", "1"),)
WANTS_EVENT = b"tidegate-shutdown"


class Exchange:
    """Bytes from the engine pass `upstream_data`, the one method that runs for every chunk."""

    def __init__(
        self,
        gateway: Gateway,
        client: ClientConnection,
        head: RequestHead,
        *,
        request_id: str,
        timeouts: Timeouts,
        deadline: float | None,
    ) -> None:
        self.head = head
        self.client = client
        self.work_id = ""
        self.over = False
        """The whole response is handed to the client's socket, or there will be no more of it."""
        self.body: Opaque | Events | None = None
        self.tunnel: Tunnel | None = None
        self.request_done = not head.length
        self.upstream_full = False
        self._gateway = gateway
        self._request_id = request_id
        self._deadline = deadline
        self._upstream: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reused = False
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._response: ResponseHead | None = None
        self._head_bytes = b""
        self._finished = False
        self._close = not head.keep_alive
        self._sent_before = client.sent
        self._status = 0
        self.watch = Watch(self, timeouts, gateway.drain)

    # -- the request

    def start(self) -> None:
        """Send the request off, over an open connection if there is one."""
        self.watch.arm()
        upstream = self._gateway.pool.take()
        if upstream is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._gateway.metrics.reused += 1
            self._attach(upstream, reused=True)

    def request_data(self, data: bytes) -> None:
        """The next piece of the request's body."""
        self.watch.last = time.monotonic()
        if self.head.length == CHUNKED:
            data = chunk(data)
        self._to_upstream(data)

    def request_end(self) -> None:
        """The request's body is whole."""
        self.request_done = True
        if self.head.length == CHUNKED:
            self._to_upstream(LAST_CHUNK)

    def _to_upstream(self, data: bytes) -> None:
        if self.over:
            return
        if self._upstream is not None:
            # uvloop raises where asyncio says nothing; that the connection is lost is told in a moment.
            if not self._upstream.transport.is_closing():
                self._upstream.transport.write(data)
            return
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        if self._outbox_bytes > MAX_OUTBOX_BYTES:
            self.client.hold_reading(True)

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(self.watch.timeouts.connect or None):
                upstream = await self._gateway.pool.connect()
        except TimeoutError:
            self._connecting = None
            self.fail(Failure.CONNECT, f"none within {self.watch.timeouts.connect:g} s")
        except OSError as error:
            self._connecting = None
            self._gateway.engine.unreachable(error)
            self.fail(Failure.CONNECT, error.strerror or type(error).__name__)
        else:
            self._connecting = None
            if self.over:
                upstream.drop()
            else:
                self._attach(upstream, reused=False)

    def _attach(self, upstream: UpstreamConnection, *, reused: bool) -> None:
        self._upstream, self._reused = upstream, reused
        upstream.receiver = self
        extra = []
        if self.head.get(b"x-request-id") != self._request_id.encode():
            extra.append((b"X-Request-Id", self._request_id.encode()))
        if self._deadline is not None:
            rest = max(math.floor((self._deadline - time.monotonic()) * 1000), 1) / 1000
            extra.append((b"Tidegate-Deadline-Seconds", b"%.3f" % rest))
        drop = DROPPED | {b"x-request-id"} if extra and extra[0][0] == b"X-Request-Id" else DROPPED
        head = write_request(self.head, extra, drop=drop)
        upstream.transport.write(b"".join([head, *self._outbox]))
        if self.head.expects and not self.request_done and not self._outbox:
            self.client.write(b"HTTP/1.1 100 Continue" + END)
        self._outbox.clear()
        self.client.hold_reading(False)

    # -- the response

    def upstream_data(self, data: bytes) -> None:
        body = self.body
        if body is None:
            if self.tunnel is not None:
                self.tunnel.from_upstream(data)
            else:
                self._head_data(data)
            return
        try:
            out = body.feed(data)
        except FramingError as error:
            self.fail(Failure.UPSTREAM_INVALID, str(error))
            return
        self.watch.last = now = time.monotonic()
        if body.produced and self.watch.work is not None:
            self.watch.work.progressed = now
        if out:
            self.client.write(out)
        if body.done or (type(body) is Events and body.intercepted):
            self._body_over(body)

    def _head_data(self, data: bytes) -> None:
        self._head_bytes += data
        while self.body is None and self.tunnel is None and not self.over:
            end = self._head_bytes.find(END)
            if end < 0:
                if len(self._head_bytes) > MAX_HEAD_BYTES:
                    self.fail(Failure.UPSTREAM_INVALID, "the head of its response is too long")
                return
            raw, self._head_bytes = self._head_bytes[: end + 4], self._head_bytes[end + 4 :]
            try:
                head = parse_response(raw, bodiless=self.head.method == b"HEAD")
            except HeadError as error:
                self.fail(Failure.UPSTREAM_INVALID, str(error))
                return
            if head.status == 101:
                self._switch(head)
            elif head.status >= 200:
                self._begin(head)

    def _begin(self, head: ResponseHead) -> None:
        self._response, self._status = head, head.status
        body = self.body = body_of(head)
        if isinstance(body, Events):
            body.intercept = self._gateway.drain.draining
        self.watch.begun(streaming=isinstance(body, Events), opaque=isinstance(body, Opaque))
        self._close = self._close or head.length == UNTIL_CLOSE or self._gateway.drain.draining or self.client.eof
        extra = [] if head.get(b"x-request-id") else [(b"X-Request-Id", self._request_id.encode())]
        self.client.write(write_response(head, extra, close=self._close))
        rest, self._head_bytes = self._head_bytes, b""
        if rest:
            self.upstream_data(rest)
        elif body.done:
            self._body_over(body)

    def _switch(self, head: ResponseHead) -> None:
        if not self.head.upgrade or self._upstream is None:
            self.fail(Failure.UPSTREAM_INVALID, "it switched protocols without being asked")
            return
        self._status, self._close = 101, True
        self.tunnel = Tunnel(self, self._upstream, websocket=self.head.upgrade == b"websocket")
        self.watch.begun(streaming=True)
        self.client.write(write_response(head, [], close=False))
        rest, self._head_bytes = self._head_bytes, b""
        self.client.switched()
        if rest:
            self.tunnel.from_upstream(rest)

    def _body_over(self, body: Opaque | Events) -> None:
        if isinstance(body, Events) and body.intercepted:
            self._cut_by_engine()
            return
        if self.watch.work is not None and not self._gateway.drain.contract.generated(self.work_id):
            return
        self.respond_over()

    # -- what the engine's connection tells

    def upstream_eof(self) -> bool:
        if self.over:
            return False
        if self.tunnel is not None:
            return self.tunnel.upstream_eof()
        if self.body is not None and self.body.eof():
            if isinstance(self.body, Events):
                self.client.write(self.body.rest())
            self._body_over(self.body)
        else:
            self._broken()
        return False

    def upstream_lost(self) -> None:
        if self.over:
            return
        if self.tunnel is not None:
            self.respond_over()
        else:
            self._broken()

    def upstream_paused(self, paused: bool) -> None:
        self.upstream_full = paused
        self.client.hold_reading(paused)

    def _broken(self) -> None:
        fresh = self.body is None and not self._head_bytes
        if fresh and self._reused and self.head.method in RETRYABLE and not self.head.length:
            # The engine closed an idle connection just as it was used again.
            self._drop_upstream()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        self.fail(Failure.UPSTREAM_RESET)

    # -- what the client's connection tells

    def client_data(self, data: bytes) -> None:
        """What comes from the client once protocols have switched."""
        if self.tunnel is not None:
            self.tunnel.from_client(data)

    def client_eof(self) -> None:
        """The client sends no more: it is gone, or has closed one half and reads on."""
        if self.tunnel is not None:
            self.tunnel.client_eof()
        elif not self.request_done:
            self.client_gone()
        else:
            self.watch.client_eof()

    def client_paused(self, paused: bool) -> None:
        """The client's socket takes no more, or takes more again."""
        self.watch.last = time.monotonic()
        if self._upstream is not None and not self.over:
            transport = self._upstream.transport
            if not transport.is_closing():
                (transport.pause_reading if paused else transport.resume_reading)()
        if self.over and not paused:
            self._finish()

    def client_gone(self) -> None:
        """Nobody waits for the answer: free the engine."""
        if self._finished:
            return
        self._gateway.metrics.failed(Failure.CLIENT_GONE)
        self._status = self._status or 499
        self.over = True
        self._drop_upstream()
        self.client.abort()
        self._finish()

    # -- ends

    def drain_changed(self, draining: bool) -> None:
        if isinstance(self.body, Events):
            self.body.intercept = draining
        self.watch.arm()

    def end(self) -> None:
        """The drain's time is over: a shutdown token, in the form that this response allows."""
        if self.over:
            return
        if self.tunnel is not None:
            self.tunnel.close("server shutdown")
        elif self.body is None:
            self._drop_upstream()
            self._answer(503, self._token().body(), RETRY_AFTER)
            self._gateway.metrics.failed(Failure.DRAINED)
        elif isinstance(self.body, Events):
            self._drop_upstream()
            named = (self.head.get(WANTS_EVENT) or b"").lower() == b"event"
            self.client.write(self.body.end(self._token().event(named=named)))
            self._gateway.metrics.failed(Failure.DRAINED)
            self._close = True
            self.respond_over()
        # Nothing can be written into any other body; it has until the deadline to come to its end.

    def abort(self) -> None:
        """The deadline is here and the client has not taken its answer, or cannot be told."""
        if self._finished:
            return
        if not self.over:
            self._gateway.metrics.failed(Failure.DRAINED)
        self.over = True
        self._drop_upstream()
        self.client.abort()
        self._finish()

    def fail(self, failure: Failure, detail: str = "") -> None:
        """End the request in the form that its client can still be told."""
        if self.over:
            return
        draining = self._gateway.drain.draining
        if draining and failure is Failure.UPSTREAM_RESET and isinstance(self.body, Events | None):
            self._cut_by_engine()
            return
        self._gateway.metrics.failed(failure)
        self._drop_upstream()
        self._close = True
        if self.body is None and self.tunnel is None:
            if draining and failure is Failure.CONNECT:
                self._answer(503, failures.error_body(Failure.DRAINED.value, "", self._request_id), RETRY_AFTER)
            else:
                body = failures.error_body(failure.value, detail, self._request_id)
                self._answer(failure.value.status, body, ())
        elif isinstance(self.body, Events):
            error = b"data: " + failures.error_body(failure.value, detail, self._request_id) + b"\n\n"
            self.client.write(self.body.end(error))
            self.respond_over()
        else:
            # A body that ends too early is the one sign that is left; a clean end would pass it off as whole.
            self.over = True
            self.client.abort()
            self._finish()

    def bad_request(self, message: str) -> None:
        """The request's body is not what its head says: what went to the engine is no request."""
        if self.over:
            return
        self._drop_upstream()
        self._close = True
        if self.body is None and self.tunnel is None:
            self._answer(400, failures.bad_request(400, message), ())
        else:
            self.over = True
            self.client.abort()
            self._finish()

    def drained(self) -> None:
        """The tunnel has said its goodbye."""
        self._gateway.metrics.failed(Failure.DRAINED)
        self.respond_over()

    def respond_over(self) -> None:
        """The client's socket has the whole response; the request is over when it is gone from there."""
        self.over = True
        self._release_upstream()
        self.watch.arm()
        if not self.client.paused:
            self._finish()

    def _cut_by_engine(self) -> None:
        if self.watch.work is not None:
            self._gateway.drain.contract.cut_short(self.work_id)
        self.end()

    def _answer(self, status: int, body: bytes, headers: tuple[tuple[str, str], ...]) -> None:
        """A whole response of our own."""
        self._status, self._close = status, True
        headers = (*headers, ("X-Request-Id", self._request_id))
        self.client.write(failures.response(status, body, close=True, headers=headers))
        self.respond_over()

    def _token(self) -> Shutdown:
        self._gateway.metrics.tokens += 1
        generated = self.body.reader.generated if isinstance(self.body, Events) else 0
        keys = self._gateway.keys.all()
        path, request_id = self.head.path, self._request_id
        resume = sign(keys[0], request_id=request_id, path=path, generated=generated) if keys else None
        return Shutdown(self._gateway.drain.reason, request_id, generated, resume)

    def _release_upstream(self) -> None:
        upstream, response = self._upstream, self._response
        whole = self.body is not None and self.body.done and self.request_done and not self.tunnel
        if upstream is not None and response is not None and response.keep_alive and whole and not self.upstream_full:
            self._upstream = None
            if self.client.paused:
                upstream.drop()  # not read from at the moment
            else:
                self._gateway.pool.give(upstream)
        else:
            self._drop_upstream()

    def _drop_upstream(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._upstream is not None:
            self._upstream.drop()
            self._upstream = None

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        self.watch.cancel()
        self._gateway.metrics.answered(self._status, self.client.sent - self._sent_before)
        if self.work_id:
            self._gateway.drain.finish(self.work_id)
        self.client.exchange_over(close=self._close)
