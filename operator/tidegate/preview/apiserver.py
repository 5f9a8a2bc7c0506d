"""The API server in memory: objects, versions, admission, deletion and events, for everybody in that cluster.

Objects are never changed once stored: every write makes new dicts along its path, so the same object may be handed to
all readers without a copy.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tidegate.api.errors import Conflict, Denied, NotFound, Rejected, Unavailable
from tidegate.cluster.port import (
    DEPLOYMENTS,
    KINDS,
    LLM_SERVICES,
    NAMESPACES,
    PDBS,
    PODS,
    POLICIES,
    POLICY_BINDINGS,
    REPLICASETS,
    Kind,
    Object,
)
from tidegate.core.state import times
from tidegate.preview import ownership, schema
from tidegate.preview.gate import Gate, Request
from tidegate.preview.patches import merged, operate
from tidegate.preview.shapes import selects

Key = tuple[str, str]
Watcher = Callable[[str, Kind, Object], None]
WITH_GENERATION = frozenset((LLM_SERVICES, DEPLOYMENTS, REPLICASETS, PDBS))


class Server:
    """Everything that is stored; each write is one atomic step. `writer` names who acts, for checks and traces."""

    def __init__(self, now: Callable[[], float], gate: Gate) -> None:
        self.now, self._gate = now, gate
        self.writer = "user"
        self.version = 100
        self.watchers: list[Watcher] = []
        self.written: list[Callable[[str, Kind, Object | None, Object | None], None]] = []
        self.refuse_images: frozenset[str] = frozenset()
        """Images that the API server's validation refuses, as it does a template with a bad field."""
        self._objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self._owners: dict[tuple[Kind, Key], ownership.Owners] = {}
        self._uids = itertools.count(1)

    # -- reading

    def find(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object of that name, if it is there."""
        return self._objects[kind].get((namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Raises NotFound."""
        found = self._objects[kind].get((namespace, name))
        if found is None:
            raise NotFound(f'{kind.plural} "{name}" not found')
        return found

    def all(self, kind: Kind) -> Iterator[Object]:
        """The objects of a kind in the order in which they were made, as they are now."""
        return iter(list(self._objects[kind].values()))

    def denying_policies(self) -> list[Object]:
        """The policies that a binding makes refuse, in the order they were stored."""
        bindings = self._objects[POLICY_BINDINGS].values()
        deny = {b["spec"]["policyName"] for b in bindings if "Deny" in b["spec"]["validationActions"]}
        return [policy for (_, name), policy in self._objects[POLICIES].items() if name in deny]

    # -- writing

    def create(self, kind: Kind, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        """Raises Conflict when the name is taken, Rejected."""
        meta = dict(body["metadata"])
        key = (meta.get("namespace", ""), meta["name"])
        if key in self._objects[kind]:
            raise Conflict(f'{kind.plural} "{meta["name"]}" already exists')
        if self._goes(key[0]):
            raise Denied(f"unable to create new content in namespace {key[0]} because it is being terminated")
        meta["uid"] = f"uid-{next(self._uids)}"
        meta["creationTimestamp"] = times.short(self.now())
        if kind in WITH_GENERATION:
            meta["generation"] = 1
        made = {"apiVersion": kind.api_version, "kind": kind.kind, **body, "metadata": meta}
        if kind is LLM_SERVICES:
            made = schema.settled({key: made[key] for key in made if key != "status"})
        elif kind is PODS:
            made.setdefault("status", {"phase": "Pending"})
        schema.validate(kind, None, made, self.refuse_images)
        return made if dry_run else self._store(kind, key, None, made)

    def replace(self, kind: Kind, new: Object, *, subresource: str = "", dry_run: bool = False) -> Object:
        """Store another state of an object; what changes nothing is not a write. Raises as the API server does."""
        key = (new["metadata"].get("namespace", ""), new["metadata"]["name"])
        old = self.get(kind, *key)
        if new["metadata"]["uid"] != old["metadata"]["uid"]:
            raise Conflict("Precondition failed: UID in precondition is another one")
        if kind is LLM_SERVICES:
            new = schema.settled(new)
        if not subresource:
            new = {key: new[key] for key in new if key != "status"} | (
                {"status": old["status"]} if "status" in old else {}
            )
            schema.validate(kind, old, new, self.refuse_images)
            self._admit(Request("UPDATE", kind.plural, old, new))
        if new == old:
            return old
        meta = dict(new["metadata"])
        noted = kind is DEPLOYMENTS and meta.get("annotations") != old["metadata"].get("annotations")
        if kind in WITH_GENERATION and (noted or new.get("spec") != old.get("spec")):
            meta["generation"] = old["metadata"]["generation"] + 1
        new = {**new, "metadata": meta}
        if dry_run:
            return new
        stored = self._store(kind, key, old, new)
        if "deletionTimestamp" in meta and old["metadata"].get("finalizers") and not meta.get("finalizers"):
            self.remove(kind, stored)
        return stored

    def status(self, kind: Kind, namespace: str, name: str, status: Mapping[str, Any]) -> Object:
        """Store another status. Raises as `replace` does."""
        return self.replace(kind, {**self.get(kind, namespace, name), "status": dict(status)}, subresource="status")

    def apply(
        self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], manager: str, dry_run: bool
    ) -> Object:
        """Server-side apply with force."""
        key = (namespace, name)
        live = self._objects[kind].get(key)
        known = body["metadata"]
        self._gate.typed(kind, body)
        if live is None and known.get("uid"):
            raise Conflict(f"uid mismatch: {known['uid']} was given, and no existing object was found")
        if live is not None and known.get("resourceVersion") not in (None, live["metadata"]["resourceVersion"]):
            raise Conflict(f"{kind.kind} {name} has been modified")
        if live is not None and known.get("uid") not in (None, live["metadata"]["uid"]):
            raise Rejected(f"{kind.kind} {name} is invalid", [("metadata.uid", "Invalid value: field is immutable")])
        body = {**body, "metadata": {k: v for k, v in known.items() if k not in ("uid", "resourceVersion")}}
        result, owners = ownership.apply(live, self._owners.get((kind, key), {}), body, manager)
        if live is None:
            result["metadata"] = {**result["metadata"], "name": name, "namespace": namespace}
            stored = self.create(kind, result, dry_run=dry_run)
        else:
            stored = self.replace(kind, result, dry_run=dry_run)
        if not dry_run:
            self._owners[kind, key] = owners
        return stored

    def patch(
        self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]], subresource: str = ""
    ) -> Object:
        """JSON patch; what cannot be applied is a Conflict, as the operator's client reads the server's 422."""
        result = self.get(kind, namespace, name)
        for operation in operations:
            path = tuple(p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:])
            result = operate(result, operation["op"], path, operation.get("value"))
        return self.replace(kind, result, subresource=subresource)

    def merge(self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any], subresource: str = "") -> Object:
        """JSON merge patch, as people's commands send it."""
        old = self.get(kind, namespace, name)
        if subresource == "scale":
            return self._rescale(kind, old, body)
        return self.replace(kind, merged(old, body), subresource=subresource)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        evicted: bool = False,
    ) -> None:
        """DELETE as it comes from anybody. A running pod terminates first, everything else is gone at once."""
        options = options or {}
        old = self.get(kind, namespace, name)
        wanted = (options.get("preconditions") or {}).get("uid", old["metadata"]["uid"])
        if wanted != old["metadata"]["uid"]:
            raise Conflict(f"Precondition failed: UID in precondition: {wanted}, UID in object meta: another one")
        if not evicted:
            self._admit(Request("DELETE", kind.plural, old, options=options))
        terminating = "deletionTimestamp" in old["metadata"]
        grace = options.get("gracePeriodSeconds", (old.get("spec") or {}).get("terminationGracePeriodSeconds", 30))
        lives = kind is PODS and old["spec"].get("nodeName") and old["status"]["phase"] in ("Pending", "Running")
        held = [*old["metadata"].get("finalizers", ()), *["orphan"] * (options.get("propagationPolicy") == "Orphan")]
        if not (lives and grace) and not held and kind is not NAMESPACES:
            self.remove(kind, old)
        elif not terminating:
            stamp = {"deletionTimestamp": times.short(self.now() + grace), "deletionGracePeriodSeconds": grace}
            stamp |= {"finalizers": held} if held else {}
            self._store(kind, (namespace, name), old, {**old, "metadata": {**old["metadata"], **stamp}})

    def evict(self, namespace: str, name: str) -> None:
        """The eviction subresource: budgets decide, DELETE admission does not. Raises Unavailable (429)."""
        pod = self.get(PODS, namespace, name)
        budgets = [b for b in self.all(PDBS) if b["metadata"]["namespace"] == namespace and selects(b, pod)]
        if len(budgets) > 1:
            raise Unavailable("This pod has more than one PodDisruptionBudget (500)")
        if budgets and "deletionTimestamp" not in pod["metadata"]:
            self._spend(budgets[0], pod)
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        conditions = [c for c in pod["status"].get("conditions") or [] if c["type"] != "DisruptionTarget"]
        self.status(PODS, namespace, name, {**pod["status"], "conditions": [*conditions, target]})
        self.delete(PODS, namespace, name, evicted=True)

    def remove(self, kind: Kind, old: Object) -> None:
        """The object goes from the store."""
        key = (old["metadata"].get("namespace", ""), old["metadata"]["name"])
        del self._objects[kind][key]
        self._owners.pop((kind, key), None)
        self.version += 1
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        self._notify("DELETED", kind, old, None, last)

    # -- inside

    def _store(self, kind: Kind, key: Key, old: Object | None, new: Object) -> Object:
        self.version += 1
        new["metadata"] = {**new["metadata"], "resourceVersion": str(self.version)}
        self._objects[kind][key] = new
        self._notify("ADDED" if old is None else "MODIFIED", kind, old, new, new)
        return new

    def _notify(self, event: str, kind: Kind, old: Object | None, new: Object | None, last: Object) -> None:
        for check in self.written:
            check(self.writer, kind, old, new)
        for watcher in self.watchers:
            watcher(event, kind, last)

    def _goes(self, namespace: str) -> bool:
        found = self._objects[NAMESPACES].get(("", namespace))
        return found is not None and "deletionTimestamp" in found["metadata"]

    def _admit(self, request: Request) -> None:
        namespace = self._objects[NAMESPACES].get(("", request.old["metadata"].get("namespace", "")))
        if namespace is not None:
            request = dataclasses.replace(request, namespace=namespace)
        reason = self._gate.refusal(request, self.denying_policies())
        if reason is not None:
            raise Denied(f'{request.resource} "{request.old["metadata"]["name"]}" is forbidden: {reason}')

    def _rescale(self, kind: Kind, old: Object, body: Mapping[str, Any]) -> Object:
        status = old.get("status") or {}
        if kind is LLM_SERVICES:
            selector = str(status.get("selector", ""))
        else:
            selector = ",".join(f"{k}={v}" for k, v in sorted(old["spec"]["selector"]["matchLabels"].items()))
        before = {"metadata": old["metadata"], "spec": {"replicas": old["spec"]["replicas"]}}
        before["status"] = {"replicas": status.get("replicas", 0), "selector": selector}
        after = merged(before, body)
        self._admit(Request("UPDATE", f"{kind.plural}/scale", before, after))
        changed = {**old, "spec": {**old["spec"], "replicas": after["spec"]["replicas"]}}
        self.replace(kind, changed, subresource="scale")
        return after

    def _spend(self, budget: Object, pod: Object) -> None:
        status = budget.get("status") or {}
        if status.get("observedGeneration") != budget["metadata"]["generation"]:
            raise Unavailable("Cannot evict pod: the disruption budget is still being processed (429)", 10.0)
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions") or [])
        if pod["status"]["phase"] == "Pending":
            return
        always = budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        if not ready and (always or status["currentHealthy"] >= status["desiredHealthy"] > 0):
            return
        if status["disruptionsAllowed"] <= 0:
            raise Unavailable("Cannot evict pod as it would violate the pod's disruption budget (429)")
        left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1}
        self.status(PDBS, budget["metadata"]["namespace"], budget["metadata"]["name"], left)
