"""What one operator is given: its clock, its way to the cluster and to pods, and what writes for it.

The operator makes none of these itself, so whoever runs one decides what it talks to: `shell.run` a real cluster, a
preview and the tests one in memory under virtual time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.cluster.drain_times import DrainTimesKeeper
from tidegate.cluster.events import EventRecorder
from tidegate.cluster.execute import Executor
from tidegate.cluster.keys import DrainKeys
from tidegate.cluster.port import Cluster
from tidegate.cluster.store import Store
from tidegate.core.planner.actions import Action
from tidegate.core.state.snapshot import Snapshot
from tidegate.drain.sessions import Talk
from tidegate.metrics.instruments import Metrics

from .endpoints import Endpoints
from .queue import KeyedQueue
from .status_writer import StatusWriter
from .timing import STANDARD_PACE, Clock, Pace

COMPONENT: Final = "tidegate"
"""The name under which the operator writes Events."""


class Executes(Protocol):
    """What turns the actions of a plan into writes, as `cluster.execute.Executor` does."""

    async def execute(self, snapshot: Snapshot, plan: Iterable[Action]) -> None:
        """Try all actions of the plan made of `snapshot`. Raises the first `ClusterError` or `TemplateRefused`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """All that an `Operator` is made of; `assemble` makes them for a cluster."""

    clock: Clock
    cluster: Cluster
    store: Store
    talk: Talk
    keys: DrainKeys
    drain_times: DrainTimesKeeper
    endpoints: Endpoints
    executor: Executes
    status: StatusWriter
    queue: KeyedQueue
    metrics: Metrics
    gateway_image: str
    """Image of gateways for which the spec names none."""
    pace: Pace


def assemble(
    cluster: Cluster,
    talk: Talk,
    clock: Clock,
    queue: KeyedQueue,
    metrics: Metrics,
    instance: str,
    gateway_image: str,
    pace: Pace = STANDARD_PACE,
) -> Parts:
    """The parts as they go with a cluster; `instance` tells in Events which process wrote them."""
    store, keys = Store(), DrainKeys(cluster)
    events = EventRecorder(cluster, COMPONENT, instance, clock.now)
    return Parts(
        clock=clock,
        cluster=cluster,
        store=store,
        talk=talk,
        keys=keys,
        drain_times=DrainTimesKeeper(cluster),
        endpoints=Endpoints(cluster, store),
        executor=Executor(cluster, store, keys, events),
        status=StatusWriter(cluster, store, events, clock, pace),
        queue=queue,
        metrics=metrics,
        gateway_image=gateway_image,
        pace=pace,
    )
