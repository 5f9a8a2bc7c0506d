"""When something is due for one request although nothing happens: one timer each, moved only when it fires."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.contract.terms import Work
from tidegate.gateway.bodies import Events
from tidegate.gateway.draining import Drain
from tidegate.gateway.failures import Failure
from tidegate.gateway.timeouts import Timeouts

if TYPE_CHECKING:
    from tidegate.gateway.exchange import Exchange

BODY_SECONDS = 30.0
"""How long a client may pause within the body of its request."""
HALF_CLOSED_SECONDS = 2.0
"""A client that has closed its half and is sent nothing for so long is gone: most that close one half close both."""
ENGINE_DONE_SECONDS = 5.0
"""How long the client of a tunnel may stay when the engine has closed its half."""
KEEP_ALIVE_SECONDS = 10.0
"""How often a quiet stream gets a comment while draining, so that nobody between takes it for dead."""
KEEP_ALIVE_EVENT = b": keep-alive\n\n"


class Watch:
    """The times of one exchange. Chunks only note `last`; no timer is touched for them."""

    def __init__(self, exchange: Exchange, timeouts: Timeouts, drain: Drain) -> None:
        self.timeouts = timeouts
        self.work: Work | None = None
        self.arrived = self.last = time.monotonic()
        self._exchange = exchange
        self._drain = drain
        self._begun = False
        self._eof_at = math.inf
        self._engine_eof_at = math.inf
        self._commented = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf

    def begun(self, *, streaming: bool, opaque: bool = False) -> None:
        """The head of the response is here; `opaque`: nothing can be written into its body."""
        self._begun = True
        self.last = time.monotonic()
        if self.work is not None:
            self.work.queued = False
            self.work.streaming = streaming
            self.work.opaque = opaque
            self.work.progressed = self.last
        self.arm()

    @property
    def draining(self) -> bool:
        return self._drain.draining

    def client_eof(self) -> None:
        self._eof_at = time.monotonic()
        self.arm()

    def engine_eof(self) -> None:
        """The engine has closed its half of a tunnel."""
        self._engine_eof_at = time.monotonic()
        self.arm()

    def read_again(self) -> None:
        """The client is read from again: its pause begins now."""
        self.last = time.monotonic()
        self.arm()

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self) -> None:
        """Look again at when something is due; to be called when more than `last` has changed."""
        due = min((moment for moment, _ in self._moments()), default=math.inf)
        if self._timer is not None and self._due <= due:
            return
        self.cancel()
        if due < math.inf:
            self._due = due
            delay = max(due - time.monotonic(), 0.001)
            self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    def _moments(self) -> list[tuple[float, Callable[[], None]]]:
        """What is done when."""
        exchange, timeouts, gone = self._exchange, self.timeouts, self._exchange.ending.client_gone
        moments: list[tuple[float, Callable[[], None]]] = []
        if timeouts.total and not exchange.over:
            moments.append((self.arrived + timeouts.total, self._took_too_long))
        if timeouts.idle and self._begun and (exchange.tunnel is None or exchange.over):
            waits_for_client = exchange.over or exchange.client.paused
            moments.append((self.last + timeouts.idle, gone if waits_for_client else self._fell_silent))
        if not exchange.request_done and not self._begun and not exchange.client.held:
            moments.append((self.last + BODY_SECONDS, gone))
        if self._eof_at < math.inf and not exchange.over and not exchange.client.paused:
            moments.append((max(self._eof_at, self.last) + HALF_CLOSED_SECONDS, gone))
        if self._engine_eof_at < math.inf and not exchange.over:
            moments.append((self._engine_eof_at + ENGINE_DONE_SECONDS, exchange.respond_over))
        if self._drain.draining and isinstance(exchange.body, Events) and not exchange.over:
            moments.append((max(self.last, self._commented) + KEEP_ALIVE_SECONDS, self._comment))
        return moments

    def _fire(self) -> None:
        self._timer = None
        moments = self._moments()
        if not moments:
            return
        at, act = min(moments, key=lambda moment: moment[0])
        if at > time.monotonic():
            self.arm()
        else:
            act()

    def _took_too_long(self) -> None:
        self._exchange.ending.fail(Failure.TOTAL, f"{self.timeouts.total:g} s")

    def _fell_silent(self) -> None:
        self._exchange.ending.fail(Failure.IDLE, f"{self.timeouts.idle:g} s")

    def _comment(self) -> None:
        body, client = self._exchange.body, self._exchange.client
        self._commented = time.monotonic()
        if isinstance(body, Events) and not client.paused:
            client.write(body.insert(KEEP_ALIVE_EVENT))
        self.arm()
