"""An event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import selectors
from typing import Any

EPOCH = 1_767_225_600.0
"""Wall clock at loop time 0: 2026-01-01T00:00:00Z."""


class NothingToWaitForError(RuntimeError):
    """Every task waits for an event that nobody will ever send."""


class _JumpingSelector(selectors.SelectSelector):
    """Reports no file as ready; instead of sleeping it moves the clock of its loop."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise NothingToWaitForError("no timer is set and no callback is ready")
        # Past the timer, never short of it: asyncio fires what is due *before* now.
        self.loop.jump(timeout + 1e-9)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time is what the timers say; real sockets do not work in it, and nothing in the simulation has any."""

    def __init__(self) -> None:
        self._virtual = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)
        # A timer must never run before its time: whoever looks at the clock then would wait again, for ever.
        self._clock_resolution = 0.0

    def time(self) -> float:
        """Seconds since the loop began."""
        return self._virtual

    def now(self) -> float:
        """The wall clock that belongs to the loop's time, in Unix seconds."""
        return EPOCH + self._virtual

    def jump(self, seconds: float) -> None:
        """Let so many seconds pass at once."""
        self._virtual += seconds
