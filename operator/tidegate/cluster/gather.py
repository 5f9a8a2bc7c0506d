"""The store's view of one service, as the core's snapshot."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import LLMServiceStatus
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.planner import revision
from tidegate.core.render import objects
from tidegate.core.report import conflicts
from tidegate.core.state.snapshot import Conflict, Deployment, Pod, Reading, ReplicaSet, Snapshot, Trouble

from . import project, selectors
from .port import DEPLOYMENTS, LLM_SERVICES, PDBS, PODS, REPLICASETS, SERVICES, Kind, Object
from .store import Store


@dataclass(frozen=True, slots=True)
class Children:
    """What belongs to one LLMService."""

    deployments: tuple[Deployment, ...]
    replica_sets: tuple[ReplicaSet, ...]
    pods: tuple[Pod, ...]
    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What a snapshot holds and the store does not: read by name, heard from pods, or remembered by this process.

    The fields are those of `Snapshot`.
    """

    now: float
    """Unix seconds."""
    readings: Mapping[str, Reading] = field(default_factory=dict)
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    """Beside those that the store shows."""
    locks_missing: tuple[str, ...] = ()
    gateway_image: str = names.GATEWAY_IMAGE
    poll_seconds: float = 5.0
    has_secret: bool = True
    refused: str = ""
    rejected: tuple[tuple[str, str], ...] = ()
    drain_times: DrainTimes = field(default_factory=DrainTimes)
    drain_times_trouble: str = ""
    last_seen: Mapping[str, Pod] = field(default_factory=dict)


def snapshot(store: Store, service: Object, spec: LLMServiceSpec, known: Known) -> Snapshot:
    """Everything about `service`: its objects from the store, and what is `known` besides."""
    meta = service["metadata"]
    owner = objects.Owner(meta["namespace"], meta["name"], meta["uid"])
    children = _children(store, owner)
    live_service, clash = _child(store, SERVICES, owner, objects.service_name(owner, spec), spec.service.create)
    live_budget, other = _child(store, PDBS, owner, owner.name, True)
    return Snapshot(
        now=known.now,
        namespace=owner.namespace,
        name=owner.name,
        uid=owner.uid,
        generation=int(meta.get("generation", 1)),
        raw_spec=service.get("spec") or {},
        spec=spec,
        annotations=meta.get("annotations") or {},
        status=LLMServiceStatus.read(service.get("status")),
        deployments=children.deployments,
        replica_sets=children.replica_sets,
        pods=children.pods,
        readings=known.readings,
        troubles=known.troubles,
        conflicts=children.conflicts + clash + other + known.conflicts,
        locks_missing=known.locks_missing,
        services_without_state=tuple(services_without_state(store, owner.namespace, children.pods)),
        budgets_beside=tuple(budgets_beside(store, owner, children.pods)),
        gateway_image=known.gateway_image,
        poll_seconds=known.poll_seconds,
        has_secret=known.has_secret,
        live_service=live_service,
        live_budget=live_budget,
        refused=known.refused,
        drain_times=known.drain_times,
        drain_times_trouble=known.drain_times_trouble,
        rejected=known.rejected,
        last_seen=known.last_seen,
    )


def _children(store: Store, owner: objects.Owner) -> Children:
    clashes: list[Conflict] = []
    deployments = []
    mine = {names.SERVICE: owner.name}
    for raw in store.select(DEPLOYMENTS, owner.namespace, mine):
        trouble = conflict_over(raw, owner, "Deployment")
        if trouble is not None:
            clashes.append(trouble)
        else:
            deployments.append(project.deployment(raw, owner.uid))
    by_uid = {d.uid: d for d in deployments}
    replica_sets = [project.replica_set(raw) for raw in store.select(REPLICASETS, owner.namespace, mine)]
    replica_sets = [r for r in replica_sets if r.deployment_uid in by_uid]
    owned = {r.uid: by_uid[r.deployment_uid] for r in replica_sets}
    # Only pods of our own Deployments are ever called or counted: a label alone makes nobody ours.
    raw_pods = store.select(PODS, owner.namespace, mine)
    pods = tuple(
        _with_endpoint(store.projected(raw, project.pod), owned.get(project.controller(raw).get("uid", "")))
        for raw in raw_pods
        if project.controller(raw).get("uid") in owned
    )
    return Children(tuple(deployments), tuple(replica_sets), pods, tuple(clashes))


def _with_endpoint(pod: Pod, deployment: Deployment | None) -> Pod:
    """The pod with the endpoint of its revision, where its own hook does not tell: foreign, or altered underway."""
    source = deployment.source if deployment is not None else ""
    found = revision.foreign_endpoint(source)
    if found is not None:
        return replace(pod, foreign=found[0], contract_port=found[1], hooked=True)
    return pod if pod.contract_port is not None else replace(pod, contract_port=revision.contract_port(source))


def _child(
    store: Store, kind: Kind, owner: objects.Owner, name: str, wanted: bool
) -> tuple[Object | None, tuple[Conflict, ...]]:
    raw = store.get(kind, owner.namespace, name)
    if raw is None:
        return None, ()
    trouble = conflict_over(raw, owner, kind.kind)
    if trouble is not None:
        return None, (trouble,) if wanted else ()
    return raw, ()


def controlled(raw: Object) -> bool:
    """Whether it has a controller at all."""
    return bool(project.controller(raw))


def orphaned(raw: Object) -> bool:
    """Made by Tidegate, and its LLMService was deleted without it."""
    labels = raw["metadata"].get("labels") or {}
    return not controlled(raw) and labels.get(names.MANAGED_BY) == names.MANAGER


def adoption(live: Object, owner: objects.Owner) -> list[dict[str, Any]]:
    """The JSON patch that makes `owner` the controller, beside whatever other owners there are."""
    others = live["metadata"].get("ownerReferences") or []
    return [
        {"op": "test", "path": "/metadata/uid", "value": live["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/resourceVersion", "value": live["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/metadata/ownerReferences", "value": [*others, owner.reference]},
    ]


def conflict_over(raw: Object, owner: objects.Owner, kind: str) -> Conflict | None:
    """Why an object of a name that we need is not ours; None when it is, or may be adopted."""
    name = raw["metadata"]["name"]
    holder = project.controller(raw)
    labels = raw["metadata"].get("labels") or {}
    if holder.get("uid") == owner.uid:
        return None
    if not holder:
        if labels.get(names.SERVICE) == owner.name and labels.get(names.MANAGED_BY) == names.MANAGER:
            return None
        return Conflict(kind, name, conflicts.not_ours(kind, name))
    if holder.get("kind") == names.KIND and holder.get("name") == owner.name:
        return Conflict(kind, name, conflicts.predecessor(kind, name, owner.name), temporary=True)
    return Conflict(kind, name, conflicts.owned(kind, name, f"{holder.get('kind')} {holder.get('name')}"))


def services_without_state(store: Store, namespace: str, pods: tuple[Pod, ...]) -> Iterator[str]:
    """Services that select pods of ours without the state label: a withdrawn pod stays in them."""
    labels = _labels_of(store, namespace, pods)
    for raw in store.select(SERVICES, namespace):
        selector = (raw.get("spec") or {}).get("selector") or {}
        if selector and names.STATE not in selector and any(_selects(selector, have) for have in labels):
            yield raw["metadata"]["name"]


def budgets_beside(store: Store, owner: objects.Owner, pods: tuple[Pod, ...]) -> Iterator[str]:
    """PodDisruptionBudgets of others that cover pods which our own covers as well."""
    own = objects.budget_selector(owner)
    covered = [have for have in _labels_of(store, owner.namespace, pods, alive=True) if selectors.selects(own, have)]
    for raw in store.select(PDBS, owner.namespace):
        selector = (raw.get("spec") or {}).get("selector")
        mine = raw["metadata"]["name"] == owner.name
        if not mine and any(selectors.selects(selector, have) for have in covered):
            yield raw["metadata"]["name"]


def withdrawing_services(store: Store, namespace: str, service: str) -> list[str]:
    """Services that a pod of `service` leaves by its state label: their slices are waited for."""
    found = []
    for raw in store.select(SERVICES, namespace):
        selector = (raw.get("spec") or {}).get("selector") or {}
        if selector.get(names.STATE) == PodState.SERVING and selector.get(names.SERVICE, service) == service:
            found.append(raw["metadata"]["name"])
    return found


def _labels_of(store: Store, namespace: str, pods: tuple[Pod, ...], *, alive: bool = False) -> list[Mapping[str, str]]:
    raws = (store.get(PODS, namespace, pod.name) for pod in pods if pod.alive or not alive)
    return [raw["metadata"].get("labels") or {} for raw in raws if raw is not None]


def _selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def service_key(kind: Kind, raw: Object) -> str | None:
    """The key of the LLMService that an object concerns: namespace/name."""
    meta = raw["metadata"]
    if not kind.namespaced:
        return None
    if kind is LLM_SERVICES:
        return f"{meta['namespace']}/{meta['name']}"
    name = (meta.get("labels") or {}).get(names.SERVICE)
    return f"{meta['namespace']}/{name}" if name else None
