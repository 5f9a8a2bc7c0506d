"""Turns plans into writes. Each is safe to repeat, has its own precondition, and puts its answer into the store."""

import contextlib
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.errors import ClusterError, Conflict, NotFound, Rejected, TemplateRefused, TidegateError
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.planner import actions as a
from tidegate.core.render import objects, sidecar
from tidegate.core.report import conflicts, events
from tidegate.core.state.snapshot import Snapshot

from . import gather, project
from .keys import DrainKeys
from .port import DEPLOYMENTS, NAMESPACES, PDBS, PODS, REPLICASETS, SERVICES, Cluster, Kind, Object
from .store import Store

log = logging.getLogger(__name__)
CHILD_KINDS = {"Service": SERVICES, "PodDisruptionBudget": PDBS}


class Announces(Protocol):
    """Where transitions are announced as Events."""

    async def __call__(self, snapshot: Snapshot, reason: str, message: str, *, warning: bool = False) -> None:
        """Announce one transition; never raises for a failed write."""


class Executor:
    """Executes the actions of a plan in order; a failed action does not stop the others."""

    def __init__(self, cluster: Cluster, store: Store, keys: DrainKeys, announce: Announces) -> None:
        self._cluster, self._store, self._keys, self._record = cluster, store, keys, announce

    async def execute(self, snapshot: Snapshot, plan: Iterable[a.Action]) -> None:
        """Execute all actions; then raises the first `ClusterError` or `TemplateRefused`, if any."""
        failure: TidegateError | None = None
        for action in plan:
            try:
                await self._one(snapshot, action)
            except NotFound:
                # The object is gone, and the watch will report it: a delete has succeeded, all else needs a new plan.
                log.info("service=%s/%s gone before %s", snapshot.namespace, snapshot.name, type(action).__name__)
                self._forget_pod(snapshot, action)
            except (ClusterError, TemplateRefused) as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _forget_pod(self, snapshot: Snapshot, action: a.Action) -> None:
        """Drop a pod that does not exist: its deletion may never be seen, and every pass would retry at once."""
        if isinstance(action, a.Withdraw | a.UpdateDrain | a.Restore | a.MarkDrained | a.DeletePod):
            held = self._store.get(PODS, snapshot.namespace, action.pod)
            if held is not None and held["metadata"]["uid"] == action.uid:
                self._store.remove(PODS, held)

    async def _one(self, snapshot: Snapshot, action: a.Action) -> None:
        match action:
            case a.CreateRevision():
                await self._create(snapshot, action)
            case a.Scale():
                await self._scale(snapshot, action)
            case a.Withdraw() | a.UpdateDrain() | a.Restore() | a.MarkDrained():
                await self._label(snapshot, action)
            case a.DeletePod():
                await self._delete_pod(snapshot, action)
            case a.DeleteDeployment():
                await self._cluster.delete(DEPLOYMENTS, snapshot.namespace, action.name, uid=action.uid)
            case a.Adopt():
                await self._adopt(snapshot, action)
            case a.ApplyChild():
                kind = CHILD_KINDS[action.kind]
                if self._store.get(kind, snapshot.namespace, action.name) is None:
                    await self._may_create(snapshot.namespace)
                answer = await self._cluster.apply(
                    kind, snapshot.namespace, action.name, action.body, manager=names.FIELD_MANAGER
                )
                self._store.put(kind, answer)
            case a.DeleteChild():
                await self._cluster.delete(CHILD_KINDS[action.kind], snapshot.namespace, action.name, uid=action.uid)
            case a.EnsureSecret():
                await self._may_create(snapshot.namespace)
                await self._keys.ensure(_owner(snapshot))

    async def _create(self, snapshot: Snapshot, action: a.CreateRevision) -> None:
        owner = _owner(snapshot)
        prestop = await self._keys.prestop_key(owner, action.revision)
        grace = grace_period(snapshot.spec, snapshot.drain_times)
        revision = objects.Revision(action.revision, action.source, grace, prestop, snapshot.gateway_image)
        body = objects.deployment(owner, snapshot.spec, revision, action.replicas)
        name = objects.deployment_name(owner, action.revision)
        if action.refresh:
            body["metadata"] |= {"uid": action.uid, "resourceVersion": action.version}
        else:
            await self._may_create(snapshot.namespace)
            await self._must_be_free(snapshot, name)
        try:
            await self._apply(name, snapshot.namespace, body, dry_run=True)
        except Rejected as error:
            # The Deployment's spec.template has the same paths as the user's, except for the gateway.
            template = body["spec"]["template"]
            causes = [(sidecar.blamed(field, template), text) for field, text in error.causes]
            raise TemplateRefused(causes or [("", str(error))]) from error
        self._store.put(DEPLOYMENTS, await self._apply(name, snapshot.namespace, body, dry_run=False))
        if not action.refresh:
            await self._announce(snapshot, events.created(name, action.replicas))

    async def _may_create(self, namespace: str) -> None:
        """A child may be missing because its namespace is being terminated, which the watch may not have seen yet."""
        with contextlib.suppress(NotFound):
            live = await self._cluster.get(NAMESPACES, None, namespace)
            self._store.put(NAMESPACES, live)
            if live["metadata"].get("deletionTimestamp"):
                raise Conflict(f"namespace {namespace} is being terminated")

    async def _must_be_free(self, snapshot: Snapshot, name: str) -> None:
        """Apply creates or changes. A Deployment that exists unseen must not be taken over, nor get other replicas."""
        try:
            live = await self._cluster.get(DEPLOYMENTS, snapshot.namespace, name)
        except NotFound:
            return
        if (live["metadata"].get("labels") or {}).get(names.SERVICE) != snapshot.name:
            raise TemplateRefused([("metadata.name", conflicts.not_ours("Deployment", name))])
        self._store.put(DEPLOYMENTS, live)
        raise Conflict(f"Deployment {name} exists already")

    async def _apply(self, name: str, namespace: str, body: Object, *, dry_run: bool) -> Object:
        manager = names.FIELD_MANAGER
        return await self._cluster.apply(DEPLOYMENTS, namespace, name, body, manager=manager, dry_run=dry_run)

    async def _scale(self, snapshot: Snapshot, action: a.Scale) -> None:
        body = objects.scale(action.deployment, snapshot.namespace, action.replicas, action.released)
        # A late write, also of an operator that was killed, must not undo replicas that it has not seen.
        body["metadata"] |= {"uid": action.uid, "resourceVersion": action.version}
        manager = names.FIELD_MANAGER_SCALE
        try:
            answer = await self._cluster.apply(
                DEPLOYMENTS, snapshot.namespace, action.deployment, body, manager=manager
            )
        except Conflict:
            await self._look_again(DEPLOYMENTS, snapshot.namespace, action.deployment)
            raise
        self._store.put(DEPLOYMENTS, answer)
        log.info(
            "service=%s/%s scaled=%s to=%d why=%s",
            snapshot.namespace,
            snapshot.name,
            action.deployment,
            action.replicas,
            action.why,
        )

    async def _label(self, snapshot: Snapshot, action: a.Withdraw | a.UpdateDrain | a.Restore | a.MarkDrained) -> None:
        try:
            answer = await self._cluster.patch(PODS, snapshot.namespace, action.pod, operations(action))
        except Conflict:
            await self._look_again(PODS, snapshot.namespace, action.pod)
            raise
        self._store.put(PODS, answer)
        match action:
            case a.Withdraw(pod=pod, record=record):
                log.info(
                    "service=%s/%s pod=%s draining reason=%s", snapshot.namespace, snapshot.name, pod, record.reason
                )
                await self._announce(snapshot, events.withdrawn(snapshot, action.uid, pod, record.reason))
            case a.Restore(pod=pod):
                await self._announce(snapshot, events.restored(pod))
            case a.MarkDrained(pod=pod, outcome=outcome):
                log.info(
                    "service=%s/%s pod=%s drained outcome=%s cut=%s",
                    snapshot.namespace,
                    snapshot.name,
                    pod,
                    outcome.outcome,
                    outcome.cut,
                )
                await self._announce(snapshot, events.drained(snapshot, action))
            case _:
                pass

    async def _announce(self, snapshot: Snapshot, event: events.Event) -> None:
        await self._record(snapshot, event.reason, event.message, warning=event.warning)

    async def _look_again(self, kind: Kind, namespace: str, name: str) -> None:
        """After a conflict the watch may lag: base the next plan on the current object of the API server."""
        self._store.put(kind, await self._cluster.get(kind, namespace, name))

    async def _delete_pod(self, snapshot: Snapshot, action: a.DeletePod) -> None:
        # Its ReplicaSet may have deleted it while the watch lagged: check before the only irreversible step.
        live = await self._cluster.get(PODS, snapshot.namespace, action.pod)
        self._store.put(PODS, live)
        if live["metadata"]["uid"] != action.uid or live["metadata"].get("deletionTimestamp"):
            return
        # Replicas that were raised and lowered again look settled in a store that lags: check, or the pod is replaced.
        owner = await self._cluster.get(REPLICASETS, snapshot.namespace, action.replica_set)
        self._store.put(REPLICASETS, owner)
        if not project.settled_at(owner, action.replicas):
            raise Conflict(f"ReplicaSet {action.replica_set} has not seen its replicas yet")
        # It may have deleted another drained pod instead of this one: then its replicas have to be lowered again first.
        revision = live["metadata"]["labels"][names.REVISION]
        selector = f"{names.SERVICE}={snapshot.name},{names.REVISION}={revision}"
        siblings, _ = await self._cluster.list(PODS, snapshot.namespace, labels=selector)
        for sibling in siblings:
            self._store.put(PODS, sibling)
        if sum(project.pod(sibling).alive for sibling in siblings) != action.standing:
            raise Conflict(f"the number of pods of ReplicaSet {action.replica_set} has changed in the meantime")
        await self._cluster.delete(PODS, snapshot.namespace, action.pod, uid=action.uid)
        log.info(
            "service=%s/%s pod=%s deleted: its ReplicaSet has seen fewer replicas",
            snapshot.namespace,
            snapshot.name,
            action.pod,
        )

    async def _adopt(self, snapshot: Snapshot, action: a.Adopt) -> None:
        live = await self._cluster.get(DEPLOYMENTS, snapshot.namespace, action.name)
        if live["metadata"]["uid"] != action.uid or project.controller(live):
            self._store.put(DEPLOYMENTS, live)
            return
        answer = await self._cluster.patch(
            DEPLOYMENTS, snapshot.namespace, action.name, gather.adoption(live, _owner(snapshot))
        )
        self._store.put(DEPLOYMENTS, answer)


def operations(action: a.Withdraw | a.UpdateDrain | a.Restore | a.MarkDrained) -> list[dict[str, Any]]:
    """The JSON patch of a change of state, with tests of what the decision relied on: uid, state, drain record."""
    state = f"/metadata/labels/{_escape(names.STATE)}"
    drain = f"/metadata/annotations/{_escape(names.DRAIN)}"
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": action.uid}]
    if isinstance(action, a.Withdraw | a.MarkDrained) and action.version:
        patch.append({"op": "test", "path": "/metadata/resourceVersion", "value": action.version})
    known = (
        action.old if isinstance(action, a.UpdateDrain) else None if isinstance(action, a.Withdraw) else action.record
    )
    if known is not None and known.raw:
        # The decision does not apply to another drain, not even to the next one of the same pod.
        patch.append({"op": "test", "path": drain, "value": known.raw})
    match action:
        case a.Withdraw(record=record):
            patch += _change(state, PodState.SERVING.value, PodState.DRAINING.value)
            patch.append({"op": "add", "path": drain, "value": project.drain_text(record)})
        case a.UpdateDrain(record=record):
            patch.append({"op": "test", "path": state, "value": PodState.DRAINING.value})
            patch.append({"op": "add", "path": drain, "value": project.drain_text(record)})
        case a.Restore():
            patch += _change(state, PodState.DRAINING.value, PodState.SERVING.value)
            patch.append({"op": "remove", "path": drain})
        case a.MarkDrained(state=before, outcome=outcome):
            patch += _change(state, before, PodState.DRAINED.value)
            for key, value in (
                (names.OUTCOME, project.outcome_text(outcome)),
                (names.DELETION_COST, names.LOWEST_COST),
            ):
                patch.append({"op": "add", "path": f"/metadata/annotations/{_escape(key)}", "value": value})
    return patch


def _change(path: str, before: str, after: str) -> list[dict[str, Any]]:
    return [{"op": "test", "path": path, "value": before}, {"op": "replace", "path": path, "value": after}]


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _owner(snapshot: Snapshot) -> objects.Owner:
    return objects.Owner(snapshot.namespace, snapshot.name, snapshot.uid)
