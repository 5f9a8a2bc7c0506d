"""A queue of keys: one worker per key at a time, no key twice in it, per-key backoff on errors."""

import asyncio
import heapq
import itertools
import random
import time
from typing import Final

FIRST_BACKOFF: Final = 0.05
LONGEST_BACKOFF: Final = 60.0


class KeyedQueue:
    """Keys wait here until a worker takes them; a key added while it is worked on is worked on again afterwards."""

    def __init__(self) -> None:
        self._ready: dict[str, float] = {}
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._later: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._order = itertools.count()
        self._failures: dict[str, int] = {}
        self._wake = asyncio.Event()

    def add(self, key: str) -> None:
        """Work on `key` as soon as a worker is free."""
        if key in self._busy:
            self._again.add(key)
        else:
            self._ready.setdefault(key, time.monotonic())
            self._wake.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Work on `key` in `seconds`; the earliest wish wins."""
        due = asyncio.get_running_loop().time() + max(seconds, 0.0)
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            heapq.heappush(self._later, (due, next(self._order), key))
            self._wake.set()

    async def take(self) -> str:
        """The next key; the caller has to give it back with `done` or `failed`."""
        while True:
            self._promote()
            if self._ready:
                key = next(iter(self._ready))
                del self._ready[key]
                self._busy.add(key)
                if self._ready:
                    self._wake.set()
                return key
            self._wake.clear()
            timeout = None
            if self._later:
                timeout = max(self._later[0][0] - asyncio.get_running_loop().time(), 0.0)
            try:
                await asyncio.wait_for(self._wake.wait(), timeout)
            except TimeoutError:
                continue

    def done(self, key: str) -> None:
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
        return len(self._ready)

    @property
    def oldest_seconds(self) -> float:
        """How long the first of them has waited."""
        since = list(self._ready.values())[:1]
        return time.monotonic() - since[0] if since else 0.0

    def _release(self, key: str) -> None:
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _promote(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._later and self._later[0][0] <= now:
            due, _, key = heapq.heappop(self._later)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
