"""EndpointSlice, disruption and namespace controllers and the garbage collector, as 1.34 has them."""

import asyncio
import contextlib
from collections.abc import Mapping
from random import Random

from tidegate.api import names
from tidegate.api.errors import ClusterError, Conflict, NotFound
from tidegate.cluster.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    KINDS,
    LLM_SERVICES,
    NAMESPACES,
    PDBS,
    PODS,
    REPLICASETS,
    SECRETS,
    SERVICES,
    Kind,
    Object,
)
from tidegate.preview.apiserver import Server
from tidegate.preview.informer import Informer, WorkQueue
from tidegate.preview.shapes import active, owner, ready, selects


class EndpointSlices:
    """One slice per Service with a selector; NotReady pods are listed too, terminating ones until they are gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random, cache: Informer) -> None:
        self._server, self._cache = server, cache
        self._queue = WorkQueue(loop, rng, self._sync)
        cache.handlers.append(self._event)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if kind is SERVICES and event != "DELETED":
            self._queue.add(raw["metadata"]["uid"])
        elif kind is PODS:
            for uid, service in self._cache.objects[SERVICES].items():
                if _may_select(service["spec"].get("selector") or {}, raw):
                    self._queue.add(uid)

    def _sync(self, uid: str) -> bool:
        service = self._cache.objects[SERVICES].get(uid)
        if service is None or not service["spec"].get("selector"):
            return True
        meta, selector = service["metadata"], service["spec"]["selector"]
        endpoints = [
            _endpoint(pod)
            for pod in self._cache.objects[PODS].values()
            if pod["metadata"]["namespace"] == meta["namespace"]
            and all(pod["metadata"]["labels"].get(k) == v for k, v in selector.items())
            and pod["status"].get("podIP")
            and pod["status"]["phase"] not in ("Failed", "Succeeded")
        ]
        endpoints.sort(key=lambda e: str(e["targetRef"]["name"]))
        self._server.writer = "endpointslice-controller"
        live = self._server.find(ENDPOINT_SLICES, meta["namespace"], f"{meta['name']}-slice")
        if live is None:
            body = {
                "metadata": {
                    "name": f"{meta['name']}-slice",
                    "namespace": meta["namespace"],
                    "labels": {"kubernetes.io/service-name": meta["name"]},
                    "ownerReferences": [owner(SERVICES, service)],
                },
                "endpoints": endpoints,
            }
            self._server.create(ENDPOINT_SLICES, body)
        elif live["endpoints"] != endpoints:
            self._server.replace(ENDPOINT_SLICES, {**live, "endpoints": endpoints})
        return True


def _may_select(selector: Mapping[str, str], pod: Object) -> bool:
    """Whether the Service has to look at the pod again; it may have lost the pod by its state just now."""
    labels = pod["metadata"]["labels"]
    return all(labels.get(key) == value for key, value in selector.items() if key != names.STATE)


def _endpoint(pod: Object) -> Object:
    meta, serving, terminating = pod["metadata"], ready(pod), "deletionTimestamp" in pod["metadata"]
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": serving and not terminating, "serving": serving, "terminating": terminating},
        "targetRef": {"kind": "Pod", "name": meta["name"], "uid": meta["uid"]},
    }


class Budgets:
    """The disruption controller for integer minAvailable, the only form the operator writes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random, cache: Informer) -> None:
        self._server, self._cache = server, cache
        self._queue = WorkQueue(loop, rng, self._sync)
        cache.handlers.append(self._event)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if kind is PODS:
            for uid, budget in self._cache.objects[PDBS].items():
                # Of a pod that has left the selector by its labels the real one hears nothing either.
                if selects(budget, raw):
                    self._queue.add(uid)
        elif kind is PDBS and event != "DELETED":
            self._queue.add(raw["metadata"]["uid"])

    def _sync(self, uid: str) -> bool:
        budget = self._cache.objects[PDBS].get(uid)
        if budget is None:
            return True
        meta = budget["metadata"]
        live = self._server.find(PDBS, meta["namespace"], meta["name"])
        if live is None or live["metadata"]["uid"] != uid:
            return True
        covered = [p for p in self._cache.objects[PODS].values() if active(p) and selects(budget, p)]
        healthy, least = sum(map(ready, covered)), int(budget["spec"]["minAvailable"])
        status = {
            "observedGeneration": meta["generation"],
            "currentHealthy": healthy,
            "desiredHealthy": least,
            "expectedPods": len(covered),
            "disruptionsAllowed": max(healthy - least, 0),
        }
        self._server.writer = "disruption-controller"
        if live.get("status") != status:
            self._server.status(PDBS, meta["namespace"], meta["name"], status)
        return True


class GarbageCollector:
    """Deletes what has lost its owner, in the form of call by which the policies know it, and comes again on denial."""

    KINDS = (DEPLOYMENTS, REPLICASETS, PODS, SERVICES, PDBS, SECRETS, CONFIG_MAPS, ENDPOINT_SLICES)
    OWNERS = (LLM_SERVICES, DEPLOYMENTS, REPLICASETS, SERVICES)

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random) -> None:
        self._server = server
        self._queue = WorkQueue(loop, rng, self._collect)
        self._orphans = WorkQueue(loop, rng, self._orphan)
        server.watchers.append(self._event)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if event == "DELETED" and kind in self.OWNERS:
            self._queue.add(raw["metadata"]["uid"])
        elif event == "MODIFIED" and "orphan" in raw["metadata"].get("finalizers", ()):
            self._orphans.add(raw["metadata"]["uid"])
        elif event == "ADDED":
            # Somebody who had not yet heard of the owner's end made another child for it.
            for reference in raw["metadata"].get("ownerReferences") or []:
                if not any(o["metadata"]["uid"] == reference["uid"] for k in self.OWNERS for o in self._server.all(k)):
                    self._queue.add(reference["uid"])

    def _orphan(self, going: str) -> bool:
        """What was deleted without its children waits until they name it no more."""
        self._server.writer = "garbage-collector"
        for kind in self.KINDS:
            for raw in self._server.all(kind):
                meta = raw["metadata"]
                owners = meta.get("ownerReferences") or []
                others = [owner for owner in owners if owner["uid"] != going]
                if len(others) < len(owners):
                    self._server.replace(kind, {**raw, "metadata": {**meta, "ownerReferences": others}})
        for kind in self.OWNERS:
            for raw in self._server.all(kind):
                if raw["metadata"]["uid"] == going:
                    rest = [name for name in raw["metadata"].get("finalizers", ()) if name != "orphan"]
                    self._server.replace(kind, {**raw, "metadata": {**raw["metadata"], "finalizers": rest}})
        return True

    def _collect(self, gone: str) -> bool:
        self._server.writer = "garbage-collector"
        clean = True
        for kind in self.KINDS:
            for raw in self._server.all(kind):
                meta = raw["metadata"]
                owners = {r["uid"] for r in meta.get("ownerReferences") or []}
                if gone not in owners or owners != {gone}:
                    continue
                options = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"]}}
                try:
                    self._server.delete(kind, meta["namespace"], meta["name"], options)
                except (NotFound, Conflict):
                    continue
                except ClusterError:
                    clean = False
        return clean


class Namespaces:
    """Empties a namespace that goes, in no order that anybody may rely on, and ends it when nothing is left."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, rng: Random) -> None:
        self._server = server
        self._queue = WorkQueue(loop, rng, self._sync)
        server.watchers.append(self._event)

    def _event(self, event: str, kind: Kind, raw: Object) -> None:
        if kind is NAMESPACES and event == "MODIFIED":
            self._queue.add(raw["metadata"]["name"])

    def _sync(self, name: str) -> bool:
        self._server.writer = "namespace-controller"
        inside = [(k, raw) for k in KINDS for raw in self._server.all(k) if raw["metadata"].get("namespace") == name]
        for kind, raw in inside:
            with contextlib.suppress(ClusterError):
                self._server.delete(kind, name, raw["metadata"]["name"], {"propagationPolicy": "Background"})
        if any(raw["metadata"].get("namespace") == name for k in KINDS for raw in self._server.all(k)):
            return False
        self._server.remove(NAMESPACES, self._server.get(NAMESPACES, "", name))
        return True
