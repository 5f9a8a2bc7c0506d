"""Deployment and ReplicaSet controllers as 1.34 has them, and the manager that holds all controllers.

Each works from caches that lag. The order in which a ReplicaSet picks its victims is the real one, deletion cost and
readiness included, since that is what the operator has to live with.
"""

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from tidegate.api import names
from tidegate.api.errors import ClusterError, NotFound
from tidegate.cluster.port import (
    DEPLOYMENTS,
    PDBS,
    PODS,
    REPLICASETS,
    SERVICES,
    Kind,
    Object,
)
from tidegate.core.state import times
from tidegate.preview.apiserver import Server
from tidegate.preview.followers import Budgets, EndpointSlices, GarbageCollector, Namespaces
from tidegate.preview.informer import Informer, WorkQueue
from tidegate.preview.shapes import active, controller_uid, owner, ready, ready_since

HASH = "pod-template-hash"
DESIRED = "deployment.kubernetes.io/desired-replicas"
CACHED = (DEPLOYMENTS, REPLICASETS, PODS, SERVICES, PDBS)


class ControllerManager:
    """All controllers of one kube-controller-manager: they share their caches."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random, lag: Callable[[Kind], float]
    ) -> None:
        self.cache = Informer(loop, server, CACHED, lag)
        self.replica_sets = ReplicaSets(loop, server, rng, self.cache)
        self.deployments = Deployments(loop, server, rng, self.cache)
        self.slices = EndpointSlices(loop, server, rng, self.cache)
        self.budgets = Budgets(loop, server, rng, self.cache)
        self.garbage = GarbageCollector(loop, server, rng)
        self.namespaces = Namespaces(loop, server, rng)


class Deployments:
    """One ReplicaSet per template, at the Deployment's count: the operator never changes a template that has pods."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random, cache: Informer) -> None:
        self._server, self._cache = server, cache
        self._queue = WorkQueue(loop, rng, self._sync)
        self._templates = itertools.count(1)
        cache.handlers.append(self._event)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if kind is DEPLOYMENTS and event != "DELETED":
            self._queue.add(raw["metadata"]["uid"])
        elif kind is REPLICASETS:
            self._queue.add(controller_uid(raw))

    def _sync(self, uid: str) -> bool:
        deployment = self._cache.objects[DEPLOYMENTS].get(uid)
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            return True
        sets = [r for r in self._cache.owned_by(uid) if r["kind"] == "ReplicaSet"]
        template = deployment["spec"]["template"]
        mine = [r for r in sets if _without_hash(r["spec"]["template"]) == template]
        self._server.writer = "deployment-controller"
        try:
            if mine:
                self._scale(mine[0], deployment["spec"]["replicas"])
            else:
                self._create(deployment)
            for old in sets:
                if old not in mine[:1] and old["spec"]["replicas"]:
                    self._scale(old, 0)
            self._report(deployment, sets)
        except NotFound:
            return True
        except ClusterError:
            return False
        return True

    def _create(self, deployment: Object) -> None:
        meta, spec = deployment["metadata"], deployment["spec"]
        digest = f"rs{next(self._templates)}"
        labels = {**spec["template"]["metadata"]["labels"], HASH: digest}
        count = spec["replicas"]
        template = {**spec["template"], "metadata": {**spec["template"]["metadata"], "labels": labels}}
        body = {
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "namespace": meta["namespace"],
                "labels": labels,
                "annotations": {DESIRED: str(count)},
                "ownerReferences": [owner(DEPLOYMENTS, deployment)],
            },
            "spec": {
                "replicas": count,
                "selector": {"matchLabels": {**spec["selector"]["matchLabels"], HASH: digest}},
                "template": template,
            },
            "status": {"replicas": 0},
        }
        live = self._server.all(REPLICASETS)
        if any(controller_uid(r) == meta["uid"] and r["spec"]["template"] == template for r in live):
            return
        if any(
            controller_uid(r) == meta["uid"] and _without_hash(r["spec"]["template"]) == spec["template"]
            for r in self._server.all(REPLICASETS)
        ):
            return  # Our cache lags: the name would be taken.
        self._server.create(REPLICASETS, body)

    def _scale(self, replica_set: Object, count: int) -> None:
        if replica_set["spec"]["replicas"] == count:
            return
        meta = replica_set["metadata"]
        live = self._server.get(REPLICASETS, meta["namespace"], meta["name"])
        if live["spec"] != replica_set["spec"]:
            # Its write carries the version it has read, so it would fail; the newer event brings it back.
            return
        annotations = {**(live["metadata"].get("annotations") or {}), DESIRED: str(count)}
        changed = {**live, "metadata": {**live["metadata"], "annotations": annotations}}
        self._server.replace(REPLICASETS, {**changed, "spec": {**live["spec"], "replicas": count}})

    def _report(self, deployment: Object, sets: list[Object]) -> None:
        meta = deployment["metadata"]
        live = self._server.get(DEPLOYMENTS, meta["namespace"], meta["name"])
        failures = [c for r in sets for c in (r.get("status") or {}).get("conditions") or []]
        status: dict[str, Any] = {
            "observedGeneration": meta["generation"],
            "replicas": sum(int((r.get("status") or {}).get("replicas", 0)) for r in sets),
            "conditions": [c for c in failures if c["type"] == "ReplicaFailure"],
        }
        if live.get("status") != status:
            self._server.status(DEPLOYMENTS, meta["namespace"], meta["name"], status)


def _without_hash(template: Mapping[str, Any]) -> Object:
    labels = {k: v for k, v in template["metadata"]["labels"].items() if k != HASH}
    return {**template, "metadata": {**template["metadata"], "labels": labels}}


class ReplicaSets:
    """Replaces lost pods at once, and deletes surplus ones by rank, from its cache, with expectations and backoff."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random, cache: Informer) -> None:
        self._loop, self._server, self._cache = loop, server, cache
        self._queue = WorkQueue(loop, rng, self._sync)
        self._creating: dict[str, set[str]] = {}
        self._deleting: dict[str, set[str]] = {}
        self._pods = itertools.count(1)
        self.denied = 0
        self.refuse = ""
        """Message with which admission or a quota refuses new pods."""
        cache.handlers.append(self._event)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        uid = raw["metadata"]["uid"]
        if kind is REPLICASETS and event != "DELETED":
            self._queue.add(uid)
        elif kind is PODS:
            home = controller_uid(raw)
            self._creating.get(home, set()).discard(uid)
            if event == "DELETED" or "deletionTimestamp" in raw["metadata"]:
                self._deleting.get(home, set()).discard(uid)
            self._queue.add(home)

    def _sync(self, uid: str) -> bool:
        replica_set = self._cache.objects[REPLICASETS].get(uid)
        if replica_set is None:
            return True
        pods = [p for p in self._cache.owned_by(uid) if active(p)]
        failure = None
        self._server.writer = "replicaset-controller"
        if not self._creating.get(uid) and not self._deleting.get(uid):
            failure = self._manage(replica_set, pods)
        with contextlib.suppress(NotFound):
            self._report(replica_set, pods, failure)
        return failure is None

    def _manage(self, replica_set: Object, pods: list[Object]) -> tuple[str, str] | None:
        surplus = len(pods) - replica_set["spec"]["replicas"]
        if surplus < 0:
            return self._start(replica_set, -surplus)
        failure = None
        for victim in self._victims(pods, surplus):
            meta = victim["metadata"]
            waiting = self._deleting.setdefault(replica_set["metadata"]["uid"], set())
            waiting.add(meta["uid"])
            try:
                self._server.delete(PODS, meta["namespace"], meta["name"])
            except NotFound:
                waiting.discard(meta["uid"])
            except ClusterError as error:
                waiting.discard(meta["uid"])
                self.denied += 1
                failure = ("FailedDelete", str(error))
        return failure

    def _start(self, replica_set: Object, count: int) -> tuple[str, str] | None:
        if self.refuse:
            return ("FailedCreate", self.refuse)
        meta, template = replica_set["metadata"], replica_set["spec"]["template"]
        for _ in range(count):
            body = {
                "metadata": {
                    **template["metadata"],
                    "name": f"{meta['name']}-{next(self._pods):04d}",
                    "namespace": meta["namespace"],
                    "ownerReferences": [owner(REPLICASETS, replica_set)],
                },
                "spec": template["spec"],
                "status": {"phase": "Pending"},
            }
            made = self._server.create(PODS, body)
            self._creating.setdefault(meta["uid"], set()).add(made["metadata"]["uid"])
        return None

    def _victims(self, pods: list[Object], surplus: int) -> list[Object]:
        if surplus <= 0:
            return []
        now = self._server.now()
        crowd: dict[str, int] = {}
        for pod in pods:
            node = pod["spec"].get("nodeName", "")
            crowd[node] = crowd.get(node, 0) + 1
        return sorted(pods, key=lambda pod: rank(pod, crowd, now))[:surplus]

    def _report(self, replica_set: Object, pods: list[Object], failure: tuple[str, str] | None) -> None:
        meta = replica_set["metadata"]
        live = self._server.get(REPLICASETS, meta["namespace"], meta["name"])
        if live["metadata"]["uid"] != meta["uid"]:
            return
        wanted = replica_set["spec"]["template"]["metadata"]["labels"]
        labelled = [p for p in pods if all(p["metadata"]["labels"].get(k) == v for k, v in wanted.items())]
        conditions = []
        if failure is not None:
            row = {"type": "ReplicaFailure", "status": "True", "reason": failure[0], "message": failure[1]}
            conditions = [row]
        status = {
            "observedGeneration": meta["generation"],
            "replicas": len(pods),
            "fullyLabeledReplicas": len(labelled),
            "readyReplicas": sum(map(ready, pods)),
            "conditions": conditions,
        }
        if live.get("status") != status:
            self._server.status(REPLICASETS, meta["namespace"], meta["name"], status)


def rank(pod: Object, crowd: Mapping[str, int], now: float) -> tuple[Any, ...]:
    """Who goes first when a ReplicaSet has too many: `ActivePodsWithRanks.Less` of 1.34, smallest first."""
    meta, spec, status = pod["metadata"], pod["spec"], pod["status"]
    phase = {"Pending": 0, "Unknown": 1, "Running": 2}[status["phase"]]
    containers = status.get("containerStatuses") or []
    return (
        "nodeName" in spec,
        phase,
        ready(pod),
        _cost((meta.get("annotations") or {}).get(names.DELETION_COST)),
        -crowd[spec.get("nodeName", "")],
        _bucket(now - ready_since(pod)) if ready(pod) else 0,
        -max((c.get("restartCount", 0) for c in containers), default=0),
        _bucket(now - (times.parse(meta["creationTimestamp"]) or 0.0)),
        meta["uid"],
    )


def _cost(text: object) -> int:
    try:
        value = int(str(text))
    except ValueError:
        return 0
    return value if str(value) == text and -(2**31) <= value < 2**31 else 0


def _bucket(seconds: float) -> int:
    return int(math.log2(seconds)) if seconds >= 1 else 0
