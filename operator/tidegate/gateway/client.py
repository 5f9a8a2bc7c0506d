"""The client's connection as its current request sees it."""

from __future__ import annotations

from typing import Protocol


class Client(Protocol):
    """Implemented by `ClientConnection`; the parts that answer a request use nothing else of it."""

    @property
    def paused(self) -> bool:
        """Whether the client's socket is full at the moment."""

    @property
    def held(self) -> bool:
        """Whether reading from the client is paused at the moment."""

    @property
    def last(self) -> bool:
        """Whether no other request can follow on this connection."""

    @property
    def sent(self) -> int:
        """Bytes sent on this connection so far."""

    def write(self, data: bytes) -> None:
        """Send data; it is ignored when the connection is closing."""

    def write_eof(self) -> None:
        """Close our half of the connection."""

    def end_by_close(self) -> None:
        """From here on the end of the connection is the end of the message: whatever cuts it must not send FIN."""

    def hold_reading(self, hold: bool) -> None:
        """Pause reading from the client because the engine is full, or resume."""

    def switched(self) -> None:
        """The protocol has switched: what the client sends from now on is not HTTP."""

    def exchange_over(self, *, close: bool) -> None:
        """The response has been sent; go on with the next request, or close."""

    def abort(self) -> None:
        """Cut the connection."""
