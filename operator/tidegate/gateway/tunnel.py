"""A connection after it has switched protocols: bytes both ways, and a close frame where it is a WebSocket."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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
        self._half_closed = False

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
        if self._half_closed:
            self._exchange.ending.client_gone()
            return
        self._half_closed = True
        if not self._upstream.transport.is_closing():
            self._upstream.transport.write_eof()

    def upstream_eof(self) -> bool:
        """The engine is done; whether the way to it stays open."""
        if self._half_closed:
            self._exchange.respond_over()
            return False
        self._half_closed = True
        self._exchange.client.write_eof()
        return True

    def close(self, reason: str) -> None:
        """End it at the next moment between two frames of the engine; another protocol just ends."""
        self._closing = reason
        if self._frames is None or self._frames.between:
            self._close_now()

    def _close_now(self) -> None:
        if self._frames is not None:
            self._exchange.client.write(close_frame(GOING_AWAY, self._closing))
        self._exchange.ending.drained()
