"""One request and its response: from the client's head to the last byte that the client accepts."""

from __future__ import annotations

import secrets

from tidegate.contract.terms import Admission
from tidegate.contract.token import Shutdown, sign
from tidegate.gateway import failures
from tidegate.gateway.client import Client
from tidegate.gateway.failures import Failure
from tidegate.gateway.heads import RequestHead
from tidegate.gateway.response import Response
from tidegate.gateway.shared import Shared
from tidegate.gateway.timeouts import Timeouts
from tidegate.gateway.timers import RequestTimers
from tidegate.gateway.tunnel import Tunnel
from tidegate.gateway.upstream_request import UpstreamRequest
from tidegate.gateway.websocket import GOING_AWAY, INTERNAL_ERROR

RETRY_AFTER = (("Retry-After", "1"),)
WANTS_EVENT = b"tidegate-shutdown"


class Exchange:
    """Coordinates one request: its upstream request, its response and its timers.

    Implements `draining.RequestInFlight`, `response.Owner` and `timers.Timed`.
    """

    def __init__(
        self,
        shared: Shared,
        client: Client,
        head: RequestHead,
        *,
        request_id: str,
        timeouts: Timeouts,
        deadline: float | None,
    ) -> None:
        self.over = False
        """Whether the complete response is in the client's socket, or there will be no more of it."""
        self._finished = False
        self._close = not head.keep_alive
        """Whether the client's connection ends with this response."""
        self._shared = shared
        self._drain = shared.drain
        self._metrics = shared.metrics
        self._client = client
        self._head = head
        self._request_id = request_id
        self._work_id = ""
        """Its id in the drain; empty for a probe, which is not counted."""
        self._sent_before = client.sent
        self._response = Response(self, shared, client, head, request_id)
        self._upstream = UpstreamRequest(
            shared,
            client,
            head,
            request_id,
            deadline=deadline,
            connect_seconds=timeouts.connect,
            receiver=self._response,
            on_failure=self.fail,
        )
        self._timers = RequestTimers(
            self, shared, timeouts, client=client, response=self._response, upstream=self._upstream
        )

    # -- the request

    def arrive(self) -> Admission:
        """Count it as a request in flight, unless it is refused. It may be `over` already: a drain ends it at once."""
        known = self._drain.known(self._request_id)
        work_id = f"{self._request_id}-{secrets.token_hex(4)}" if known else self._request_id
        # Before the arrival, which may itself be the moment at which the drain ends everything.
        self._work_id = work_id
        admission = self._drain.arrive(work_id, self)
        if admission is not Admission.REFUSE and not self.over:
            self._response.count(self._drain.work(work_id))
        return admission

    def start(self) -> None:
        """Send the request to the engine."""
        self._timers.arm()
        self._upstream.start()

    def request_data(self, data: bytes) -> None:
        """The next piece of the request's body."""
        self._timers.touch()
        self._upstream.data(data)

    def request_end(self, data: bytes) -> None:
        """The request's body is complete with `data`, which may be empty."""
        if data:
            self._timers.touch()
        self._upstream.end(data)

    # -- what the client's connection reports

    def client_data(self, data: bytes) -> None:
        """Data from the client after a protocol switch."""
        if self._response.tunnel is not None:
            self._response.tunnel_used()
            self._upstream.tunnel_data(data)

    def client_eof(self) -> None:
        """The client has closed its half: it is gone, or goes on reading."""
        tunnel = self._response.tunnel
        if tunnel is not None:
            if tunnel.client_eof():
                self.response_over()
            else:
                self._upstream.tunnel_eof()
        elif not self._upstream.done:
            self.client_gone()
        else:
            self._timers.client_eof()

    def client_paused(self, paused: bool) -> None:
        """The client's socket is full, or has room again."""
        self._timers.touch()
        if not self.over:
            self._upstream.pause_response(paused)
        elif not paused:
            self._finish()

    def client_read_again(self) -> None:
        """Reading from the client has resumed."""
        self._timers.read_again()

    def client_gone(self) -> None:
        """The client has left: free the engine."""
        if self._finished:
            return
        self._metrics.failed(Failure.CLIENT_GONE)
        self._cut(unanswered=Failure.CLIENT_GONE.value.status)

    # -- what the response reports

    def response_begun(self, *, until_close: bool) -> bool:
        """See `response.Owner`."""
        self._shared.engine.answers()
        self._timers.arm()
        self._close = self._close or until_close or self._drain.draining or self._client.last
        return self._close

    def answering(self) -> None:
        """See `response.Owner`."""
        if self._work_id:
            self._drain.dequeue(self._work_id)
        self._timers.arm()

    def switched(self) -> None:
        """See `response.Owner`."""
        self._close = True
        self._timers.arm()

    def response_complete(self) -> None:
        """See `response.Owner`."""
        # A request that the drain has already cut is ended by its token instead.
        if not self._work_id or self._drain.contract.generated(self._work_id):
            self.response_over()

    def response_truncated(self) -> None:
        """See `response.Owner`; also if it breaks off while draining: the client gets the token instead."""
        self._count_cut()
        self.end()

    def tunnel_drained(self) -> None:
        """See `response.Owner`."""
        self._metrics.failed(Failure.DRAINED)
        self.response_over()

    def engine_half_closed(self) -> None:
        """See `response.Owner`."""
        self._timers.engine_eof()

    def upstream_broken(self, *, fresh: bool) -> None:
        """See `response.Owner`."""
        if not (fresh and self._upstream.retry()):
            self.fail(Failure.UPSTREAM_RESET)

    # -- what the drain does

    def drain_changed(self) -> None:
        """See `draining.RequestInFlight`."""
        self._response.drain_changed()
        self._timers.arm()

    def end(self) -> None:
        """The drain's time is up: send a shutdown token, in the form that this response allows."""
        if self.over:
            return
        response = self._response
        if response.tunnel is not None:
            if response.tunnel.closed_by_engine:
                self._ended_by_itself()
            elif not response.tunnel.has_frames:
                # FIN would tell the other protocol that this was all.
                self.abort()
            elif response.tunnel.close("server shutdown"):
                self.tunnel_drained()
            return
        events = response.events
        if response.begun and events is None:
            # Nothing can be inserted into any other body; it may finish by itself until the deadline.
            return
        self._upstream.drop()
        self._close = True
        if response.end_complete():
            self._ended_by_itself()
            return
        token = self._shutdown_token(0 if events is None else events.reader.generated)
        if events is not None and (self._head.get(WANTS_EVENT) or b"").lower() == b"event":
            response.end_with_event(events, token.event())
        else:
            response.end_with(failures.shutdown(token), RETRY_AFTER)
        self._metrics.failed(Failure.DRAINED)
        self.response_over()

    def abort(self) -> None:
        """The deadline has passed and the client has not read its response, or no token can reach it."""
        if self._finished:
            return
        if not self.over:
            self._metrics.failed(Failure.DRAINED)
        self._cut()

    # -- failures

    def fail(self, failure: Failure, detail: str = "") -> None:
        """End the request with an error in whatever form is still possible, or else cut it."""
        if self.over:
            return
        response, draining = self._response, self._drain.draining
        if failure is Failure.UPSTREAM_INVALID:
            self._shared.engine.answers_invalidly(failure.label, detail)
        if response.tunnel is not None:
            self._fail_tunnel(response.tunnel, failure)
            return
        if response.end_complete():
            self._upstream.drop()
            self._close = True
            self.response_over()
            return
        if draining and failure is Failure.UPSTREAM_RESET:
            if not response.begun or response.events is not None:
                self.response_truncated()
                return
            self._count_cut()
        self._metrics.failed(failure)
        self._upstream.drop()
        self._close = True
        if draining and failure is Failure.CONNECT:
            written = response.end_with(self._error(Failure.DRAINED), RETRY_AFTER)
        else:
            written = response.end_with(self._error(failure, detail))
        if written:
            self.response_over()
        else:
            self._cut()

    def bad_request(self, message: str) -> None:
        """The request's body does not match its head: what was sent to the engine is not a valid request."""
        if self.over:
            return
        self._upstream.drop()
        self._close = True
        if not self._response.begun and self._response.end_with(failures.bad_request(400, message)):
            self.response_over()
        else:
            self._cut()

    # -- its end

    def response_over(self) -> None:
        """The complete response is in the client's socket; the request ends when it has been sent from there."""
        self.over = True
        self._upstream.release(reusable=self._response.reusable)
        self._timers.arm()
        if not self._client.paused:
            self._finish()

    # -- inside

    def _finish(self, unanswered: int = 0) -> None:
        """The last byte has been sent, or the connection is lost; `unanswered`: the status if there was no response."""
        if self._finished:
            return
        self._finished = True
        self._timers.cancel()
        self._metrics.answered(self._response.status or unanswered, self._client.sent - self._sent_before)
        if self._work_id:
            self._drain.finish(self._work_id)
        self._client.exchange_over(close=self._close)

    def _cut(self, unanswered: int = 0) -> None:
        self.over = True
        self._upstream.drop()
        self._client.abort()
        self._finish(unanswered)

    def _ended_by_itself(self) -> None:
        """It was about to be cut, and turns out to need no token."""
        if self._work_id:
            self._drain.contract.was_complete(self._work_id)
        self.response_over()

    def _count_cut(self) -> None:
        if self._work_id:
            self._drain.contract.cut_short(self._work_id)

    def _fail_tunnel(self, tunnel: Tunnel, failure: Failure) -> None:
        """Send a close frame where possible; any other protocol is cut."""
        if tunnel.closed_by_engine:
            self.response_over()
            return
        lost_to_drain = self._drain.draining and failure is Failure.UPSTREAM_RESET
        self._metrics.failed(failure)
        if lost_to_drain:
            self._count_cut()
        if tunnel.close_now(GOING_AWAY if lost_to_drain else INTERNAL_ERROR, failure.value.code):
            self.response_over()
        else:
            self._cut()

    def _error(self, failure: Failure, detail: str = "") -> failures.ErrorReply:
        return failures.error_reply(failure.value, detail, self._request_id)

    def _shutdown_token(self, generated: int) -> Shutdown:
        self._metrics.token_sent()
        keys, path, at = self._shared.keys.all(), self._head.path, self._shared.clock.wall()
        resume = sign(keys[0], request_id=self._request_id, path=path, generated=generated, at=at) if keys else None
        return Shutdown(self._drain.reason, self._request_id, generated, resume)
