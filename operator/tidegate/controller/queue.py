"""A queue of keys: one worker per key at a time, no key twice in it, per-key backoff on errors."""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Final

FIRST_BACKOFF: Final = 0.05
LONGEST_BACKOFF: Final = 60.0


class KeyedQueue:
    """Keys wait here until a worker takes them; a key added while it is worked on is worked on again afterwards."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._since: dict[str, float] = {}
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._later: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}

    def add(self, key: str) -> None:
        """Work on `key` as soon as a worker is free."""
        if key in self._busy:
            self._again.add(key)
        elif key not in self._since:
            self._since[key] = self._clock()
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Work on `key` in `seconds`; the earliest wish wins."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(seconds, 0.0)
        held = self._later.get(key)
        if held is not None:
            if held.when() <= due:
                return
            held.cancel()
        self._later[key] = loop.call_at(due, self._due, key)

    async def take(self) -> str:
        """The next key; the caller has to give it back with `done` or `failed`."""
        key = await self._ready.get()
        del self._since[key]
        self._busy.add(key)
        return key

    def done(self, key: str) -> None:
        """The work on a key went well: its failures are forgotten."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: str, retry_after: float | None = None) -> float:
        """Give back a key whose work failed; it comes again after a backoff, whose seconds are returned."""
        count = self._failures[key] = self._failures.get(key, 0) + 1
        wait = min(FIRST_BACKOFF * 2.0 ** min(count - 1, 20), LONGEST_BACKOFF)
        wait *= random.uniform(0.75, 1.25)
        if key in self._again:
            # Something happened meanwhile, perhaps the remedy; but not at once, since it may be our own doing.
            wait = min(wait, 1.0)
        # What the API server asks for holds in any case.
        wait = max(wait, retry_after or 0.0)
        self._again.discard(key)
        self._release(key)
        self.add_after(key, wait)
        return wait

    # Asked from the thread that answers scrapes: each reads in one step.

    @property
    def waiting(self) -> int:
        """Keys that wait for a worker now."""
        return len(self._since)

    @property
    def oldest_seconds(self) -> float:
        """How long the first of them has waited."""
        since = list(self._since.values())[:1]
        return self._clock() - since[0] if since else 0.0

    def _release(self, key: str) -> None:
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _due(self, key: str) -> None:
        del self._later[key]
        self.add(key)
