"""As much of RFC 6455 as a test needs: the handshake's answer, and small frames, which are never split."""

import asyncio
import base64
import hashlib
import os

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
GOING_AWAY = 1001
_FINAL, _MASKED = 0x80, 0x80
_LONGEST = 125
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class FrameError(ValueError):
    """What came is no frame that either end here would send: its start is not where it should be."""


def accept(key: str) -> str:
    """`Sec-WebSocket-Accept` for a client's `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def frame(opcode: int, payload: bytes = b"", *, masked: bool = False) -> bytes:
    """One whole frame; clients mask theirs."""
    if len(payload) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} bytes")
    head = bytes([_FINAL | opcode, len(payload) | (_MASKED if masked else 0)])
    if not masked:
        return head + payload
    mask = os.urandom(4)
    return head + mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))


async def read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next frame's opcode and payload. Raises IncompleteReadError, ConnectionError, FrameError."""
    first, second = await reader.readexactly(2)
    length = second & ~_MASKED
    if first & 0xF0 != _FINAL or first & 0x0F not in (TEXT, CLOSE, PING, PONG) or length > _LONGEST:
        raise FrameError(f"a frame that begins {first:02x} {second:02x}")
    mask = await reader.readexactly(4) if second & _MASKED else bytes(4)
    payload = await reader.readexactly(length)
    return first & 0x0F, bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))
