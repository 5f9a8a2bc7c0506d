"""Finds the end of a body and of the chunks in it, without changing anything."""

from __future__ import annotations

import re

MAX_TRAILER_BYTES = 8 * 1024
_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})(?:[ \t]*;[^\x00-\x08\x0a-\x1f\x7f]{0,200})?\r\n")
_SIZE_BYTES = 256
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\Z")
LAST_CHUNK = b"0\r\n\r\n"


class FramingError(ValueError):
    """The framing of a body is invalid, or does not match its head."""


def chunk(payload: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


class Chunks:
    """Follows a chunked body, in whatever pieces it arrives (RFC 9112, section 7.1)."""

    __slots__ = ("_gap", "_left", "_line", "_trailers", "between", "done", "excess")

    def __init__(self) -> None:
        self.between = True
        """Whether everything so far ends with a complete chunk."""
        self.done = False
        self.excess = 0
        """How many bytes of the last piece come after the end of the body."""
        self._left = 0
        self._gap = 0
        self._line = b""
        self._trailers = -1

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Take the next piece; returns the ranges in it that are payload. Raises FramingError."""
        if self.between:
            # Nearly always: exactly one chunk, as the engine wrote it.
            match = _SIZE.match(data)
            if match is not None:
                start = match.end()
                end = start + int(match[1], 16)
                if start < end == len(data) - 2 and data.endswith(b"\r\n"):
                    return [(start, end)]
        spans = self._follow(data)
        self.between = not (self._left or self._gap or self._line) and self._trailers < 0
        return spans

    def _follow(self, data: bytes) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = []
        at, size = 0, len(data)
        while at < size:
            if self._left:
                end = min(at + self._left, size)
                spans.append((at, end))
                self._left -= end - at
                at = end
                if not self._left:
                    if data[at : at + 2] == b"\r\n":
                        at += 2
                    else:
                        self._gap = 2
            elif self._gap:
                if data[at] != b"\n\r"[self._gap - 1]:
                    raise FramingError("a chunk is longer than its size")
                self._gap -= 1
                at += 1
            elif self._trailers >= 0:
                at = self._trailer(data, at)
                if self.done:
                    self.excess = size - at
                    break
            else:
                if not self._line:
                    at = _whole_chunks(data, at, spans)
                if at < size:
                    at = self._begin(data, at)
        return spans

    def _begin(self, data: bytes, at: int) -> int:
        if self._line:
            kept = len(self._line)
            match = _SIZE.match(self._line + data[at : at + _SIZE_BYTES])
            end = 0 if match is None else at + match.end() - kept
        else:
            kept = 0
            match = _SIZE.match(data, at)
            end = 0 if match is None else match.end()
        if match is None:
            line = self._line + data[at:]
            if line.find(b"\n") >= 0 or len(line) > _SIZE_BYTES or not _could_be_size(line):
                raise FramingError("the size of a chunk is not a hexadecimal number")
            self._line = line
            return len(data)
        self._line = b""
        self._left = int(match[1], 16)
        if not self._left:
            self._trailers = 0
        return end

    def _trailer(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        piece = data[at:] if end < 0 else data[at : end + 1]
        self._line += piece
        self._trailers += len(piece)
        if self._trailers > MAX_TRAILER_BYTES:
            raise FramingError("the trailer is too long")
        if end < 0:
            return len(data)
        line, self._line = self._line, b""
        if line == b"\r\n":
            self.done = True
        elif not line.endswith(b"\r\n") or not _TRAILER.fullmatch(line[:-2]):
            raise FramingError("a line of the trailer is not of the form NAME: VALUE")
        return end + 1


def _whole_chunks(data: bytes, at: int, spans: list[tuple[int, int]]) -> int:
    """Add the payloads of the whole chunks that begin at `at`, and return where they end; a read may have thousands."""
    size_at, add = _SIZE.match, spans.append
    while (match := size_at(data, at)) is not None:
        start = match.end()
        end = start + int(match[1], 16)
        if start == end or data[end : end + 2] != b"\r\n":
            break
        add((start, end))
        at = end + 2
    return at


def _could_be_size(line: bytes) -> bool:
    """Whether it may become a size line with more bytes; invalid data is refused before it fills a buffer."""
    text = line.removesuffix(b"\r").rstrip(b" \t") + b"\r\n"
    return _SIZE.fullmatch(text) is not None


class Counted:
    """A body of known length."""

    __slots__ = ("_left", "done", "excess")

    def __init__(self, length: int) -> None:
        self._left = length
        self.done = not length
        self.excess = 0

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Take the next piece; returns the ranges in it that are payload."""
        used = min(len(data), self._left)
        self._left -= used
        self.excess = len(data) - used
        self.done = not self._left
        return [(0, used)] if used else []
