"""What is due for a request when nothing happens: one timer per request, rescheduled only when it fires."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Protocol

from tidegate.gateway.client import Client
from tidegate.gateway.failures import Failure
from tidegate.gateway.response import Response
from tidegate.gateway.shared import Shared
from tidegate.gateway.timeouts import Timeouts
from tidegate.gateway.upstream_request import UpstreamRequest

BODY_SECONDS = 30.0
"""How long a client may pause within the body of its request."""
HALF_CLOSED_SECONDS = 2.0
"""A half-closed client that is sent nothing for so long is considered gone: most close both halves at once."""
ENGINE_DONE_SECONDS = 5.0
"""How long a tunnel stays open after the engine has closed its half."""
KEEP_ALIVE_SECONDS = 10.0
"""How often a silent stream gets a comment while draining, so that no proxy on the way considers it dead."""


class Timed(Protocol):
    """The request that the timers belong to."""

    @property
    def over(self) -> bool:
        """Whether no more of the response will come."""

    def client_gone(self) -> None:
        """The client has left, or has stalled for too long."""

    def fail(self, failure: Failure, detail: str = "") -> None:
        """The engine's time is up."""

    def response_over(self) -> None:
        """A tunnel has been half closed for too long."""


class RequestTimers:
    """The timers of one request. Chunks of the response touch no timer: `Response.last` is read when one fires."""

    def __init__(
        self,
        request: Timed,
        shared: Shared,
        timeouts: Timeouts,
        *,
        client: Client,
        response: Response,
        upstream: UpstreamRequest,
    ) -> None:
        self._request = request
        self._client = client
        self._response = response
        self._upstream = upstream
        self._timeouts = timeouts
        self._drain = shared.drain
        self._now = shared.clock.monotonic
        self._arrived = self._last = self._now()
        self._client_eof_at = math.inf
        self._engine_eof_at = math.inf
        self._commented_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf

    def touch(self) -> None:
        """There was activity on the client's side."""
        self._last = self._now()

    def read_again(self) -> None:
        """Reading from the client has resumed: the time for its body restarts."""
        self._last = self._now()
        self.arm()

    def client_eof(self) -> None:
        """The client has closed its half."""
        self._client_eof_at = self._now()
        self.arm()

    def engine_eof(self) -> None:
        """The engine has closed its half of a tunnel."""
        self._engine_eof_at = self._now()
        self.arm()

    def cancel(self) -> None:
        """The request is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def arm(self) -> None:
        """Reschedule; to be called when anything but the time of the latest bytes has changed."""
        due = min((moment for moment, _ in self._moments()), default=math.inf)
        if self._timer is not None and self._due <= due:
            return
        self.cancel()
        if due < math.inf:
            self._due = due
            delay = max(due - self._now(), 0.001)
            self._timer = asyncio.get_running_loop().call_later(delay, self._fire)

    # -- inside

    def _moments(self) -> list[tuple[float, Callable[[], None]]]:
        """What is due, and when."""
        request, response, client, timeouts = self._request, self._response, self._client, self._timeouts
        over, last, gone = request.over, max(self._last, response.last), request.client_gone
        moments: list[tuple[float, Callable[[], None]]] = []
        if timeouts.total and not over:
            moments.append((self._arrived + timeouts.total, self._took_too_long))
        waits_for_client = over or client.paused
        begun = response.begun if waits_for_client else response.answering
        if timeouts.idle and begun and (response.tunnel is None or over):
            moments.append((last + timeouts.idle, gone if waits_for_client else self._fell_silent))
        if not self._upstream.done and not response.answering and not client.held:
            moments.append((last + BODY_SECONDS, gone))
        if self._client_eof_at < math.inf and not over and not client.paused:
            moments.append((max(self._client_eof_at, last) + HALF_CLOSED_SECONDS, gone))
        if self._engine_eof_at < math.inf and not over:
            moments.append((self._engine_eof_at + ENGINE_DONE_SECONDS, request.response_over))
        if self._drain.draining and response.events is not None and not over:
            moments.append((max(last, self._commented_at) + KEEP_ALIVE_SECONDS, self._comment))
        return moments

    def _fire(self) -> None:
        self._timer = None
        moments = self._moments()
        if not moments:
            return
        at, act = min(moments, key=lambda moment: moment[0])
        if at > self._now():
            self.arm()
        else:
            act()

    def _took_too_long(self) -> None:
        self._request.fail(Failure.TOTAL, f"{self._timeouts.total:g} s")

    def _fell_silent(self) -> None:
        self._request.fail(Failure.IDLE, f"{self._timeouts.idle:g} s")

    def _comment(self) -> None:
        self._commented_at = self._now()
        if not self._client.paused:
            self._response.keep_alive()
        self.arm()
