"""The operator at work: what is seen goes into the store, keys into the queue, and workers take them out of it.

Who runs it feeds `Parts.store` with what its watches see, as `shell` does from kopf.
"""

import asyncio
import itertools
import logging
import random
from typing import Final

from tidegate.api import names
from tidegate.api.errors import ClusterError, Unavailable
from tidegate.cluster import gather, locks
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, NAMESPACES, PDBS, PODS, REPLICASETS, SERVICES, Kind, Object
from tidegate.drain.sessions import Sessions

from .parts import Parts
from .reconciler import Reconciler

log = logging.getLogger(__name__)

# By the label that the policies protect, not by managed-by, which anybody may change.
OURS: Final = names.SERVICE
WATCHED: Final[tuple[tuple[Kind, str], ...]] = (
    (LLM_SERVICES, ""),
    (DEPLOYMENTS, OURS),
    (REPLICASETS, OURS),
    (PODS, OURS),
    (NAMESPACES, ""),
    # Users' own count too: a pod must not have two budgets, it has to leave every Service when it is withdrawn, and a
    # name may be taken.
    (PDBS, ""),
    (SERVICES, ""),
)
"""Each kind that is watched and swept, with its label selector."""
FIRST_LIST_BACKOFF: Final = 0.5
LONGEST_LIST_BACKOFF: Final = 30.0


class Operator:
    """One operator, made of the parts that it is given."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._store, self._queue, self._metrics = parts.store, parts.queue, parts.metrics
        self._monotonic = parts.clock.monotonic
        self._sessions = Sessions(
            parts.talk, parts.keys.for_call, parts.endpoints.absent, parts.queue.add, parts.clock.now
        )
        self._reconciler = Reconciler(parts, self._sessions)
        self._swept = asyncio.Event()
        self._swept_at = self._monotonic()
        parts.store.subscribe(self._changed)

    @property
    def sweep_age(self) -> float | None:
        """Seconds since the cluster was last listed whole; None before the first time."""
        return self._monotonic() - self._swept_at if self._swept.is_set() else None

    async def run(self) -> None:
        """Until it is cancelled, or a part of it fails for good, which raises.

        All its tasks but those of drains are made before the first await.
        """
        tasks = [asyncio.create_task(self._sweep_forever(), name="sweep")]
        tasks += [asyncio.create_task(self._work(), name=f"worker {n}") for n in range(self.parts.pace.workers)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._sessions.close()

    def _changed(self, kind: Kind, raw: Object) -> None:
        labels = raw["metadata"].get("labels") or {}
        # A label may be copied, so one of ours is also known by its owner.
        if kind in (SERVICES, PDBS) and not (names.SERVICE in labels and gather.controlled(raw)):
            for service in self._store.select(LLM_SERVICES, raw["metadata"]["namespace"]):
                self._queue.add(f"{service['metadata']['namespace']}/{service['metadata']['name']}")
        key = gather.service_key(kind, raw)
        if key is not None:
            self._queue.add(key)

    async def _work(self) -> None:
        await self._swept.wait()
        while True:
            key = await self._queue.take()
            result, began = "fault", self._monotonic()
            try:
                wait = await self._reconciler.reconcile(key)
            except ClusterError as error:
                result = "error"
                after = error.retry_after if isinstance(error, Unavailable) else None
                seconds = self._queue.failed(key, after)
                log.warning("service=%s will be tried again in %.2f s: %s", key, seconds, error)
            except Exception:
                # A fault of ours in one service must not stop the others.
                seconds = self._queue.failed(key)
                log.exception("service=%s failed by a fault, tried again in %.1f s", key, seconds)
            else:
                result = "ok"
                if wait == 0.0:
                    # Before it is given back: together with the news of its own writes that is one more pass, not two.
                    self._queue.add(key)
                self._queue.done(key)
                if wait:
                    self._queue.add_after(key, wait)
            self._metrics.passed(key, result, self._monotonic() - began)

    async def sweep(self) -> None:
        """LIST each kind, and read which policies are in force. Raises `ClusterError`."""
        for kind, labels in WATCHED:
            listed, version = await self.parts.cluster.list(kind, labels=labels)
            ghosts = self._store.replace(kind, listed, version)
            if ghosts and self._swept.is_set():
                log.warning("kind=%s ghosts=%d dropped: their deletion was never seen", kind.plural, ghosts)
        self._reconciler.locks_missing = await locks.missing(self.parts.cluster)
        self._swept_at = self._monotonic()
        self._metrics.listed()
        if not self._swept.is_set():
            log.info("first list is in: services=%d", len(list(self._store.all(LLM_SERVICES))))
            for name in self._reconciler.locks_missing:
                log.warning("policy %s is not in force; apply manifests/cluster", name)
            self._swept.set()

    async def _sweep_forever(self) -> None:
        """Before anything is decided, and now and then after, since a watch can lose a deletion."""
        backoff, pause = FIRST_LIST_BACKOFF, self.parts.pace.sweep_seconds
        for count in itertools.count():
            try:
                await self.sweep()
            except ClusterError as error:
                self._metrics.list_failed()
                log.warning("cannot read the cluster, tried again in %.1f s: %s", backoff, error)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, LONGEST_LIST_BACKOFF)
                continue
            backoff = FIRST_LIST_BACKOFF
            for service in self._store.all(LLM_SERVICES):
                meta = service["metadata"]
                self._queue.add_after(f"{meta['namespace']}/{meta['name']}", random.uniform(0, pause if count else 0.0))
            await asyncio.sleep(pause)
