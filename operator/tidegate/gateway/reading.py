"""Whether a client is read from: not while anybody holds it, and then somebody must look whether it is still there."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

HELD_LOOK_SECONDS = 1.0
"""Between two looks at a client that is not read from."""


class Reading:
    """The reading side of one client's transport; `on_reset` is called when the client resets it while it is held."""

    def __init__(self, transport: asyncio.Transport, on_reset: Callable[[], None]) -> None:
        self._transport = transport
        self._on_reset = on_reset
        self._reasons: set[str] = set()
        self._over = False
        self._look: asyncio.TimerHandle | None = None

    @property
    def held(self) -> bool:
        return bool(self._reasons)

    def hold(self, reason: str) -> None:
        before = self.held
        self._reasons.add(reason)
        if not before and self._usable():
            self._transport.pause_reading()
            self._look_later()

    def release(self, *reasons: str) -> None:
        before = self.held
        self._reasons.difference_update(reasons)
        if before and not self.held:
            self._stop_looking()
            if self._usable():
                self._transport.resume_reading()

    def end(self) -> None:
        """The client's FIN is here, of which asyncio would tell again at a release, or the connection is lost."""
        self._over = True
        self._stop_looking()

    # -- inside

    def _usable(self) -> bool:
        return not self._over and not self._transport.is_closing()

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(HELD_LOOK_SECONDS, self._look_for_reset)

    def _look_for_reset(self) -> None:
        """The event loop does not watch a socket that is not read from: neither does it learn of a reset."""
        if not self._usable():
            return
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), 0)
        if any(events & select.POLLERR for _, events in poll.poll(0)):
            self._on_reset()
        else:
            self._look_later()

    def _stop_looking(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
