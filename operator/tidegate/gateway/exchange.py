"""One request and its response: from the client's head to the last byte that the client takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.gateway.bodies import Events, Opaque, body_of
from tidegate.gateway.ending import Ending
from tidegate.gateway.failures import Failure
from tidegate.gateway.framing import FramingError
from tidegate.gateway.heads import (
    END,
    MAX_HEAD_BYTES,
    UNTIL_CLOSE,
    HeadError,
    RequestHead,
    ResponseHead,
    parse_response,
    write_response,
)
from tidegate.gateway.sending import Sending
from tidegate.gateway.timeouts import Timeouts
from tidegate.gateway.tunnel import Tunnel
from tidegate.gateway.watch import Watch

if TYPE_CHECKING:
    from tidegate.gateway.connection import ClientConnection
    from tidegate.gateway.gateway import Gateway


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
        self.status = 0
        self.close = not head.keep_alive
        """Whether the client's connection ends with this response."""
        self.finished = False
        self.sending = Sending(self, gateway, head, request_id, deadline)
        self.ending = Ending(self, gateway, request_id)
        self.watch = Watch(self, timeouts, gateway.drain)
        self._gateway = gateway
        self._request_id = request_id
        self._response: ResponseHead | None = None
        self._head_bytes = b""
        self._sent_before = client.sent

    # -- the request

    @property
    def request_done(self) -> bool:
        return self.sending.done

    def start(self) -> None:
        """Send the request off."""
        self.watch.arm()
        self.sending.start()

    def request_data(self, data: bytes) -> None:
        """The next piece of the request's body."""
        self.watch.last = time.monotonic()
        self.sending.data(data)

    def request_end(self) -> None:
        """The request's body is whole."""
        self.sending.end()

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
            self.ending.fail(Failure.UPSTREAM_INVALID, str(error))
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
                    self.ending.fail(Failure.UPSTREAM_INVALID, "the head of its response is too long")
                return
            raw, self._head_bytes = self._head_bytes[: end + 4], self._head_bytes[end + 4 :]
            try:
                head = parse_response(raw, bodiless=self.head.method == b"HEAD")
            except HeadError as error:
                self.ending.fail(Failure.UPSTREAM_INVALID, str(error))
                return
            if head.status == 101:
                self._switch(head)
            elif head.status >= 200:
                self._begin(head)

    def _begin(self, head: ResponseHead) -> None:
        self._response, self.status = head, head.status
        body = self.body = body_of(head, self.ending.dialect.stream)
        if isinstance(body, Events):
            body.intercept = self._gateway.drain.draining
        self.watch.begun(streaming=isinstance(body, Events), opaque=isinstance(body, Opaque))
        self.close = self.close or head.length == UNTIL_CLOSE or self._gateway.drain.draining or self.client.last
        extra = [] if head.get(b"x-request-id") else [(b"X-Request-Id", self._request_id.encode())]
        self.client.write(write_response(head, extra, close=self.close))
        rest, self._head_bytes = self._head_bytes, b""
        if rest:
            self.upstream_data(rest)
        elif body.done:
            self._body_over(body)

    def _switch(self, head: ResponseHead) -> None:
        upstream = self.sending.connection
        if not self.head.upgrade or upstream is None:
            self.ending.fail(Failure.UPSTREAM_INVALID, "it switched protocols without being asked")
            return
        self.status, self.close = 101, True
        self.tunnel = Tunnel(self, upstream, websocket=self.head.upgrade == b"websocket")
        self.watch.begun(streaming=True)
        self.client.write(write_response(head, [], close=False))
        rest, self._head_bytes = self._head_bytes, b""
        self.client.switched()
        if rest:
            self.tunnel.from_upstream(rest)

    def _body_over(self, body: Opaque | Events) -> None:
        if isinstance(body, Events) and body.intercepted:
            self.ending.cut_by_engine()
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
            self.tunnel.upstream_lost()
        else:
            self._broken()

    def upstream_paused(self, paused: bool) -> None:
        self.sending.full = paused
        self.client.hold_reading(paused)

    def _broken(self) -> None:
        fresh = self.body is None and not self._head_bytes
        if not (fresh and self.sending.again()):
            self.ending.fail(Failure.UPSTREAM_RESET)

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
            self.ending.client_gone()
        else:
            self.watch.client_eof()

    def client_paused(self, paused: bool) -> None:
        """The client's socket takes no more, or takes more again."""
        self.watch.last = time.monotonic()
        if not self.over:
            self.sending.pause_answer(paused)
        elif not paused:
            self.finish()

    # -- its end

    def respond_over(self) -> None:
        """The client's socket has the whole response; the request is over when it is gone from there."""
        self.over = True
        whole = self.body is not None and self.body.done and not self.tunnel
        self.sending.release(reusable=whole and self._response is not None and self._response.keep_alive)
        self.watch.arm()
        if not self.client.paused:
            self.finish()

    def finish(self) -> None:
        """The last byte has gone, or the connection."""
        if self.finished:
            return
        self.finished = True
        self.watch.cancel()
        self._gateway.metrics.answered(self.status, self.client.sent - self._sent_before)
        if self.work_id:
            self._gateway.drain.finish(self.work_id)
        self.client.exchange_over(close=self.close)
