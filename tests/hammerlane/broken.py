"""`tidegate gateway` with one fault: `python broken.py FAULT gateway ...`. The lane must notice each."""

import asyncio
import os
import sys
from typing import Any

from tidegate.__main__ import main
from tidegate.gateway import process
from tidegate.gateway.exchange import Exchange
from tidegate.gateway.gateway import Gateway
from tidegate.gateway.upstream import UpstreamConnection
from tidegate.gateway.upstream_request import UpstreamRequest

KEPT: list[Any] = []


def replays() -> None:
    """Whatever breaks before an answer is sent once more, also a POST."""

    def retry(self: UpstreamRequest) -> bool:
        if self in KEPT:
            return False
        KEPT.append(self)
        self._disconnect()
        self._open()
        return True

    UpstreamRequest.retry = retry  # type: ignore[method-assign]


def forgets() -> None:
    """A request whose client has gone is in flight for ever."""

    def client_gone(self: Exchange) -> None:
        self._upstream.drop()
        self._timers.cancel()

    Exchange.client_gone = client_gone  # type: ignore[method-assign]


def leaks_memory() -> None:
    """Each request leaves 64 KiB behind."""
    arrive = Exchange.arrive

    def kept(self: Exchange) -> Any:
        KEPT.append(bytearray(b"x" * 65536))
        return arrive(self)

    Exchange.arrive = kept  # type: ignore[method-assign]


def leaks_descriptors() -> None:
    """A connection to the engine that is not needed stays open."""

    def drop(self: UpstreamConnection) -> None:
        self._receiver = None
        KEPT.append(self)
        self.transport.pause_reading()

    UpstreamConnection.drop = drop  # type: ignore[method-assign]


def prints() -> None:
    """A task fails, and nobody asks it."""
    admit = Gateway.admit

    def with_task(self: Gateway, *arguments: Any) -> Any:
        KEPT[:] = [asyncio.get_running_loop().create_task(fails())]
        return admit(self, *arguments)

    Gateway.admit = with_task  # type: ignore[method-assign]


def dies() -> None:
    """The process ends in the middle of it all."""
    arrive = Exchange.arrive

    def counted(self: Exchange) -> Any:
        KEPT.append(None)
        if len(KEPT) > 20:
            os._exit(9)
        return arrive(self)

    Exchange.arrive = counted  # type: ignore[method-assign]


def exits_badly() -> None:
    """Its exit code says that it has failed."""
    process.end = fails  # type: ignore[assignment]


async def fails(*_: Any) -> None:
    raise RuntimeError("nobody expects this")


def sound() -> None:
    """No fault."""


if __name__ == "__main__":
    globals()[sys.argv.pop(1)]()
    sys.exit(main())
