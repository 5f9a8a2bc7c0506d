"""An event loop with sockets whose clock jumps to the next timer as soon as nothing else can happen.

Gateway, engines and clients of a test live in one loop and talk over Unix sockets: what one of them has sent can be
read by the other when `send` returns. So a look at all sockets that finds nothing means that nothing is under way, and
everybody waits for time to pass. A port is a number that only this process knows.

What TCP alone does (resets, buffers that the kernel sizes, connections that nobody accepts) is tested on real ports.
"""

import itertools
import os
import selectors
import socket
import sys
from typing import Any

from tidegate.preview import virtual_time

BOOTED = 1_000.0
"""The loop's time at its start; a machine has been up for a while too."""
_ports = itertools.count(1)


class _Selector(virtual_time.Jumping, selectors.DefaultSelector):
    """Lets time pass when a look at all sockets finds nothing."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return super().select(0) or self.pass_time(timeout)


class _Listening(socket.socket):
    """A listening Unix socket that has a port."""

    def __init__(self, port: int) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self.port = port
        self.bind(_name(port))

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


def _name(port: int) -> bytes:
    return b"\0tidegate-%d-%d" % (os.getpid(), port)


class VirtualLoop(virtual_time.VirtualLoop):
    """Time is what the timers say. Threads and other processes are not waited for."""

    SELECTOR = _Selector
    START = BOOTED

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        keep = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        listening = _Listening(port or next(_ports))
        return await self.create_unix_server(
            protocol_factory, sock=listening, backlog=options.get("backlog", 100), **keep
        )

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self.create_unix_connection(protocol_factory, path=_name(port))
