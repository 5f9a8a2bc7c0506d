"""When something is due for one request although nothing happens: one timer each, moved only when it fires."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from tidegate.gateway.bodies import Events
from tidegate.gateway.draining import Drain
from tidegate.gateway.failures import Failure
from tidegate.gateway.terms import Work
from tidegate.gateway.timeouts import Timeouts

if TYPE_CHECKING:
    from tidegate.gateway.exchange import Exchange

BODY_SECONDS = 30.0
"""How long a client may pause within the body of its request."""
HALF_CLOSED_SECONDS = 2.0
"""A client that has closed its half and is sent nothing for so long is gone: most that close one half close both."""
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

    def client_eof(self) -> None:
        self._eof_at = time.monotonic()
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

    def _moments(self) -> list[tuple[float, Failure | None]]:
        """What comes when; None is a comment."""
        exchange, timeouts = self._exchange, self.timeouts
        moments: list[tuple[float, Failure | None]] = []
        if timeouts.total and not exchange.over:
            moments.append((self.arrived + timeouts.total, Failure.TOTAL))
        if timeouts.idle and self._begun and exchange.tunnel is None:
            waits_for_client = exchange.over or exchange.client.paused
            moments.append((self.last + timeouts.idle, Failure.CLIENT_GONE if waits_for_client else Failure.IDLE))
        if not exchange.request_done and not self._begun and not exchange.client.held:
            moments.append((self.last + BODY_SECONDS, Failure.CLIENT_GONE))
        if self._eof_at < math.inf and not exchange.over and not exchange.client.paused:
            moments.append((max(self._eof_at, self.last) + HALF_CLOSED_SECONDS, Failure.CLIENT_GONE))
        if self._drain.draining and isinstance(exchange.body, Events) and not exchange.over:
            moments.append((max(self.last, self._commented) + KEEP_ALIVE_SECONDS, None))
        return moments

    def _fire(self) -> None:
        self._timer = None
        now = time.monotonic()
        due = min(self._moments(), key=lambda moment: moment[0], default=(math.inf, None))
        if due[0] > now:
            self.arm()
        elif due[1] is None:
            self._comment(now)
        elif due[1] is Failure.CLIENT_GONE:
            self._exchange.ending.client_gone()
        else:
            seconds = self.timeouts.total if due[1] is Failure.TOTAL else self.timeouts.idle
            self._exchange.ending.fail(due[1], f"{seconds:g} s")

    def _comment(self, now: float) -> None:
        body, client = self._exchange.body, self._exchange.client
        self._commented = now
        if isinstance(body, Events) and not client.paused:
            client.write(body.insert(KEEP_ALIVE_EVENT))
        self.arm()
