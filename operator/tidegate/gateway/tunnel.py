"""A connection after a protocol switch: bytes from the engine, and a close frame if it is a WebSocket."""

from __future__ import annotations

from tidegate.gateway.client import Client
from tidegate.gateway.websocket import GOING_AWAY, Frames, close_frame


class Tunnel:
    """The connection between client and engine after a response with status 101."""

    def __init__(self, client: Client, *, websocket: bool) -> None:
        self._client = client
        self._frames = Frames() if websocket else None
        self._close_reason = ""
        self._client_done = self._engine_done = False

    @property
    def half_closed(self) -> bool:
        """Whether either side has closed its half; then the loss of a connection is not a failure."""
        return self._client_done or self._engine_done

    @property
    def has_frames(self) -> bool:
        """Whether it is a WebSocket, which can be closed between two frames; any other protocol is only cut."""
        return self._frames is not None

    @property
    def needs_close_frame(self) -> bool:
        """Whether the protocol has close frames and the engine has not sent one."""
        return self._frames is not None and not self._frames.closed

    @property
    def closed_by_engine(self) -> bool:
        """Whether the engine has sent its own close frame: nothing that matters can follow."""
        return self._frames is not None and self._frames.closed and self._frames.between

    def from_upstream(self, data: bytes) -> bool:
        """Forward the engine's next bytes; True: a close frame followed them, and the tunnel is over."""
        whole = len(data) if self._frames is None else self._frames.feed(data)
        if self._close_reason and whole:
            self._client.write(data[:whole])
            self.close_now(GOING_AWAY, self._close_reason)
            return True
        self._client.write(data)
        return False

    def client_eof(self) -> bool:
        """The client has closed its half; returns whether both halves are closed now."""
        self._client_done = True
        return self._engine_done

    def upstream_eof(self) -> bool:
        """The engine has closed its half; pass that on, and return whether both halves are closed now."""
        self._engine_done = True
        if not self._client_done:
            self._client.write_eof()
        return self._client_done

    def close(self, reason: str) -> bool:
        """End it, a WebSocket at the next boundary between two frames; returns whether it is over now."""
        self._close_reason = reason
        if self._frames is not None and not self._frames.between:
            return False
        self.close_now(GOING_AWAY, reason)
        return True

    def close_now(self, code: int, reason: str) -> bool:
        """Send a close frame; False: not possible at this moment, or in this protocol."""
        if self._frames is None or not self._frames.between:
            return False
        if not self._frames.closed:
            self._client.write(close_frame(code, reason))
        return True
