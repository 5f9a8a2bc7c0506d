"""Follows WebSocket frames, to insert a close frame between two of them (RFC 6455, section 5)."""

from __future__ import annotations

GOING_AWAY = 1001
INTERNAL_ERROR = 1011
_CLOSE = 0x8
_LENGTHS = {126: 2, 127: 8}


class Frames:
    """Follows the frames of one direction, in whatever pieces they arrive."""

    def __init__(self) -> None:
        self.closed = False
        """Whether a close frame has passed: no other may follow it (section 5.5.1)."""
        self._head = b""
        self._left = 0

    @property
    def between(self) -> bool:
        """Whether everything so far ends with a complete frame."""
        return not self._head and not self._left

    def feed(self, data: bytes) -> int:
        """Take the next piece; returns the position in it after the last frame that is complete; 0 if there is none."""
        at = whole = 0
        while at < len(data):
            if self._left:
                used = min(self._left, len(data) - at)
                self._left -= used
                at += used
            else:
                self._head += data[at : at + 1]
                at += 1
                size = self._size()
                if size is not None:
                    self.closed = self.closed or self._head[0] & 0x0F == _CLOSE
                    self._head, self._left = b"", size
            if self.between:
                whole = at
        return whole

    def _size(self) -> int | None:
        """Bytes after the head of this frame, once the head is complete."""
        if len(self._head) < 2:
            return None
        short = self._head[1] & 0x7F
        extra = _LENGTHS.get(short, 0)
        if len(self._head) < 2 + extra:
            return None
        length = int.from_bytes(self._head[2 : 2 + extra], "big") if extra else short
        return length + (4 if self._head[1] & 0x80 else 0)


def close_frame(code: int, reason: str) -> bytes:
    """A server's close frame; `reason` is short."""
    payload = code.to_bytes(2, "big") + reason.encode()
    return bytes([0x88, len(payload)]) + payload
