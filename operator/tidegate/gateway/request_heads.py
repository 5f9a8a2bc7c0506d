"""The unread bytes that a client has sent, and the next request's head in them."""

from __future__ import annotations

from tidegate.gateway.heads import END, MAX_HEAD_BYTES, HeadError, RequestHead, parse_request

MAX_EMPTY_LINES = 8
"""Skipped before a request; RFC 9112, section 2.2, asks for at least one."""
_EMPTY_LINE = b"\r\n"
_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class RequestHeads:
    """The input buffer of a connection, from which heads are read one by one."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0
        """So many bytes contain no end of a head."""
        self._empty_lines = 0

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Append what the client has sent."""
        self._data += data

    def take(self) -> bytes:
        """Remove and return everything that is left: part of a body, or another protocol."""
        data = bytes(self._data)
        self._remove(len(data))
        return data

    def next_head(self) -> RequestHead | None:
        """Remove and return the next head; None if it is not complete. Raises HeadError."""
        self._skip_empty_lines()
        end = self._data.find(END, self._searched)
        if end < 0:
            return None
        raw = bytes(self._data[: end + len(END)])
        self._remove(len(raw))
        self._empty_lines = 0
        return parse_request(raw)

    def check_partial(self) -> None:
        """Raise HeadError if the incomplete head cannot become valid, whatever follows."""
        data = self._data
        # A single CR may be half of an empty line.
        if data and data[0] not in _TOKEN and data != b"\r":
            raise HeadError(400, "this is not plain-text HTTP/1.1; terminate TLS in a mesh or proxy in front")
        if data.find(b"\n\n", self._searched) >= 0:
            raise HeadError(400, "the head contains a bare LF")
        if len(data) > MAX_HEAD_BYTES:
            raise HeadError(431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes")
        # An end may have begun in the last bytes.
        self._searched = max(len(data) - len(END) + 1, 0)

    def _skip_empty_lines(self) -> None:
        at = 0
        while self._data.startswith(_EMPTY_LINE, at) and self._empty_lines <= MAX_EMPTY_LINES:
            at += len(_EMPTY_LINE)
            self._empty_lines += 1
        if at:
            self._remove(at)
        if self._empty_lines > MAX_EMPTY_LINES:
            raise HeadError(400, f"more than {MAX_EMPTY_LINES} empty lines before a request")

    def _remove(self, size: int) -> None:
        del self._data[:size]
        self._searched = 0
