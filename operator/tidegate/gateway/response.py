"""The response in transit to the client: the engine's bytes, and an end of our own where the engine sends none."""

from __future__ import annotations

import math
from typing import Protocol

from tidegate.contract.terms import Work
from tidegate.gateway import failures
from tidegate.gateway.bodies import Events, Opaque, body_of
from tidegate.gateway.client import Client
from tidegate.gateway.dialects import dialect_of
from tidegate.gateway.failures import ErrorReply, Failure
from tidegate.gateway.framing import FramingError
from tidegate.gateway.heads import (
    CHUNKED,
    UNTIL_CLOSE,
    HeadError,
    RequestHead,
    ResponseHead,
    write_response,
)
from tidegate.gateway.response_heads import ResponseHeads
from tidegate.gateway.shared import Shared
from tidegate.gateway.tunnel import Tunnel

KEEP_ALIVE_EVENT = b": keep-alive\n\n"
MAX_WITHHELD_BYTES = 1024 * 1024
"""Longer JSON is forwarded as it comes: no text that an engine generates is so long."""


class Owner(Protocol):
    """The exchange that a response belongs to; it decides what follows from the engine's behaviour."""

    def response_begun(self, *, until_close: bool) -> bool:
        """A final head has arrived; returns whether the client's connection ends with this response."""

    def answering(self) -> None:
        """The engine has begun to answer, after its head."""

    def switched(self) -> None:
        """The engine has switched protocols."""

    def response_complete(self) -> None:
        """The engine has sent all of it."""

    def response_truncated(self) -> None:
        """The engine, told to stop, truncated it without the client being able to notice."""

    def response_over(self) -> None:
        """The tunnel is closed in both directions."""

    def tunnel_drained(self) -> None:
        """The tunnel was closed because the drain's time is up."""

    def engine_half_closed(self) -> None:
        """The engine has closed its half of a tunnel."""

    def upstream_broken(self, *, fresh: bool) -> None:
        """The connection is lost; `fresh`: before any byte of a response."""

    def fail(self, failure: Failure, detail: str = "") -> None:
        """The engine cannot answer the request."""


class Response:
    """Forwards the engine's bytes. `upstream_data` is the one method that runs for every chunk.

    Implements `upstream.Receiver`; it is detached from the connection when the response is over.
    """

    def __init__(self, owner: Owner, shared: Shared, client: Client, head: RequestHead, request_id: str) -> None:
        self.status = 0
        self.body: Opaque | Events | None = None
        self.tunnel: Tunnel | None = None
        self.answering = False
        """Whether the engine has begun to answer: until then it may be silent, as a request in its queue is."""
        self.last = -math.inf
        """When its latest bytes arrived, in the clock's monotonic seconds."""
        self._owner = owner
        self._drain = shared.drain
        self._now = shared.clock.monotonic
        self._client = client
        self._request = head
        self._request_id = request_id
        self._dialect = dialect_of(head.path)
        self._work: Work | None = None
        self._head: ResponseHead | None = None
        self._input = ResponseHeads(bodiless=head.method == b"HEAD")
        self._withheld: ResponseHead | None = None

    def count(self, work: Work) -> None:
        """Record the response's progress in `work` from now on."""
        self._work = work

    @property
    def begun(self) -> bool:
        """Whether the head of the engine's response has been sent to the client."""
        return self.body is not None or self.tunnel is not None

    @property
    def events(self) -> Events | None:
        """Its body if it is a stream of events, into which events can be inserted."""
        return self.body if isinstance(self.body, Events) else None

    @property
    def reusable(self) -> bool:
        """Whether the engine's connection can be used again after it."""
        whole = self.body is not None and self.body.done
        return whole and self._head is not None and self._head.keep_alive

    # -- what the engine's connection reports

    def upstream_data(self, data: bytes) -> None:
        """The next bytes from the engine."""
        body = self.body
        if body is None:
            if self.tunnel is not None:
                self._tunnel_data(self.tunnel, data)
            else:
                self._head_data(data)
            return
        try:
            out = body.feed(data)
        except FramingError as error:
            self._owner.fail(Failure.UPSTREAM_INVALID, str(error))
            return
        self.last = now = self._now()
        work = self._work
        if work is not None:
            # A ping is progress too: whoever sends it works on the request.
            work.progressed = now
        if out:
            self._client.write(out)
        if not self.answering and body.answering:
            self.answering = True
            self._owner.answering()
        if body.done or body.intercepted:
            self._body_over(body)

    def upstream_eof(self) -> bool:
        """The engine has closed its half; returns whether the other half stays open."""
        if self.tunnel is not None:
            return self._tunnel_eof(self.tunnel)
        if self.body is not None and self.body.eof():
            if isinstance(self.body, Events):
                self._client.write(self.body.rest())
            self._body_over(self.body)
        else:
            self._broken()
        return False

    def upstream_lost(self) -> None:
        """The connection is lost."""
        if self.tunnel is None:
            self._broken()
        elif self.tunnel.half_closed:
            self._owner.response_over()
        else:
            self._owner.fail(Failure.UPSTREAM_RESET)

    def upstream_paused(self, paused: bool) -> None:
        """The engine's socket is full, or has room again."""
        self._client.hold_reading(paused)

    def tunnel_used(self) -> None:
        """The client has sent something through the tunnel: the engine has time to answer it before it is stalled."""
        if self._work is not None:
            self._work.progressed = self._now()

    # -- what is written beside the engine's bytes

    def drain_changed(self) -> None:
        """Once the engine may have been stopped, an end that hides that the response is truncated is not forwarded."""
        if isinstance(self.body, Events):
            self.body.intercept = self._drain.stopping

    def keep_alive(self) -> None:
        """Insert a comment into a stream of events."""
        if isinstance(self.body, Events):
            self._client.write(self.body.insert(KEEP_ALIVE_EVENT))

    def end_with(self, error: ErrorReply, headers: tuple[tuple[str, str], ...] = ()) -> bool:
        """End it with an error, in a form that fits what the client has received; False: none fits.

        `headers` are added if the response has not begun.
        """
        if self.tunnel is not None:
            return False
        if self.body is None:
            self.status = error.status
            headers = (*headers, ("X-Request-Id", self._request_id))
            body = self._dialect.body(error)
            self._client.write(failures.response(error.status, body, close=True, headers=headers))
        elif isinstance(self.body, Events):
            self._client.write(self.body.end(self._dialect.events(error, self.body.reader.next_sequence)))
        else:
            # Only a cut shows the client that the body is truncated; a proper end would pass it off as complete.
            return False
        return True

    def end_complete(self) -> bool:
        """End a stream that lacks only the end of its framing, adding nothing; False: it lacks more."""
        events = self.events
        if events is None or not events.reader.over:
            return False
        self._client.write(events.end(b""))
        return True

    def end_with_event(self, body: Events, event: bytes) -> None:
        """End a stream with a shutdown event in the form that the client requested."""
        self._client.write(body.end(event + self._dialect.after_named))

    # -- inside

    def _head_data(self, data: bytes) -> None:
        self._input.add(data)
        if self._withheld is not None:
            self._withheld_data(self._withheld)
            return
        while True:
            try:
                head = self._input.next_head()
            except HeadError as error:
                self._owner.fail(Failure.UPSTREAM_INVALID, str(error))
                return
            if head is None:
                return
            if head.status == 101:
                self._switch(head)
                return
            if head.status >= 200:
                self._final_head(head)
                return
            if head.status != 100 and self._request.minor:
                # 100 is the gateway's own to send. HTTP/1.0 knows no interim responses.
                self._client.write(write_response(head, [], close=False))

    def _final_head(self, head: ResponseHead) -> None:
        # A stopped engine may answer what it aborts as if that were complete. As long as the client has none of it, it
        # can be told to ask another pod.
        if self._drain.stopping and head.json and head.length <= MAX_WITHHELD_BYTES and self._request.method == b"POST":
            self._withheld = head
            self._withheld_data(head)
        else:
            self._begin(head, self._input.take())

    def _withheld_data(self, head: ResponseHead) -> None:
        if len(self._input) < head.length:
            return
        self._withheld = None
        body = self._input.take()
        if head.status == 200 and self._dialect.is_aborted(self._request.path, body):
            self._owner.response_truncated()
        else:
            self._begin(head, body)

    def _begin(self, head: ResponseHead, rest: bytes) -> None:
        self._head, self.status = head, head.status
        plain = not self._request.minor
        body = self.body = body_of(head, self._dialect.stream, plain=plain)
        self.drain_changed()
        self._note_begin(streaming=isinstance(body, Events), opaque=isinstance(body, Opaque))
        until_close = head.length == UNTIL_CLOSE or (plain and head.length == CHUNKED)
        if until_close:
            self._client.end_by_close()
        close = self._owner.response_begun(until_close=until_close)
        extra = [] if head.get(b"x-request-id") else [(b"X-Request-Id", self._request_id.encode())]
        self._client.write(write_response(head, extra, close=close, plain=plain))
        if rest:
            self.upstream_data(rest)
        elif body.done:
            self._body_over(body)

    def _switch(self, head: ResponseHead) -> None:
        if not self._request.upgrade:
            self._owner.fail(Failure.UPSTREAM_INVALID, "the engine switched protocols without an Upgrade request")
            return
        self.status = 101
        self.tunnel = Tunnel(self._client, websocket=self._request.upgrade == b"websocket")
        self._note_begin(streaming=True, opaque=False)
        self.answering = True
        self._owner.answering()
        self._owner.switched()
        self._client.end_by_close()
        self._client.write(write_response(head, [], close=False))
        rest = self._input.take()
        self._client.switched()
        if rest:
            self._tunnel_data(self.tunnel, rest)

    def _note_begin(self, *, streaming: bool, opaque: bool) -> None:
        self.last = self._now()
        if self._work is not None:
            self._work.streaming = streaming
            self._work.opaque = opaque
            self._work.progressed = self.last

    def _body_over(self, body: Opaque | Events) -> None:
        if body.intercepted:
            self._owner.response_truncated()
        else:
            self._owner.response_complete()

    def _broken(self) -> None:
        self._owner.upstream_broken(fresh=self.body is None and not self._input)

    def _tunnel_data(self, tunnel: Tunnel, data: bytes) -> None:
        self.last = self._now()
        if self._work is not None:
            self._work.progressed = self.last
        if tunnel.from_upstream(data):
            self._owner.tunnel_drained()

    def _tunnel_eof(self, tunnel: Tunnel) -> bool:
        if self._drain.stopping and not tunnel.half_closed and tunnel.needs_close_frame:
            # A process that dies without sending a close frame looks the same.
            self._owner.fail(Failure.UPSTREAM_RESET)
            return False
        if tunnel.upstream_eof():
            self._owner.response_over()
            return False
        self._owner.engine_half_closed()
        return True
