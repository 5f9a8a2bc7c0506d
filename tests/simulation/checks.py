"""What must hold after every write, and at the end: design section 2, as far as a simulation can see it."""

import json
from collections.abc import Callable
from typing import Any

from simulation.port import OPERATOR, RIVAL
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.resource import WhenNoCapacity
from tidegate.cluster import project
from tidegate.cluster.port import DEPLOYMENTS, ENDPOINT_SLICES, LLM_SERVICES, PODS, SERVICES, Kind, Object
from tidegate.core.planner import revision
from tidegate.core.state import limits, times
from tidegate.core.state.snapshot import Snapshot
from tidegate.preview.apiserver import Server
from tidegate.preview.kubelet import Kubelet
from tidegate.preview.shapes import active, controller_uid, ready

Seen = Callable[[str, str], Snapshot | None]
"""(operator, key) -> what that operator had before it when it decided."""

LAST_MOMENTS = 6.0
"""Seconds: to flush tokens, as in every story's spec or by default, and one to send the call."""


class Checks:
    """Looks at every stored write. A promise that is broken is noted, never raised into the code under test."""

    def __init__(self, server: Server, kubelet: Kubelet, seen: Seen) -> None:
        self._server, self._kubelet, self._seen = server, kubelet, seen
        self._writer = ""
        self.broken: list[str] = []
        self.deletes: dict[str, str] = {}
        """uid of each pod that was deleted -> who deleted it first."""
        self.outcomes: dict[str, Object] = {}
        """uid of each pod that was marked drained -> the pod then."""
        self.drained: set[str] = set()
        """uids of these, and of those marked while they terminated."""
        self.drains: set[str] = set()
        self._paid: set[str] = set()
        self._ours: dict[bool, set[str]] = {False: set(), True: set()}
        """uids of pods that the operator itself has taken out of service, with its predecessors; the rival's apart."""
        self.created: dict[str, int] = {}
        """Name of Deployment -> pods created for it."""
        server.written.append(self._written)

    def note(self, text: str) -> None:
        self.broken.append(f"{self._server.now():.3f} {text}")

    # -- on every write

    def _written(self, writer: str, kind: Kind, old: Object | None, new: Object | None) -> None:
        self._writer = writer
        ours = writer.startswith(OPERATOR)
        if kind is PODS:
            self._pod(writer, old, new)
        elif ours and kind is DEPLOYMENTS and new is not None:
            before = old["spec"]["replicas"] if old is not None else 0
            if new["spec"]["replicas"] > before:
                self._raised(new)
            elif new["spec"]["replicas"] < before:
                self._lowered(before, new)
        elif ours and kind is LLM_SERVICES and (not old or not new or new["spec"] != old["spec"]):
            self.note("the operator wrote the spec of an LLMService")

    def _pod(self, writer: str, old: Object | None, new: Object | None) -> None:
        if old is None:
            assert new is not None
            revision = new["metadata"]["labels"].get(names.REVISION, "")
            self.created[revision] = self.created.get(revision, 0) + 1
            return
        uid = old["metadata"]["uid"]
        # One that is evicted in its drain is marked while it terminates, and may be counted with those that stand.
        if new is not None and new["metadata"]["labels"].get(names.STATE) == PodState.DRAINED:
            self.drained.add(uid)
        if new is None or "deletionTimestamp" in new["metadata"]:
            self.deletes.setdefault(uid, writer)
            return
        before, after = old["metadata"]["labels"].get(names.STATE), new["metadata"]["labels"].get(names.STATE)
        if before == after:
            return
        if after == PodState.DRAINING:
            self.drains.add(uid)
        if after == PodState.DRAINED:
            self.outcomes[uid] = new
        if not writer.startswith(OPERATOR):
            return
        if after == PodState.SERVING:
            for camp in self._ours.values():
                camp.discard(uid)
        else:
            self._ours[is_rival(writer)].add(uid)
        if before == PodState.SERVING and ready(old):
            self._taken(old)
        if after == PodState.DRAINED:
            self._drained(old, new)

    def _taken(self, pod: Object) -> None:
        """Invariant 4: the operator took a serving pod away. What a rival took, it may not have seen yet."""
        basis = self._basis(pod)
        if basis is None:
            return
        # What got lost by nobody's write of ours, a label that a person set included, may not have been seen yet.
        believed = {p.uid for p in basis.pods if p.alive and p.ready and p.state == PodState.SERVING}
        live = {p["metadata"]["uid"]: p for p in self._pods(pod)}
        count = len(believed - self._ours[is_rival(self._writer)])
        for uid, other in live.items():
            serves = other["metadata"]["labels"].get(names.STATE) == PodState.SERVING
            count += uid not in believed and serves and active(other) and ready(other)
        floor = _limits(basis).least_serving
        name = pod["metadata"]["name"]
        if count < floor:
            self.note(f"{name} was withdrawn: {count} pods serve, {floor} must (replicas - maxUnavailable)")
        least = basis.spec.rollout.min_ready_seconds
        steady = {p.uid: p.ready_since + least for p in basis.pods if p.uid in believed and p.ready_since is not None}
        whole = sum(at <= basis.now for at in steady.values()) >= basis.spec.replicas
        if not whole and count < basis.spec.replicas and _lost(basis):
            self.note(f"{name} was withdrawn: {count} pods serve after a loss that is not mended")
        if steady.get(pod["metadata"]["uid"], basis.now + 1) > basis.now:
            return
        # One that counted goes: the others that serve have to count too, in minReadySeconds of their own.
        now = self._server.now()
        fresh = {uid for uid in believed - self._ours[is_rival(self._writer)] if steady.get(uid, now + 1) > now}
        if count - len(fresh) < floor:
            self.note(f"{name} was withdrawn: {len(fresh)} of the {count} that serve have only just become Ready")

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
        basis = self._basis(deployment)
        if basis is None:
            return
        limits = _limits(basis)
        pods = self._pods(deployment)
        total = 0
        for d in self._server.all(DEPLOYMENTS):
            if d["metadata"]["labels"].get(names.SERVICE) == deployment["metadata"]["labels"][names.SERVICE]:
                total += _places(d, pods, basis)
        if limits.surge == 0:
            known = {p.uid for p in basis.pods if p.terminating}
            total += sum(p["metadata"]["uid"] in known and _may_hold_a_device(p, basis.now) for p in pods)
        if total > limits.most_pods:
            name = deployment["metadata"]["name"]
            self.note(f"{name} was raised: {total} pods, at most {limits.most_pods} (replicas + maxSurge)")

    def _lowered(self, before: int, deployment: Object) -> None:
        """Invariant 1: a count falls by one for each drained pod, and each pod pays once, whoever asks for it."""
        basis = self._basis(deployment)
        if basis is None or any(d.failure for d in basis.deployments):
            return
        said = set(deployment["metadata"]["annotations"].get(names.RELEASED, "").split(",")) - {""}
        paid = said - self._paid
        self._paid |= said
        count, name = deployment["spec"]["replicas"], deployment["metadata"]["name"]
        if before - count > len(paid):
            self.note(f"{name} was lowered from {before} to {count} for {len(paid)} drained pods")
        if not paid <= self.drained:
            self.note(f"{name} was lowered for pods that are not drained")

    def posted(self, uid: str) -> None:
        """Invariant 2: a pod that is told to drain has left every slice that its state label can take it out of.

        One whose budget is nearly over is told all the same, so that its streams get their tokens.
        """
        if self._hurried(uid):
            return
        for service in self._server.all(SERVICES):
            meta = service["metadata"]
            item = self._server.find(ENDPOINT_SLICES, meta["namespace"], f"{meta['name']}-slice")
            if item is None or names.STATE not in (service["spec"].get("selector") or {}):
                continue
            if any(endpoint["targetRef"]["uid"] == uid for endpoint in item["endpoints"]):
                self.note(f"{uid} was told to drain while it stood in {item['metadata']['name']}")

    # -- helpers

    def _basis(self, child: Object) -> Snapshot | None:
        """What the operator that writes had before it when it decided; None for writes outside of a pass."""
        return self._seen(
            self._writer, f"{child['metadata']['namespace']}/{child['metadata']['labels'][names.SERVICE]}"
        )

    def _hurried(self, uid: str) -> bool:
        pod = next((p for p in self._server.all(PODS) if p["metadata"]["uid"] == uid), None)
        record = json.loads((pod or {}).get("metadata", {}).get("annotations", {}).get(names.DRAIN) or "{}")
        deadline = times.parse(record.get("deadline"))
        return deadline is not None and self._server.now() >= deadline - LAST_MOMENTS

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


def is_rival(writer: str) -> bool:
    return writer == RIVAL


def _places(deployment: Object, pods: list[Object], basis: Snapshot) -> int:
    """Pods that stand or are asked for; drained ones that the count has paid for stand beside it.

    A replacement that a controller made a moment ago, for a pod that somebody else deleted, cannot be known yet.
    """
    known = {p.uid for p in basis.pods}
    mine = [p for p in pods if p["metadata"]["labels"][names.REVISION] == _revision(deployment) and active(p)]
    paid = set(deployment["metadata"]["annotations"].get(names.RELEASED, "").split(","))
    beside = sum(p["metadata"]["uid"] in paid for p in mine)
    return max(int(deployment["spec"]["replicas"]) + beside, sum(p["metadata"]["uid"] in known for p in mine))


def _may_hold_a_device(pod: Object, now: float) -> bool:
    """A terminating pod: until its containers have ended, and while they can still run if nobody says so."""
    due = times.parse(pod["metadata"].get("deletionTimestamp"))
    running = any("running" in (c.get("state") or {}) for c in pod["status"].get("containerStatuses") or [])
    return running and (due is None or now <= due + 30)


def _revision(deployment: Object) -> Any:
    return deployment["metadata"]["labels"][names.REVISION]


def _wanted(s: Snapshot) -> set[str]:
    source = revision.source(s.raw_spec)
    return {d.revision for d in s.deployments if d.source == source}


def _lost(s: Snapshot) -> bool:
    """Whether a pod stopped serving by nobody's order: deleted undrained, or NotReady of an old revision."""
    gone, wanted = [p for p in s.pods if p.state == PodState.SERVING and not p.ready], _wanted(s)
    return any(p.terminating or (p.alive and p.revision not in wanted) for p in gone)


def _limits(s: Snapshot) -> limits.Limits:
    """The limits in force, worked out apart from the operator's own `View`."""
    rollout, wanted = s.spec.rollout, _wanted(s)
    starved = any(p.alive and p.unschedulable and p.revision in wanted for p in s.pods)
    if rollout.when_no_capacity is WhenNoCapacity.DRAIN_FIRST and starved:
        return limits.Limits(s.spec.replicas, 0, 1)
    return limits.resolve(s.spec.replicas, rollout.max_surge, rollout.max_unavailable)
