"""The bytes that the engine has sent before a body, and the heads in them."""

from __future__ import annotations

from tidegate.gateway.heads import END, ResponseHead, check_partial_response, parse_response


class ResponseHeads:
    """The input buffer of a response, from which heads are read one by one: interim ones, then the final one."""

    def __init__(self, *, bodiless: bool = False) -> None:
        self._bodiless = bodiless
        """Whether the request was HEAD."""
        self._data = bytearray()
        self._checked = 0
        """So many bytes are the beginning of a valid head, and contain no end of it."""

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes) -> None:
        """Append what the engine has sent."""
        self._data += data

    def take(self) -> bytes:
        """Remove and return everything that is left: part of a body, or another protocol."""
        data = bytes(self._data)
        self._clear(len(data))
        return data

    def next_head(self) -> ResponseHead | None:
        """Remove and return the next head; None if it is not complete. Raises HeadError, also if it cannot be valid."""
        data = self._data
        end = data.find(END, max(self._checked - len(END) + 1, 0))
        if end < 0:
            check_partial_response(data, self._checked)
            self._checked = len(data)
            return None
        raw = bytes(data[: end + len(END)])
        self._clear(len(raw))
        return parse_response(raw, bodiless=self._bodiless)

    def _clear(self, size: int) -> None:
        del self._data[:size]
        self._checked = 0
