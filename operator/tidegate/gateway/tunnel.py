"""A connection after it has switched protocols: the engine's direction, and a close frame where it is a WebSocket."""

from __future__ import annotations

from tidegate.gateway.client import Client
from tidegate.gateway.websocket import GOING_AWAY, Frames, close_frame


class Tunnel:
    """What is under way between client and engine after a response with status 101."""

    def __init__(self, client: Client, *, websocket: bool) -> None:
        self._client = client
        self._frames = Frames() if websocket else None
        self._close_reason = ""
        self._client_done = self._engine_done = False

    @property
    def half_closed(self) -> bool:
        """Whether either side has closed its half; then the loss of a connection takes nothing from anybody."""
        return self._client_done or self._engine_done

    @property
    def needs_close_frame(self) -> bool:
        """Whether its protocol has close frames, and the engine has sent none."""
        return self._frames is not None and not self._frames.closed

    def from_upstream(self, data: bytes) -> bool:
        """Send the engine's next bytes on; True: a close frame of ours came behind them, and the tunnel is over."""
        whole = len(data) if self._frames is None else self._frames.feed(data)
        if self._close_reason and whole:
            self._client.write(data[:whole])
            self.close_now(GOING_AWAY, self._close_reason)
            return True
        self._client.write(data)
        return False

    def client_eof(self) -> bool:
        """The client has closed its half; True: both halves are closed now."""
        self._client_done = True
        return self._engine_done

    def upstream_eof(self) -> bool:
        """The engine has closed its half, and the client is told so; True: both halves are closed now."""
        self._engine_done = True
        if not self._client_done:
            self._client.write_eof()
        return self._client_done

    def close(self, reason: str) -> bool:
        """End it, a WebSocket at the next boundary between two frames of the engine; True: it is over now."""
        self._close_reason = reason
        if self._frames is not None and not self._frames.between:
            return False
        self.close_now(GOING_AWAY, reason)
        return True

    def close_now(self, code: int, reason: str) -> bool:
        """Write a close frame as the last of it; False: none fits at this moment, or in this protocol."""
        if self._frames is None or not self._frames.between:
            return False
        if not self._frames.closed:
            self._client.write(close_frame(code, reason))
        return True
