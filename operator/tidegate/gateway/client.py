"""The client's connection, as seen by the request that is under way on it."""

from __future__ import annotations

from typing import Protocol


class Client(Protocol):
    """`ClientConnection` implements it; whatever answers a request needs no more than this."""

    @property
    def paused(self) -> bool:
        """Whether the client's socket takes no more at the moment."""

    @property
    def held(self) -> bool:
        """Whether the client is not read from at the moment."""

    @property
    def last(self) -> bool:
        """Whether no other request can follow on this connection."""

    @property
    def sent(self) -> int:
        """Bytes sent on this connection so far."""

    def write(self, data: bytes) -> None: ...

    def write_eof(self) -> None: ...

    def hold_reading(self, hold: bool) -> None:
        """Stop reading from the client while the engine takes no more, or read on."""

    def switched(self) -> None:
        """The protocol is another one from now on: what the client sends is no HTTP request."""

    def exchange_over(self, *, close: bool) -> None:
        """The response has been sent; go on with the next request, or close."""

    def abort(self) -> None:
        """Cut the connection."""
