"""Events on an LLMService, for `kubectl describe`: only for transitions. A failed write is logged and not retried."""

import hashlib
import logging
from collections.abc import Callable
from typing import Final

from tidegate.api import names
from tidegate.api.errors import ClusterError
from tidegate.core.state import times
from tidegate.core.state.snapshot import Snapshot

from .port import EVENTS, Cluster

log = logging.getLogger(__name__)
LONGEST_MESSAGE: Final = 1000


class EventRecorder:
    """Writes core/v1 Events with the operator as their source. `now` gives Unix time."""

    def __init__(self, cluster: Cluster, component: str, instance: str, now: Callable[[], float]) -> None:
        self._cluster, self._component, self._instance, self._now = cluster, component, instance, now
        self._count = 0

    async def __call__(self, snapshot: Snapshot, reason: str, message: str, *, warning: bool = False) -> None:
        """Write one Event on the LLMService; a failure is logged and stops nothing."""
        self._count += 1
        at = self._now()
        digest = hashlib.sha256(f"{self._instance}/{snapshot.uid}/{at}/{self._count}".encode()).hexdigest()[:16]
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{snapshot.name}.{digest}", "namespace": snapshot.namespace},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "namespace": snapshot.namespace,
                "name": snapshot.name,
                "uid": snapshot.uid,
            },
            "reason": reason,
            "message": message[:LONGEST_MESSAGE],
            "type": "Warning" if warning else "Normal",
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": times.short(at),
            "lastTimestamp": times.short(at),
            "count": 1,
        }
        try:
            await self._cluster.create(EVENTS, snapshot.namespace, body)
        except ClusterError as error:
            log.warning("service=%s/%s event %s not written: %s", snapshot.namespace, snapshot.name, reason, error)
