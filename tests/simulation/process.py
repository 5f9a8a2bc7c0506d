"""The operator's own runtime, reconcile, executor, store and sessions; only its sockets and its clock are ours."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from simulation.apiserver import Server
from simulation.pods import Network
from simulation.port import SimulatedCluster
from simulation.virtual_time import VirtualLoop
from tidegate.cluster.events import EventRecorder
from tidegate.cluster.keys import DrainKeys
from tidegate.cluster.port import Kind, Object
from tidegate.cluster.store import Store
from tidegate.core.planner.actions import Action
from tidegate.core.state.snapshot import Snapshot
from tidegate.drain.sessions import Sessions
from tidegate.metrics.instruments import Metrics
from tidegate.queue import KeyedQueue
from tidegate.reconcile import Reconciler
from tidegate.runtime import WATCHED, Operator

WORKERS = 3


@dataclass(slots=True)
class Weather:
    """How watch events reach the operator. Seconds and probabilities."""

    lag: tuple[float, float] = (0.001, 0.02)
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Probability that an event overtakes others, or is overtaken: it gets a delay of its own up to 5 s."""


class OperatorProcess(Operator):
    """One run of the operator: everything it holds dies with it."""

    def __init__(
        self,
        loop: VirtualLoop,
        server: Server,
        cluster: SimulatedCluster,
        network: Network,
        rng: Random,
        name: str,
        gateway_image: str,
    ) -> None:
        # Not the parent's: that one opens sockets and reads the machine's clock.
        self._loop, self._server, self._rng = loop, server, rng
        self._cluster = cluster  # type: ignore[assignment]
        self._queue = KeyedQueue(loop.time)
        self._store = Store(self._changed)
        keys = DrainKeys(cluster)
        self._sessions = Sessions(
            network,
            lambda key, fresh: self._reconciler.drain_keys(key, fresh),
            lambda key, order: self._reconciler.absent(key, order),
            self._queue.add,
            loop.now,
        )
        tell = EventRecorder(cluster, "tidegate", name, loop.now)
        self.metrics = self._metrics = Metrics(self._queue, loop.now)
        self._reconciler = Reconciler(
            cluster, self._store, keys, self._sessions, tell, self.metrics, loop.now, gateway_image
        )
        self.basis: dict[str, Snapshot] = {}
        """By key, what the pass that runs, or ran last, has decided on."""
        execute = self._reconciler._executor.execute

        async def noted(s: Snapshot, actions: Iterable[Action]) -> None:
            self.basis[f"{s.namespace}/{s.name}"] = s
            await execute(s, actions)

        self._reconciler._executor.execute = noted  # type: ignore[method-assign]
        self._swept = asyncio.Event()
        self._last_sweep = 0.0
        self._tasks: list[asyncio.Task[Any]] = []
        self.cluster = cluster

    def start(self, weather: Callable[[], Weather]) -> None:
        self.metrics.leads(True)
        self._feed = Feed(self._loop, self._server, self._store, self._rng, weather)
        self._tasks = [self._loop.create_task(self._sweep_forever(), name="sweep")]
        self._tasks += [self._loop.create_task(self._work(), name=f"worker {n}") for n in range(WORKERS)]

    def kill(self) -> None:
        """As SIGKILL: no answer reaches it and no call leaves it from here on."""
        self.cluster.dead = True
        self._feed.close()
        for task in self._tasks:
            task.cancel()
        self._tasks.append(self._loop.create_task(self._sessions.close()))

    def failed(self) -> list[str]:
        """Parts of the process that ended although it lives."""
        return [str(task) for task in self._tasks if task.done() and not self.cluster.dead]


class Feed:
    """The watches: what has changed reaches the store late, and in bad weather not at all, twice, or out of order."""

    def __init__(
        self, loop: VirtualLoop, server: Server, store: Store, rng: Random, weather: Callable[[], Weather]
    ) -> None:
        self._loop, self._server, self._store, self._rng, self._weather = loop, server, store, rng, weather
        self._open = True
        self._labels = {kind: labels.partition("=") for kind, labels in WATCHED}
        self._last: dict[Kind, float] = dict.fromkeys(self._labels, 0.0)
        server.watchers.append(self._event)
        for kind in self._labels:
            for raw in server.all(kind):
                self._event("ADDED", kind, raw)

    def close(self) -> None:
        self._open = False
        self._server.watchers.remove(self._event)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        selector = self._labels.get(kind)
        if selector is None:
            return
        label, equal, value = selector
        have = raw["metadata"].get("labels") or {}
        if label and (have.get(label) != value if equal else label not in have):
            return
        weather, rng = self._weather(), self._rng
        if weather.drop and rng.random() < weather.drop:
            return
        low, high = weather.lag
        due = max(self._loop.time() + low + (high - low) * rng.random(), self._last[kind] + 1e-6)
        if weather.reorder and rng.random() < weather.reorder:
            due = self._loop.time() + 5.0 * rng.random()
        else:
            self._last[kind] = due
        self._loop.call_at(due, self._deliver, event, kind, raw)
        if weather.duplicate and rng.random() < weather.duplicate:
            self._loop.call_at(due + 3.0 * rng.random(), self._deliver, event, kind, raw)

    def _deliver(self, event: str, kind: Kind, raw: Object) -> None:
        if not self._open:
            return
        if event == "DELETED":
            self._store.remove(kind, raw)
        else:
            self._store.put(kind, raw)


class FaultsOfOurs(logging.Handler):
    """Collects what the operator logs as a fault of its own: those are caught there, so that others go on."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            trace, where = error.__traceback__, ""
            while trace is not None:
                where = f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
                trace = trace.tb_next
            text += f" [{type(error).__name__}: {error} at {where}]"
        self.texts.append(text)
