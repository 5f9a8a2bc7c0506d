"""What can be seen of a cluster from outside: objects, processes, events, and what is still missing."""

import json
from dataclasses import dataclass
from typing import Any

from simulation.checks import Checks
from simulation.traffic import Traffic
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.errors import NotFound
from tidegate.cluster import project
from tidegate.cluster.drain_times import KEY, name_of
from tidegate.cluster.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LLM_SERVICES,
    PODS,
    Object,
)
from tidegate.core.drain_time.drain_times import DrainTimes, load
from tidegate.core.planner import revision
from tidegate.preview.apiserver import Server
from tidegate.preview.kubelet import Kubelet
from tidegate.preview.pods import Process
from tidegate.preview.shapes import active, ready

NAMESPACE = "prod"


@dataclass(frozen=True, slots=True)
class Announced:
    """An Event that the operator wrote."""

    reason: str
    message: str


class Sight:
    """Looks only; `world.World` acts."""

    server: Server
    kubelet: Kubelet
    traffic: Traffic
    checks: Checks

    def service(self, name: str = "chat") -> Object:
        return self.server.get(LLM_SERVICES, NAMESPACE, name)

    def status(self, name: str = "chat") -> Object:
        return self.service(name).get("status") or {}

    def condition(self, kind: str, name: str = "chat") -> Object:
        """A condition, or an empty dict."""
        rows = self.status(name).get("conditions") or []
        return next((row for row in rows if row["type"] == kind), {})

    def pods(self, name: str = "chat", *, image: str = "", state: str = "", alive: bool = True) -> list[Object]:
        """Pods by age; `alive` leaves out terminating and failed ones."""
        found = []
        for pod in self.server.all(PODS):
            labels = pod["metadata"]["labels"]
            if labels.get(names.SERVICE) != name or (alive and not active(pod)):
                continue
            if image and pod["spec"]["containers"][0]["image"] != image:
                continue
            if state and labels.get(names.STATE) != state:
                continue
            found.append(pod)
        return sorted(found, key=lambda p: str(p["metadata"]["name"]))

    def ready_pods(self, name: str = "chat", **which: Any) -> list[Object]:
        return [p for p in self.pods(name, **which) if ready(p)]

    def process(self, pod: Object) -> Process:
        """What runs in the pod."""
        found = self.kubelet.process(pod["metadata"]["uid"])
        assert found is not None, pod["metadata"]["name"]
        return found

    def events(self) -> list[Announced]:
        """Events so far, oldest first."""
        return [Announced(e["reason"], e["message"]) for e in self.server.all(EVENTS)]

    def learnt(self, name: str = "chat") -> DrainTimes:
        """What the ConfigMap of the service says."""
        raw = self.server.find(CONFIG_MAPS, NAMESPACE, name_of(name))
        return DrainTimes() if raw is None else load(raw["data"][KEY])

    def outcomes(self) -> list[tuple[str, str, object]]:
        """(image, outcome, requests cut) of every pod that was marked drained, in order."""
        rows = []
        for pod in self.checks.outcomes.values():
            said = json.loads(pod["metadata"]["annotations"][names.OUTCOME])
            rows.append((str(pod["spec"]["containers"][0]["image"]), str(said["outcome"]), said["cut"]))
        return rows

    def missing(self, name: str = "chat") -> str | None:
        """What is not yet as the spec says, or None."""
        try:
            service = self.service(name)
        except NotFound:
            return None if not self.pods(name, alive=False) else "pods of a deleted service"
        status = service.get("status") or {}
        conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
        wanted = {"Ready": "True", "Reconciling": "False", "Stalled": "False"}
        for kind, value in wanted.items():
            if conditions.get(kind) != value:
                return f"{kind} is {conditions.get(kind)}: {status.get('message')}"
        if status.get("observedGeneration") != service["metadata"]["generation"]:
            return "the status is of an older spec"
        return self._missing_pods(service)

    def _missing_pods(self, service: Object) -> str | None:
        name, replicas = service["metadata"]["name"], service["spec"]["replicas"]
        standing = self.pods(name, alive=False)
        wanted = revision.source(service["spec"])
        all_mine = [d for d in self.server.all(DEPLOYMENTS) if d["metadata"]["labels"][names.SERVICE] == name]
        deployments = [project.deployment(d, "") for d in all_mine]
        target = revision.find(deployments, wanted)
        if target is None or sum(d.source == target.source for d in deployments) > 1:
            return f"{'no' if target is None else 'more than one'} Deployment of the wanted revision"
        mine = target.revision
        good = [
            p
            for p in standing
            if p["metadata"]["labels"][names.REVISION] == mine
            and p["metadata"]["labels"][names.STATE] == PodState.SERVING
            and active(p)
            and ready(p)
        ]
        if len(good) != replicas or len(standing) != replicas:
            return f"{len(good)} of {len(standing)} pods are as wanted, {replicas} are wanted"
        routable = self.traffic.endpoints(service["spec"].get("service", {}).get("name") or name)
        if len(routable) != replicas:
            return f"{len(routable)} pods are routable, {replicas} are Ready"
        return None
