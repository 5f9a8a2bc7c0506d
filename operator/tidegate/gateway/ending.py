"""How a request ends that does not end by itself: told in the form that its client can still be told, or cut."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.contract.token import Shutdown, sign
from tidegate.gateway import failures
from tidegate.gateway.bodies import Events
from tidegate.gateway.dialects import dialect_of
from tidegate.gateway.failures import Failure, Trouble
from tidegate.gateway.websocket import GOING_AWAY, INTERNAL_ERROR

if TYPE_CHECKING:
    from tidegate.gateway.exchange import Exchange
    from tidegate.gateway.gateway import Gateway
    from tidegate.gateway.tunnel import Tunnel

RETRY_AFTER = (("Retry-After", "1"),)
WANTS_EVENT = b"tidegate-shutdown"


class Ending:
    """The early ends of one exchange; it is what the drain knows of a request in flight."""

    def __init__(self, exchange: Exchange, gateway: Gateway, request_id: str) -> None:
        self.dialect = dialect_of(exchange.head.path)
        self._exchange = exchange
        self._gateway = gateway
        self._request_id = request_id

    # -- the drain

    def drain_changed(self, draining: bool) -> None:
        """A drain has begun, or was taken back."""
        body = self._exchange.body
        if isinstance(body, Events):
            body.intercept = draining
        self._exchange.watch.arm()

    def end(self) -> None:
        """The drain's time is over: a shutdown token, in the form that this response allows."""
        exchange = self._exchange
        if exchange.over:
            return
        if exchange.tunnel is not None:
            exchange.tunnel.close("server shutdown")
        elif exchange.body is None:
            exchange.sending.drop()
            self._answer(failures.shutdown(self._token(0)), RETRY_AFTER)
            self._gateway.metrics.failed(Failure.DRAINED)
        elif isinstance(exchange.body, Events):
            exchange.sending.drop()
            token = self._token(exchange.body.reader.generated)
            if (exchange.head.get(WANTS_EVENT) or b"").lower() == b"event":
                exchange.client.write(exchange.body.end(token.event() + self.dialect.after_named))
            else:
                self._last_events(exchange.body, failures.shutdown(token))
            self._gateway.metrics.failed(Failure.DRAINED)
            exchange.close = True
            exchange.respond_over()
        # Nothing can be written into any other body; it has until the deadline to come to its end.

    def abort(self) -> None:
        """The deadline is here and the client has not taken its answer, or cannot be told."""
        if self._exchange.finished:
            return
        if not self._exchange.over:
            self._gateway.metrics.failed(Failure.DRAINED)
        self._cut()

    def drained(self) -> None:
        """The tunnel has said its goodbye."""
        self._gateway.metrics.failed(Failure.DRAINED)
        self._exchange.respond_over()

    # -- failures

    def fail(self, failure: Failure, detail: str = "") -> None:
        """End the request in the form that its client can still be told."""
        exchange = self._exchange
        if exchange.over:
            return
        draining = self._gateway.drain.draining
        if exchange.tunnel is not None:
            self._fail_tunnel(exchange.tunnel, failure)
            return
        if draining and failure is Failure.UPSTREAM_RESET and isinstance(exchange.body, Events | None):
            self.cut_by_engine()
            return
        self._gateway.metrics.failed(failure)
        exchange.sending.drop()
        exchange.close = True
        if exchange.body is None:
            if draining and failure is Failure.CONNECT:
                self._answer(failures.trouble(Failure.DRAINED.value, "", self._request_id), RETRY_AFTER)
            else:
                self._answer(failures.trouble(failure.value, detail, self._request_id))
        elif isinstance(exchange.body, Events):
            self._last_events(exchange.body, failures.trouble(failure.value, detail, self._request_id))
            exchange.respond_over()
        else:
            # A body that ends too early is the one sign that is left; a clean end would pass it off as whole.
            self._cut()

    def bad_request(self, message: str) -> None:
        """The request's body is not what its head says: what went to the engine is no request."""
        exchange = self._exchange
        if exchange.over:
            return
        exchange.sending.drop()
        exchange.close = True
        if exchange.body is None and exchange.tunnel is None:
            self._answer(failures.bad_request(400, message))
        else:
            self._cut()

    def client_gone(self) -> None:
        """Nobody waits for the answer: free the engine."""
        exchange = self._exchange
        if exchange.finished:
            return
        self._gateway.metrics.failed(Failure.CLIENT_GONE)
        exchange.status = exchange.status or 499
        self._cut()

    def cut_by_engine(self) -> None:
        """While draining, the engine ended an answer before its end: the client gets the token in its place."""
        self._count_cut()
        self.end()

    # -- inside

    def _count_cut(self) -> None:
        if self._exchange.watch.work is not None:
            self._gateway.drain.contract.cut_short(self._exchange.work_id)

    def _fail_tunnel(self, tunnel: Tunnel, failure: Failure) -> None:
        """A close frame where there can be one; any other protocol is cut."""
        lost_to_drain = self._gateway.drain.draining and failure is Failure.UPSTREAM_RESET
        self._gateway.metrics.failed(failure)
        if lost_to_drain:
            self._count_cut()
        if tunnel.goodbye(GOING_AWAY if lost_to_drain else INTERNAL_ERROR, failure.value.code):
            self._exchange.respond_over()
        else:
            self._cut()

    def _cut(self) -> None:
        exchange = self._exchange
        exchange.over = True
        exchange.sending.drop()
        exchange.client.abort()
        exchange.finish()

    def _last_events(self, body: Events, trouble: Trouble) -> None:
        self._exchange.client.write(body.end(self.dialect.events(trouble, body.reader.next_sequence)))

    def _answer(self, trouble: Trouble, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """A whole response of our own."""
        exchange = self._exchange
        exchange.status, exchange.close = trouble.status, True
        headers = (*headers, ("X-Request-Id", self._request_id))
        body = self.dialect.body(trouble)
        exchange.client.write(failures.response(trouble.status, body, close=True, headers=headers))
        exchange.respond_over()

    def _token(self, generated: int) -> Shutdown:
        self._gateway.metrics.tokens += 1
        keys = self._gateway.keys.all()
        path, request_id = self._exchange.head.path, self._request_id
        now = time.time()
        resume = sign(keys[0], request_id=request_id, path=path, generated=generated, at=now) if keys else None
        return Shutdown(self._gateway.drain.reason, request_id, generated, resume)
