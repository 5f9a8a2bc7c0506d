"""The cluster in memory without an operator, as the conformance rows need it."""

import asyncio
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any, Literal

from conformance.kubernetes import Conduct, Heard
from simulation.admission import ShippedGate, shipped_policies
from simulation.port import Faults, SimulatedCluster
from simulation.process import Feed, Weather
from tidegate.cluster.port import NAMESPACES, PODS, POLICIES, POLICY_BINDINGS, Cluster, Kind, Object
from tidegate.preview.apiserver import Server
from tidegate.preview.controllers import ControllerManager
from tidegate.preview.kubelet import Kubelet
from tidegate.preview.network import Network
from tidegate.preview.pods import Ledger
from tidegate.preview.runs import Image
from tidegate.preview.virtual_time import VirtualLoop

IMAGES = {
    "prompt": Image(load=1.0),
    "alone": Image(load=1.0),
    "never-ready": Image(never_ready=True),
    "unstarted": Image(boot=1e9, never_ready=True),
    "crashing": Image(crash_after=0.2),
    "no-image": Image(pullable=False),
    "homeless": Image(schedulable=False),
}


class _Ear:
    """Where a watch of the operator's ends, in place of its store."""

    def __init__(self, kind: Kind, heard: Heard) -> None:
        self._kind, self._heard = kind, heard

    def put(self, kind: Kind, raw: Object) -> None:
        self._hear("SEEN", kind, raw)

    def remove(self, kind: Kind, raw: Object) -> None:
        self._hear("DELETED", kind, raw)

    def _hear(self, event: str, kind: Kind, raw: Object) -> None:
        if kind is self._kind:
            self._heard.events.append((event, raw))


class SimulatedKubernetes:
    """`conformance.kubernetes.Kubernetes` over a `Server` with all its controllers."""

    def __init__(self, seed: int = 0) -> None:
        self.loop = VirtualLoop()
        self.server = Server(self.loop.now, ShippedGate())
        self.kubelet = Kubelet(self.loop, self.server, Random(seed), Network(self.loop, Random(seed)), Ledger())
        self.manager = ControllerManager(self.loop, self.server, Random(seed), lambda _: 0.01)
        self.cluster: Cluster = SimulatedCluster(
            self.loop, self.server, Faults(Random(seed)), [], lambda: None, "operator"
        )
        self.namespace, self.name = "conformance", "row"
        self.kubelet.images.update(IMAGES)
        self.server.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        for policy in shipped_policies():
            self.server.create(POLICIES if policy["kind"] == POLICIES.kind else POLICY_BINDINGS, policy)

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """To its end, in virtual time; the cluster ends with it."""
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(story)
        finally:
            self.loop.close()
            asyncio.set_event_loop(None)

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        self.server.writer = "user"
        without = {key: body[key] for key in body if key != "status"}
        return self.server.create(kind, self._placed(kind, without))

    async def merge(self, kind: Kind, name: str, change: Mapping[str, Any], subresource: str = "") -> Object:
        self.server.writer = "user"
        return self.server.merge(kind, self._space(kind), name, change, subresource)

    async def delete(self, kind: Kind, name: str, **options: Any) -> None:
        self.server.writer = "user"
        self.server.delete(kind, self._space(kind), name, options)

    async def evict(self, pod: str) -> None:
        self.server.writer = "user"
        self.server.evict(self.namespace, pod)

    async def read(self, kind: Kind, name: str) -> Object:
        return self.server.get(kind, self._space(kind), name)

    async def find(self, kind: Kind, labels: str = "") -> list[Object]:
        wanted = dict(part.split("=") for part in labels.split(",") if part)
        return [
            raw
            for raw in self.server.all(kind)
            if raw["metadata"].get("namespace", "") == self._space(kind)
            and wanted.items() <= (raw["metadata"].get("labels") or {}).items()
        ]

    async def watch(self, kind: Kind) -> Heard:
        heard = Heard()
        Feed(self.loop, self.server, _Ear(kind, heard), Random(0), Weather)
        return heard

    def template(self, conduct: Conduct) -> Object:
        ports = [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 9901}]
        spec: Object = {"containers": [{"name": "server", "image": conduct, "ports": ports}]}
        if conduct == "still":
            spec["schedulerName"] = "nobody"
        if conduct == "alone":
            self.kubelet.capacity = 1
        return {"metadata": {}, "spec": spec}

    async def behave(self, pod: str, conduct: Literal["well", "not-ready", "crash"]) -> None:
        uid = self.server.get(PODS, self.namespace, pod)["metadata"]["uid"]
        if conduct == "crash":
            self.kubelet.crash(uid)
        else:
            self.kubelet.sicken(uid, conduct == "well")

    async def forbid_pods(self) -> None:
        self.manager.replica_sets.refuse = 'pods "x" is forbidden: exceeded quota: none'

    async def elsewhere(self) -> "SimulatedKubernetes":
        return self

    def _space(self, kind: Kind) -> str:
        return self.namespace if kind.namespaced else ""

    def _placed(self, kind: Kind, body: Mapping[str, Any]) -> Object:
        if not kind.namespaced:
            return dict(body)
        return {**body, "metadata": {**body["metadata"], "namespace": self.namespace}}
