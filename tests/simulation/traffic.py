"""Clients behind proxies that learn of endpoints late: new streams go to whatever the proxies still know."""

import asyncio
from random import Random

from tidegate.cluster.port import ENDPOINT_SLICES, Kind, Object
from tidegate.preview.apiserver import Server
from tidegate.preview.network import Network
from tidegate.preview.pods import Ledger

PROXY_LAG = 1.0
"""kube-proxy syncs once a second."""


class Traffic:
    """Every service has its own stream of arrivals."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random, network: Network, ledger: Ledger
    ) -> None:
        self._loop, self._rng, self._network, self._ledger = loop, rng, network, ledger
        self._slices: dict[str, list[Object]] = {}
        self._flows: dict[str, asyncio.TimerHandle] = {}
        self._last = 0.0
        server.watchers.append(self._event)

    def start(self, every: float, seconds: tuple[float, float], service: str = "chat") -> None:
        """A request each `every` seconds on average, whose answer takes between the two `seconds`."""
        self.stop(service)
        self._flows[service] = self._loop.call_later(0.0, self._arrive, service, every, seconds)

    def stop(self, service: str = "") -> None:
        """No new requests to the service, or to any."""
        for name in [service] if service else list(self._flows):
            timer = self._flows.pop(name, None)
            if timer is not None:
                timer.cancel()

    def endpoints(self, service: str) -> list[Object]:
        """Where proxies send new connections: ready endpoints, or serving ones that terminate when none is ready."""
        rows = self._slices.get(service, [])
        found = [e for e in rows if e["conditions"]["ready"]]
        return found or [e for e in rows if e["conditions"]["serving"] and e["conditions"]["terminating"]]

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if kind is ENDPOINT_SLICES:
            service = raw["metadata"]["labels"]["kubernetes.io/service-name"]
            due = max(self._loop.time() + PROXY_LAG * self._rng.random(), self._last + 1e-6)
            self._last = due
            self._loop.call_at(due, self._learn, service, [] if event == "DELETED" else raw["endpoints"])

    def _learn(self, service: str, endpoints: list[Object]) -> None:
        self._slices[service] = endpoints

    def _arrive(self, service: str, every: float, seconds: tuple[float, float]) -> None:
        rng = self._rng
        self._flows[service] = self._loop.call_later(
            rng.expovariate(1.0 / every), self._arrive, service, every, seconds
        )
        rows = self.endpoints(service)
        if not rows:
            self._ledger.unserved += 1
            return
        row = rng.choice(rows)
        process = self._network.hosts.get(row["addresses"][0])
        if process is None:
            self._ledger.resets.append((self._loop.time(), row["targetRef"]["uid"], "connection refused"))
        else:
            process.arrive(rng.uniform(*seconds))
