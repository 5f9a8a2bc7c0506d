"""Caches that lag behind the API server, as every controller's does, and the scheduling of its work."""

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from tidegate.cluster.port import Kind, Object
from tidegate.preview.apiserver import Server
from tidegate.preview.shapes import controller_uid

Handler = Callable[[str, Kind, Object], None]


class Informer:
    """What one controller process has seen. Kinds are independent watches: one may be ahead of the other."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: Server, kinds: Iterable[Kind], lag: Callable[[Kind], float]
    ) -> None:
        self._loop, self._lag = loop, lag
        self.handlers: list[Handler] = []
        self.objects: dict[Kind, dict[str, Object]] = {kind: {} for kind in kinds}
        self.owned: dict[str, dict[str, Object]] = {}
        self._last = dict.fromkeys(self.objects, 0.0)
        server.watchers.append(self._event)

    def owned_by(self, uid: str) -> list[Object]:
        """What has the owner of this uid as its controller."""
        return list(self.owned.get(uid, {}).values())

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if kind not in self.objects:
            return
        # One watch keeps its order; equal times would not.
        due = max(self._loop.time() + self._lag(kind), self._last[kind] + 1e-6)
        self._last[kind] = due
        self._loop.call_at(due, self._deliver, event, kind, raw)

    def _deliver(self, event: str, kind: Kind, raw: Object) -> None:
        uid, owner = raw["metadata"]["uid"], controller_uid(raw)
        if event == "DELETED":
            self.objects[kind].pop(uid, None)
            self.owned.get(owner, {}).pop(uid, None)
        else:
            self.objects[kind][uid] = raw
            if owner:
                self.owned.setdefault(owner, {})[uid] = raw
        for handler in self.handlers:
            handler(event, kind, raw)


class WorkQueue:
    """Keys to be synced a little later, each once; a failed key comes again with the controllers' own backoff."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rng: Random, sync: Callable[[str], bool]) -> None:
        self._loop, self._rng, self._sync = loop, rng, sync
        self._waiting: set[str] = set()
        self._failures: dict[str, int] = {}

    def add(self, key: str) -> None:
        """Sync `key` some milliseconds from now."""
        if key and key not in self._waiting:
            self._waiting.add(key)
            self._loop.call_later(0.001 + 0.004 * self._rng.random(), self._run, key)

    def _run(self, key: str) -> None:
        self._waiting.discard(key)
        if self._sync(key):
            self._failures.pop(key, None)
            return
        count = self._failures[key] = self._failures.get(key, 0) + 1
        # 5 ms doubling up to 1000 s, as workqueue.DefaultControllerRateLimiter.
        self._loop.call_later(min(0.005 * 2.0 ** min(count, 20), 1000.0), self.add, key)
