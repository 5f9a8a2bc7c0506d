"""Whether a withdrawn pod has left every EndpointSlice that its state label can take it out of."""

import logging

from tidegate.api.errors import ClusterError
from tidegate.cluster import gather
from tidegate.cluster.port import ENDPOINT_SLICES, Cluster
from tidegate.cluster.store import Store
from tidegate.core.planner.actions import DrainOrder

log = logging.getLogger(__name__)


class Endpoints:
    """Reads EndpointSlices from the API server when asked: nobody watches them, and a cache could be late."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster, self._store = cluster, store

    async def absent(self, key: str, order: DrainOrder) -> bool:
        """Whether a withdrawn pod is in no slice of a Service that selects the state, read from the API server now.

        NotReady endpoints are listed too, and proxies fall back to them, so they count.
        """
        namespace, name = key.split("/", 1)
        try:
            for service in gather.withdrawing_services(self._store, namespace, name):
                slices, _ = await self._cluster.list(
                    ENDPOINT_SLICES, namespace, labels=f"kubernetes.io/service-name={service}"
                )
                for item in slices:
                    for endpoint in item.get("endpoints") or []:
                        if (endpoint.get("targetRef") or {}).get("uid") == order.uid:
                            return False
        except ClusterError as error:
            log.warning("endpoint slices of %s cannot be read: %s", key, error)
            return False
        return True
