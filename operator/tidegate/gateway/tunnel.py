"""A connection after it has switched protocols: bytes both ways, and a close frame where it is a WebSocket."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tidegate.gateway.failures import Failure
from tidegate.gateway.upstream import UpstreamConnection
from tidegate.gateway.websocket import GOING_AWAY, Frames, close_frame

if TYPE_CHECKING:
    from tidegate.gateway.exchange import Exchange


class Tunnel:
    """Both directions of one exchange whose engine answered 101."""

    def __init__(self, exchange: Exchange, upstream: UpstreamConnection, *, websocket: bool) -> None:
        self._exchange = exchange
        self._upstream = upstream
        self._frames = Frames() if websocket else None
        self._closing = ""
        self._client_done = self._engine_done = False

    def from_client(self, data: bytes) -> None:
        if not self._upstream.transport.is_closing():
            self._upstream.transport.write(data)

    def from_upstream(self, data: bytes) -> None:
        watch = self._exchange.watch
        watch.last = time.monotonic()
        if watch.work is not None:
            watch.work.progressed = watch.last
        whole = len(data) if self._frames is None else self._frames.feed(data)
        if not self._closing:
            self._exchange.client.write(data)
        elif whole:
            self._exchange.client.write(data[:whole])
            self._close_now()
        else:
            self._exchange.client.write(data)

    def client_eof(self) -> None:
        """One half is closed; the engine hears of it and may go on sending."""
        if self._engine_done:
            self._exchange.respond_over()
            return
        self._client_done = True
        if not self._upstream.transport.is_closing():
            self._upstream.transport.write_eof()

    def upstream_eof(self) -> bool:
        """The engine is done; whether the way to it stays open."""
        if self._client_done:
            self._exchange.respond_over()
            return False
        if self._exchange.watch.draining and self._frames is not None and not self._frames.closed:
            # A process that ends without a goodbye sends the same.
            self.upstream_lost()
            return False
        self._engine_done = True
        self._exchange.client.write_eof()
        self._exchange.watch.engine_eof()
        return True

    def upstream_lost(self) -> None:
        """The connection is cut; once either side has closed its half that takes nothing from anybody."""
        if self._client_done or self._engine_done:
            self._exchange.respond_over()
        else:
            self._exchange.ending.fail(Failure.UPSTREAM_RESET)

    def close(self, reason: str) -> None:
        """End it at the next moment between two frames of the engine; another protocol just ends."""
        self._closing = reason
        if self._frames is None or self._frames.between:
            self._close_now()

    def goodbye(self, code: int, reason: str) -> bool:
        """Write a close frame as the last of it; False: at this moment, or in this protocol, there can be none."""
        if self._frames is None or not self._frames.between:
            return False
        if not self._frames.closed:
            self._exchange.client.write(close_frame(code, reason))
        return True

    def _close_now(self) -> None:
        self.goodbye(GOING_AWAY, self._closing)
        self._exchange.ending.drained()
