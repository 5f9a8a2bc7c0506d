"""An LLMService's children made by the operator's own rendering and writes, for rows to look at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.kubernetes import Conduct, Kubernetes, eventually
from tidegate.api import names
from tidegate.api.conditions import DrainReason, Outcome
from tidegate.api.resource import LLMServiceSpec
from tidegate.cluster import project
from tidegate.cluster.execute import operations
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, PDBS, PODS, REPLICASETS, SERVICES, Object
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.planner import actions as a
from tidegate.core.planner import revision
from tidegate.core.render import objects
from tidegate.core.state import snapshot

HASH = "0123456789"
SINCE = 1_800_000_000.0
PRECONDITIONS = ("uid", "resourceVersion")


def raw_spec(template: Object, **changes: Any) -> dict[str, Any]:
    """A spec as a user writes it, with small numbers so that pods come and go fast."""
    drain = {
        "mode": "Native",
        "native": {"port": "admin"},
        "propagationSeconds": 1,
        "quietSeconds": 1,
        "flushSeconds": 1,
        "grace": {"initialSeconds": 20, "teardownSeconds": 1, "safetySeconds": 1},
    }
    return {"replicas": 2, "port": "http", "template": template, "drain": drain, **changes}


LINGERING = {"drain": raw_spec({})["drain"] | {"propagationSeconds": 10}}
"""A pod that is stopped before its drain takes so long to end: whoever looks at it meanwhile may be late by seconds."""


@dataclass(slots=True)
class Revision:
    """One revision's Deployment, and the LLMService it belongs to."""

    k8s: Kubernetes
    owner: objects.Owner
    raw: Mapping[str, Any]
    hash: str = HASH
    released: frozenset[str] = field(default_factory=frozenset)

    @property
    def spec(self) -> LLMServiceSpec:
        return LLMServiceSpec.parse(dict(self.raw))

    @property
    def name(self) -> str:
        return objects.deployment_name(self.owner, self.hash)

    @property
    def labels(self) -> str:
        return f"{names.SERVICE}={self.owner.name},{names.REVISION}={self.hash}"

    def body(self, replicas: int) -> dict[str, Any]:
        """What the operator applies."""
        grace, source = grace_period(self.spec), revision.source(self.raw)
        rendered = objects.Revision(self.hash, source, grace, f"key-of-{self.hash}")
        return objects.deployment(self.owner, self.spec, rendered, replicas)

    async def apply(self, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        return await self.k8s.cluster.apply(
            DEPLOYMENTS, self.k8s.namespace, self.name, body, manager=names.FIELD_MANAGER, dry_run=dry_run
        )

    async def deployment(self) -> Object:
        return await self.k8s.cluster.get(DEPLOYMENTS, self.k8s.namespace, self.name)

    async def replica_set(self) -> Object:
        """The one that has, or is to have, pods."""
        found = await self.k8s.find(REPLICASETS, self.labels)
        busy = [r for r in found if r["spec"]["replicas"]] or found
        assert len(busy) == 1, f"{len(busy)} ReplicaSets"
        return busy[0]

    async def pods(self) -> list[Object]:
        """Those that count, as the operator's projection sees it."""
        found = await self.k8s.find(PODS, self.labels)
        return sorted((p for p in found if project.pod(p).alive), key=lambda p: str(p["metadata"]["name"]))

    async def scale(self, replicas: int, *paid: Object, **known: str) -> Object:
        """The operator's write of a count, and of the drained pods that it pays for."""
        self.released |= {p["metadata"]["uid"] for p in paid}
        body = objects.scale(self.name, self.k8s.namespace, replicas, self.released)
        space, manager = self.k8s.namespace, names.FIELD_MANAGER_SCALE

        async def once() -> Object:
            base = known or {k: v for k, v in (await self.deployment())["metadata"].items() if k in PRECONDITIONS}
            decided = {**body, "metadata": {**body["metadata"], **base}}
            return await self.k8s.cluster.apply(DEPLOYMENTS, space, self.name, decided, manager=manager)

        return await once() if known else await eventually("no status comes in between", once)

    async def have(self, count: int) -> list[Object]:
        """Wait for so many pods, all told by the ReplicaSet's status too, and return them."""

        async def there() -> list[Object] | None:
            replica_set, found = await self.replica_set(), await self.pods()
            told = int((replica_set.get("status") or {}).get("replicas", 0))
            return found if len(found) == count == told and project.settled_at(replica_set, count) else None

        return await eventually(f"{self.name} has {count} pods", there) if count else []

    async def running(self, count: int) -> list[Object]:
        """Wait until so many pods are Ready, and return them."""

        async def all_ready() -> list[Object] | None:
            found = await self.pods()
            return found if len(found) == count and all(project.pod(p).ready for p in found) else None

        return await eventually(f"{count} pods of {self.name} are Ready", all_ready)

    async def observed(self) -> None:
        """Wait until both controllers have seen the present count."""

        async def seen() -> bool:
            live, replica_set = await self.deployment(), await self.replica_set()
            return project.deployment(live, "").observed and project.settled_at(replica_set, live["spec"]["replicas"])

        await eventually(f"the controllers have seen the count of {self.name}", seen)


async def make_service(k8s: Kubernetes, conduct: Conduct = "still", **changes: Any) -> Revision:
    """An LLMService and its one revision, whose Deployment is not there yet."""
    raw = raw_spec(k8s.template(conduct), **changes)
    made = await k8s.create(LLM_SERVICES, {"metadata": {"name": k8s.name}, "spec": raw})
    return Revision(k8s, objects.Owner(k8s.namespace, k8s.name, made["metadata"]["uid"]), raw)


async def make_revision(k8s: Kubernetes, count: int, conduct: Conduct = "still", **changes: Any) -> Revision:
    """An LLMService and its Deployment with so many pods."""
    made = await make_service(k8s, conduct, **changes)
    await made.apply(made.body(count))
    await made.have(count)
    return made


async def make_routes(made: Revision) -> Object:
    """The Service, as the operator applies it."""
    body = objects.service(made.owner, made.spec)
    name = body["metadata"]["name"]
    return await made.k8s.cluster.apply(SERVICES, made.k8s.namespace, name, body, manager=names.FIELD_MANAGER)


async def make_budget(made: Revision) -> Object:
    """The PodDisruptionBudget, as the operator applies it."""
    body = objects.disruption_budget(made.owner, made.spec)
    return await made.k8s.cluster.apply(PDBS, made.k8s.namespace, made.owner.name, body, manager=names.FIELD_MANAGER)


def drain_record() -> snapshot.DrainRecord:
    return snapshot.DrainRecord("d1", "i1", DrainReason.ROLLOUT, SINCE, SINCE + 60, 60.0)


def withdrawal(pod: Object, version: str | None = None) -> a.Withdraw:
    meta = pod["metadata"]
    known = meta["resourceVersion"] if version is None else version
    return a.Withdraw(meta["name"], meta["uid"], drain_record(), known)


def sealing(pod: Object) -> a.MarkDrained:
    """The end of a drain, whatever state the pod is in now."""
    read = project.pod(pod)
    ended = snapshot.OutcomeRecord(Outcome.DRAINED, 1.0, 0, None, SINCE + 1, DrainReason.ROLLOUT)
    return a.MarkDrained(read.name, read.uid, read.state, read.drain, ended)


async def relabel(k8s: Kubernetes, action: a.Withdraw | a.UpdateDrain | a.Restore | a.MarkDrained) -> Object:
    """The operator's PATCH of a pod's state."""
    return await k8s.cluster.patch(PODS, k8s.namespace, action.pod, operations(action))


async def seal(k8s: Kubernetes, pod: Object) -> Object:
    """End the pod's drain as the operator does, on what the pod is by now."""
    return await relabel(k8s, sealing(await k8s.read(PODS, pod["metadata"]["name"])))


async def delete(k8s: Kubernetes, pod: Object) -> None:
    """The operator's DELETE of exactly this pod."""
    await k8s.cluster.delete(PODS, k8s.namespace, pod["metadata"]["name"], uid=pod["metadata"]["uid"])


async def look(k8s: Kubernetes, pod: Object) -> snapshot.Pod:
    """The same pod as the operator sees it now; raises `NotFound`, or fails when another one has its name."""
    live = await k8s.cluster.get(PODS, k8s.namespace, pod["metadata"]["name"])
    assert live["metadata"]["uid"] == pod["metadata"]["uid"], "another pod has its name"
    return project.pod(live)


async def gone(k8s: Kubernetes, pod: Object) -> None:
    """Wait until the pod is no more."""
    uid = pod["metadata"]["uid"]

    async def missing() -> bool:
        return all(p["metadata"]["uid"] != uid for p in await k8s.find(PODS))

    await eventually(f"{pod['metadata']['name']} is gone", missing)


async def pretend(k8s: Kubernetes, pod: Object, *, ready: bool = True, phase: str = "Running") -> Object:
    """Write the status of a pod that no scheduler takes, as its kubelet would have."""
    status: dict[str, Any] = {"phase": phase}
    if phase == "Running":
        running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        status["containerStatuses"] = [
            {
                "name": "server",
                "image": "none",
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "started": True,
                "state": running,
            }
        ]
        status["conditions"] = [{"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}]
    return await k8s.merge(PODS, pod["metadata"]["name"], {"status": status}, "status")
