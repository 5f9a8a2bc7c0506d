"""Pausing reads from a client: while they are paused, the client's disappearance has to be polled for."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

HELD_LOOK_SECONDS = 1.0
"""Between two checks of a client from which reading is paused."""


class Reading:
    """The reading side of a client's transport; `on_reset` is called if the client resets while reading is paused."""

    def __init__(self, transport: asyncio.Transport, on_reset: Callable[[], None]) -> None:
        self._transport = transport
        self._on_reset = on_reset
        self._reasons: set[str] = set()
        self._over = False
        self._turn: asyncio.Handle | None = None
        self._look: asyncio.TimerHandle | None = None

    @property
    def held(self) -> bool:
        """Whether reading is paused."""
        return bool(self._reasons)

    def hold(self, reason: str) -> None:
        """Pause reading, until every reason is released."""
        before = self.held
        self._reasons.add(reason)
        if not before and self._usable():
            if self._turn is None:
                self._transport.pause_reading()
            self._look_later()

    def release(self, *reasons: str) -> None:
        """Remove reasons, and resume reading if none is left."""
        before = self.held
        self._reasons.difference_update(reasons)
        if before and not self.held:
            self._stop_looking()
            if self._usable() and self._turn is None:
                self._transport.resume_reading()

    def take_turns(self) -> None:
        """Let everybody else have a turn of the loop before the next read; uvloop reads on while there is more."""
        if self._turn is None and not self.held and self._usable():
            self._transport.pause_reading()
            self._turn = asyncio.get_running_loop().call_soon(self._next_turn)

    def end(self) -> None:
        """The client's FIN has arrived, which asyncio would report again on resuming, or the connection is lost."""
        self._over = True
        self._stop_looking()

    # -- inside

    def _next_turn(self) -> None:
        self._turn = None
        if not self.held and self._usable():
            self._transport.resume_reading()

    def _usable(self) -> bool:
        return not self._over and not self._transport.is_closing()

    def _look_later(self) -> None:
        self._look = asyncio.get_running_loop().call_later(HELD_LOOK_SECONDS, self._look_for_reset)

    def _look_for_reset(self) -> None:
        """The event loop does not watch a paused socket, so it would not notice a reset."""
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
