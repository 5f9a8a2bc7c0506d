"""The operator itself, given a cluster, pods and a clock of the simulation."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random

from simulation.port import SimulatedCluster
from tidegate.cluster.port import Kind, Object
from tidegate.controller.parts import Executes, assemble
from tidegate.controller.queue import KeyedQueue
from tidegate.controller.runtime import Operator
from tidegate.controller.timing import Clock, Pace
from tidegate.core.planner.actions import Action
from tidegate.core.state.snapshot import Snapshot
from tidegate.metrics.instruments import Metrics
from tidegate.preview.apiserver import Server
from tidegate.preview.network import Network
from tidegate.preview.virtual_time import VirtualLoop
from tidegate.preview.watches import Receives, Watches

WORKERS = 3


@dataclass(slots=True)
class Weather:
    """How watch events reach the operator. Seconds and probabilities."""

    lag: tuple[float, float] = (0.001, 0.02)
    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    """Probability that an event overtakes others, or is overtaken: it gets a delay of its own up to 5 s."""


class Noting:
    """An executor that notes what each pass has decided on, for the checks of what it then writes."""

    def __init__(self, inner: Executes) -> None:
        self._inner = inner
        self.basis: dict[str, Snapshot] = {}
        """By key, what the pass that runs, or ran last, has decided on."""

    async def execute(self, s: Snapshot, plan: Iterable[Action]) -> None:
        self.basis[f"{s.namespace}/{s.name}"] = s
        await self._inner.execute(s, plan)


class OperatorProcess:
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
        self._loop, self._server, self._rng = loop, server, rng
        self.cluster = cluster
        clock, queue = Clock(loop.now, loop.time), KeyedQueue(loop.time)
        self.metrics = Metrics(queue, loop.now)
        pace = Pace(workers=WORKERS)
        parts = assemble(cluster, network, clock, queue, self.metrics, name, gateway_image, pace)
        noting = Noting(parts.executor)
        self.basis = noting.basis
        self._operator = Operator(replace(parts, executor=noting))

    def start(self, weather: Callable[[], Weather]) -> None:
        self.metrics.leads(True)
        self._feed = Feed(self._loop, self._server, self._operator.parts.store, self._rng, weather)
        self._task = self._loop.create_task(self._operator.run(), name="operator")

    def kill(self) -> None:
        """As SIGKILL: no answer reaches it and no call leaves it from here on."""
        self.cluster.dead = True
        self._feed.close()
        self._task.cancel()

    def failed(self) -> list[str]:
        """What ended although the process lives."""
        return [str(self._task)] if self._task.done() and not self.cluster.dead else []


class Feed(Watches):
    """What has changed reaches the store late, and in bad weather not at all, twice, or out of order."""

    def __init__(
        self, loop: VirtualLoop, server: Server, store: Receives, rng: Random, weather: Callable[[], Weather]
    ) -> None:
        self._loop, self._rng, self._weather = loop, rng, weather
        self._last: dict[Kind, float] = {}
        super().__init__(server, store)

    def arrive(self, event: str, kind: Kind, raw: Object) -> None:
        weather, rng = self._weather(), self._rng
        if weather.drop and rng.random() < weather.drop:
            return
        low, high = weather.lag
        last = self._last.get(kind, 0.0)
        due = max(self._loop.time() + low + (high - low) * rng.random(), last + 1e-6)
        if weather.reorder and rng.random() < weather.reorder:
            due = self._loop.time() + 5.0 * rng.random()
        else:
            self._last[kind] = due
        self._loop.call_at(due, self.deliver, event, kind, raw)
        if weather.duplicate and rng.random() < weather.duplicate:
            self._loop.call_at(due + 3.0 * rng.random(), self.deliver, event, kind, raw)


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
