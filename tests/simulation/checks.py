"""What must hold after every write, and at the end: design section 2, as far as a simulation can see it."""

from collections.abc import Callable
from typing import Any

from simulation.apiserver import Server, controller_uid
from simulation.controllers import active, ready
from simulation.kubelet import Kubelet
from simulation.port import OPERATOR
from tidegate.api import names
from tidegate.api.resource import LLMServiceSpec, WhenNoCapacity
from tidegate.cluster import project
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, PODS, Kind, Object
from tidegate.cluster.store import Store
from tidegate.core import amounts

Seen = Callable[[], Store | None]


class Checks:
    """Looks at every stored write. A promise that is broken is noted, never raised into the code under test."""

    def __init__(self, server: Server, kubelet: Kubelet, seen: Seen) -> None:
        self._server, self._kubelet, self._seen = server, kubelet, seen
        self.broken: list[str] = []
        self.deletes: dict[str, str] = {}
        """uid of each pod that was deleted -> who deleted it first."""
        self.outcomes: dict[str, Object] = {}
        """uid of each pod that was marked drained -> the pod then."""
        self.drains: set[str] = set()
        self.created: dict[str, int] = {}
        """Name of Deployment -> pods created for it."""
        self._specs: dict[int, tuple[Object, LLMServiceSpec]] = {}
        server.written.append(self._written)

    def note(self, text: str) -> None:
        self.broken.append(f"{self._server.now():.3f} {text}")

    # -- on every write

    def _written(self, writer: str, kind: Kind, old: Object | None, new: Object | None) -> None:
        if kind is PODS:
            self._pod(writer, old, new)
        elif writer == OPERATOR and kind is DEPLOYMENTS and new is not None:
            before = old["spec"]["replicas"] if old is not None else 0
            if new["spec"]["replicas"] > before:
                self._raised(new)
        elif writer == OPERATOR and kind is LLM_SERVICES and (not old or not new or new["spec"] != old["spec"]):
            self.note("the operator wrote the spec of an LLMService")

    def _pod(self, writer: str, old: Object | None, new: Object | None) -> None:
        if old is None:
            assert new is not None
            revision = new["metadata"]["labels"].get(names.REVISION, "")
            self.created[revision] = self.created.get(revision, 0) + 1
            return
        uid = old["metadata"]["uid"]
        if new is None or "deletionTimestamp" in new["metadata"]:
            self.deletes.setdefault(uid, writer)
            return
        before, after = old["metadata"]["labels"].get(names.STATE), new["metadata"]["labels"].get(names.STATE)
        if before == after:
            return
        if after == names.DRAINING:
            self.drains.add(uid)
        if after == names.DRAINED:
            self.outcomes[uid] = new
        if writer != OPERATOR:
            return
        if before == names.SERVING and ready(old):
            self._taken(old)
        if after == names.DRAINED:
            self._drained(old, new)

    def _taken(self, pod: Object) -> None:
        """Invariant 4: the operator took a serving pod away."""
        service = self._service(pod)
        if service is None:
            return
        spec = self._spec(service)
        floor = self._amounts(pod, spec).least_serving
        serving = [p for p in self._pods(pod) if p["metadata"]["labels"].get(names.STATE) == names.SERVING]
        # What got lost a moment ago, by nobody's write of ours, may not have reached the operator yet.
        known = self._seen()
        count = sum(self._counts_as_serving(p, known) for p in serving) + self._unseen_losses(pod, known)
        if count < floor:
            name = pod["metadata"]["name"]
            self.note(f"{name} was withdrawn: {count} pods serve, {floor} must (replicas - maxUnavailable)")

    def _counts_as_serving(self, pod: Object, known: Store | None) -> bool:
        if active(pod) and ready(pod):
            return True
        held = known.get(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"]) if known else None
        return held is not None and active(held) and ready(held)

    def _unseen_losses(self, pod: Object, known: Store | None) -> int:
        if known is None:
            return 0
        lost = 0
        for held in known.select(PODS, pod["metadata"]["namespace"], _service_label(pod)):
            meta = held["metadata"]
            gone = self._server.find(PODS, meta["namespace"], meta["name"]) is None
            lost += gone and meta["labels"].get(names.STATE) == names.SERVING and active(held) and ready(held)
        return lost

    def _drained(self, old: Object, new: Object) -> None:
        """Invariant 1: `drained` is said of a pod without work, of one whose budget is spent, or of one let go."""
        meta = old["metadata"]
        uid, name = meta["uid"], meta["name"]
        record = project.pod(old).drain
        if record is not None and record.deadline is not None and self._server.now() >= record.deadline - 0.001:
            return
        if (meta.get("annotations") or {}).get(names.RELEASE, "").strip():
            return
        process = self._kubelet.process(uid)
        if process is None or not process.alive or process.conduct == "sealed at once":
            return
        if process.in_flight:
            outcome = new["metadata"]["annotations"].get(names.OUTCOME)
            self.note(f"{name} was marked drained with {process.in_flight} requests in flight: {outcome}")

    def _raised(self, deployment: Object) -> None:
        """Invariant 4: the operator asked for more pods."""
        service = self._service(deployment)
        if service is None:
            return
        spec = self._spec(service)
        limits = self._amounts(deployment, spec)
        pods = self._pods(deployment)
        total = 0
        for d in self._server.all(DEPLOYMENTS):
            if d["metadata"]["labels"].get(names.SERVICE) == deployment["metadata"]["labels"][names.SERVICE]:
                mine = [p for p in pods if p["metadata"]["labels"][names.REVISION] == _revision(d) and active(p)]
                total += max(d["spec"]["replicas"], len(mine))
        if limits.surge == 0:
            total += sum("deletionTimestamp" in p["metadata"] for p in pods)
        if total > limits.most_pods:
            name = deployment["metadata"]["name"]
            self.note(f"{name} was raised: {total} pods, at most {limits.most_pods} (replicas + maxSurge)")

    # -- helpers

    def _service(self, child: Object) -> Object | None:
        """The LLMService as the operator knows it: an edit of a moment ago may not have reached it."""
        meta = child["metadata"]
        where = (meta["namespace"], meta["labels"][names.SERVICE])
        known = self._seen()
        held = known.get(LLM_SERVICES, *where) if known else None
        return held or self._server.find(LLM_SERVICES, *where)

    def _spec(self, service: Object) -> LLMServiceSpec:
        raw = service["spec"]
        held = self._specs.get(id(raw))
        if held is None:
            held = self._specs[id(raw)] = (raw, LLMServiceSpec.parse(raw))
        return held[1]

    def _amounts(self, child: Object, spec: LLMServiceSpec) -> amounts.Amounts:
        rollout = spec.rollout
        if rollout.when_no_capacity is WhenNoCapacity.DRAIN_FIRST and any(_unschedulable(p) for p in self._pods(child)):
            return amounts.Amounts(spec.replicas, 0, 1)
        return amounts.resolve(spec.replicas, rollout.max_surge, rollout.max_unavailable)

    def _pods(self, child: Object) -> list[Object]:
        mine = child["metadata"]["labels"][names.SERVICE]
        space = child["metadata"]["namespace"]
        return [
            p
            for p in self._server.all(PODS)
            if p["metadata"]["labels"].get(names.SERVICE) == mine
            and p["metadata"]["namespace"] == space
            and controller_uid(p)
        ]


def _service_label(child: Object) -> dict[str, str]:
    return {names.SERVICE: child["metadata"]["labels"][names.SERVICE]}


def _revision(deployment: Object) -> Any:
    return deployment["metadata"]["labels"][names.REVISION]


def _unschedulable(pod: Object) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)
