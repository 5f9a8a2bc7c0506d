"""An event loop whose clock jumps to the next timer instead of waiting for it."""

import asyncio
import selectors
from typing import Any, ClassVar

EPOCH = 1_767_225_600.0
"""Wall clock at loop time 0: 2026-01-01T00:00:00Z."""


class NothingToWaitForError(RuntimeError):
    """Every task waits for an event that nobody will ever send."""


class Jumping:
    """What a selector of such a loop does where it would wait: it moves the clock."""

    loop: "VirtualLoop"

    def pass_time(self, timeout: float | None) -> list[Any]:
        """Let the time until the next timer pass; no file is ready then. Raises `NothingToWaitForError`."""
        if timeout is None:
            raise NothingToWaitForError("no timer is set, and nothing else is ready")
        # Past the timer, never short of it: asyncio fires what is due *before* now.
        self.loop.jump(timeout + 1e-9)
        return []


class _NoFiles(Jumping, selectors.SelectSelector):
    """Reports no file as ready."""

    def select(self, timeout: float | None = None) -> list[Any]:
        return self.pass_time(timeout)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time is what the timers say; real sockets do not work in it, and nothing in the simulation has any."""

    SELECTOR: ClassVar[type] = _NoFiles
    START: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self._virtual = self.START
        selector = self.SELECTOR()
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
