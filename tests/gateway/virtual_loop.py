"""An event loop with sockets whose clock jumps to the next timer as soon as nothing else can happen.

Gateway, engines and clients of a test live in one loop and talk over Unix sockets: what one of them has sent can be
read by the other when `send` returns. So a look at all sockets that finds nothing means that nothing is under way, and
everybody waits for time to pass. A port is a number that only this process knows.

What TCP alone does (resets, buffers that the kernel sizes, connections that nobody accepts) is tested on real ports.
"""

import asyncio
import itertools
import os
import selectors
import socket
import sys
from typing import Any

BOOTED = 1_000.0
"""The loop's time at its start; a machine has been up for a while too."""
EPOCH = 1_767_225_600.0
"""Wall clock at loop time 0: 2026-01-01T00:00:00Z."""
_ports = itertools.count(1)


class NothingToWaitForError(RuntimeError):
    """Every task waits for something that nobody will ever send."""


class _Selector(selectors.DefaultSelector):
    """Instead of waiting it moves the clock of its loop."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise NothingToWaitForError("no timer is set, and no callback or socket is ready")
            # Past the timer, never short of it: asyncio fires what is due *before* now.
            self.loop.jump(max(timeout, 0.0) + 1e-9)
        return ready


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


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time is what the timers say. Threads and other processes are not waited for."""

    def __init__(self) -> None:
        self._virtual = BOOTED
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)
        # A timer must never run before its time: whoever looks at the clock then would wait again, for ever.
        self._clock_resolution = 0.0

    def time(self) -> float:
        return self._virtual

    def now(self) -> float:
        """The wall clock that belongs to the loop's time, in Unix seconds."""
        return EPOCH + self._virtual

    def jump(self, seconds: float) -> None:
        self._virtual += seconds

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        keep = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        listening = _Listening(port or next(_ports))
        return await self.create_unix_server(
            protocol_factory, sock=listening, backlog=options.get("backlog", 100), **keep
        )

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        return await self.create_unix_connection(protocol_factory, path=_name(port))
