"""Converts the API server's JSON to the core's data classes. An invalid annotation counts as absent."""

import json
from collections.abc import Mapping
from typing import Any

from tidegate.api import names
from tidegate.api.conditions import DrainReason, Outcome
from tidegate.core.state import times
from tidegate.core.state.snapshot import ContainerStatus, Deployment, DrainRecord, OutcomeRecord, Pod, ReplicaSet

from . import hooks
from .port import PDBS, PODS, Kind

Raw = Mapping[str, Any]


def pod(raw: Raw) -> Pod:
    """A pod. Times are Unix seconds."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    ready = conditions.get("Ready") or {}
    scheduled = conditions.get("PodScheduled") or {}
    serving = annotations.get(names.CONTAINER, "")
    containers = status.get("containerStatuses") or []
    everything = containers + (status.get("initContainerStatuses") or [])
    return Pod(
        name=meta["name"],
        uid=meta["uid"],
        revision=labels.get(names.REVISION, ""),
        state=labels.get(names.STATE, ""),
        phase=status.get("phase", "Pending"),
        created=times.parse(meta.get("creationTimestamp")) or 0.0,
        terminating=bool(meta.get("deletionTimestamp")),
        deleted_at=_deleted_at(meta),
        terminates_by=times.parse(meta.get("deletionTimestamp")),
        disruption=_true(conditions.get("DisruptionTarget") or {}),
        node=spec.get("nodeName") or "",
        ip=status.get("podIP", "") if not spec.get("hostNetwork") else "",
        ready_since=times.parse(ready.get("lastTransitionTime")) if ready.get("status") == "True" else None,
        unready_since=times.parse(ready.get("lastTransitionTime")) if ready.get("status") == "False" else None,
        scheduled=times.parse(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        unschedulable=scheduled.get("message", "") if scheduled.get("reason") == "Unschedulable" else "",
        any_running=any("running" in (c.get("state") or {}) for c in everything),
        container=_serving_status(everything, serving),
        gateway=next((_container(c) for c in everything if c.get("name") == names.GATEWAY), None),
        drain=_drain(annotations.get(names.DRAIN)),
        outcome=_outcome(annotations.get(names.OUTCOME)),
        release=annotations.get(names.RELEASE, "").strip(),
        version=meta.get("resourceVersion", ""),
        contract_port=hooks.port(spec.get("containers") or []),
        hooked=hooks.port(c for c in spec.get("containers") or [] if serving in ("", c.get("name"))) is not None,
        # Which one serves is not known without the annotation, so nothing is claimed.
        unhooked=hooks.unhooked(spec.get("containers") or [], serving) if serving else (),
    )


def _true(condition: Raw) -> str:
    """The reason of a condition that is True, empty otherwise."""
    return str(condition.get("reason") or condition["type"]) if condition.get("status") == "True" else ""


def _deleted_at(meta: Raw) -> float | None:
    """deletionTimestamp is the time of the request plus the grace period."""
    due = times.parse(meta.get("deletionTimestamp"))
    return None if due is None else due - float(meta.get("deletionGracePeriodSeconds") or 0)


def _serving_status(everything: list[Raw], serving: str) -> ContainerStatus:
    """Status of the named container. If none has that name, of any that has started, as the policies do it too."""
    named = [c for c in everything if c.get("name") == serving]
    started = [c for c in everything if c.get("started") and "running" in (c.get("state") or {})]
    return _container(next(iter(named or started or everything), {}))


def _container(raw: Raw) -> ContainerStatus:
    state = raw.get("state") or {}
    waiting = state.get("waiting") or {}
    ended = state.get("terminated") or (raw.get("lastState") or {}).get("terminated") or {}
    return ContainerStatus(
        running="running" in state,
        started=bool(raw.get("started")),
        run=_run(raw),
        restarts=int(raw.get("restartCount", 0)),
        waiting_reason=waiting.get("reason", ""),
        waiting_message=str(waiting.get("message", ""))[:300],
        exit_code=ended.get("exitCode"),
        exit_reason=ended.get("reason", ""),
        exited_at=times.parse((state.get("terminated") or {}).get("finishedAt")),
    )


def _run(raw: Raw) -> str:
    """Identifies one run: the runtime's container id changes with every restart, and some runtimes have none."""
    running = (raw.get("state") or {}).get("running")
    if running is None:
        return ""
    runtime_id = str(raw.get("containerID") or "").rpartition("/")[2][:64]
    return f"{raw.get('restartCount', 0)}/{running.get('startedAt') or ''}/{runtime_id}"


def _json(text: object) -> dict[str, Any]:
    if not isinstance(text, str):
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _drain(text: object) -> DrainRecord | None:
    value = _json(text)
    since = times.parse(value.get("since"))
    if not value.get("id") or since is None:
        return None
    budget = value.get("budgetSeconds")
    return DrainRecord(
        id=str(value["id"]),
        instance=value["instance"] if isinstance(value.get("instance"), str) else None,
        reason=DrainReason.read(value.get("reason")),
        since=since,
        deadline=times.parse(value.get("deadline")),
        budget=_number(budget),
        raw=str(text),
    )


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
    return float(value) if good else None  # type: ignore[arg-type]


def drain_text(record: DrainRecord) -> str:
    """The annotation `tidegate.dev/drain`."""
    return json.dumps(
        {
            "id": record.id,
            "instance": record.instance,
            "reason": record.reason,
            "since": times.text(record.since),
            "deadline": None if record.deadline is None else times.text(record.deadline),
            "budgetSeconds": record.budget,
        }
    )


def _outcome(text: object) -> OutcomeRecord | None:
    value = _json(text)
    at = times.parse(value.get("at"))
    ended = next((outcome for outcome in Outcome if outcome == value.get("outcome")), None)
    if ended is None or at is None:
        return None
    return OutcomeRecord(
        outcome=ended,
        seconds=_number(value.get("seconds")) or 0.0,
        cut=None if (cut := _number(value.get("cut"))) is None else int(cut),
        oldest_cut_seconds=_number(value.get("oldestCutSeconds")),
        at=at,
        reason=DrainReason.read(value.get("reason")),
        drain_seconds=_number(value.get("drainSeconds")),
        censored=value.get("censored") is True,
        last_arrival_after_seconds=_number(value.get("lateSeconds")),
        in_flight=None if (held := _number(value.get("inFlight"))) is None else int(held),
    )


def outcome_text(record: OutcomeRecord) -> str:
    """The annotation `tidegate.dev/outcome`."""
    return json.dumps(
        {
            "outcome": record.outcome,
            "reason": record.reason,
            "seconds": record.seconds,
            "cut": record.cut,
            "oldestCutSeconds": record.oldest_cut_seconds,
            "at": times.text(record.at),
            "drainSeconds": record.drain_seconds,
            "censored": record.censored,
            "lateSeconds": record.last_arrival_after_seconds,
            "inFlight": record.in_flight,
        }
    )


def deployment(raw: Raw, owner_uid: str) -> Deployment:
    """A Deployment; `adopted` if the LLMService with `owner_uid` is its controller. Times are Unix seconds."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    annotations = meta.get("annotations") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    failure = conditions.get("ReplicaFailure") or {}
    refused = failure.get("status") == "True" and failure.get("reason") == "FailedCreate"
    return Deployment(
        name=meta["name"],
        uid=meta["uid"],
        revision=(meta.get("labels") or {}).get(names.REVISION, ""),
        replicas=int(spec.get("replicas", 1)),
        source=annotations.get(names.SOURCE, ""),
        created=times.parse(meta.get("creationTimestamp")) or 0.0,
        released=frozenset(filter(None, annotations.get(names.RELEASED, "").split(","))),
        grace_seconds=int(((spec.get("template") or {}).get("spec") or {}).get("terminationGracePeriodSeconds") or 0),
        rendered=annotations.get(names.RENDERED, ""),
        failure=str(failure.get("message", "")) if refused else "",
        deleting=bool(meta.get("deletionTimestamp")),
        observed=_observed(raw),
        adopted=controller(raw).get("uid") == owner_uid,
        version=meta.get("resourceVersion", ""),
    )


def replica_set(raw: Raw) -> ReplicaSet:
    """A ReplicaSet."""
    meta, spec = raw["metadata"], raw.get("spec") or {}
    return ReplicaSet(
        name=meta["name"],
        uid=meta["uid"],
        deployment_uid=str(controller(raw).get("uid", "")),
        replicas=int(spec.get("replicas", 0)),
        observed=_observed(raw),
    )


def _observed(raw: Raw) -> bool:
    """Whether the object's controller has seen its current spec."""
    seen = (raw.get("status") or {}).get("observedGeneration", 0)
    return int(seen) >= int(raw["metadata"].get("generation", 0))


def settled_at(raw: Raw, replicas: int) -> bool:
    """Whether a ReplicaSet has `replicas` in its spec and its controller has seen that."""
    return _observed(raw) and int((raw.get("spec") or {}).get("replicas", 0)) == replicas


def controller(raw: Raw) -> Mapping[str, Any]:
    """The owner reference of the controller, or an empty mapping."""
    references = (raw.get("metadata") or {}).get("ownerReferences") or []
    return next((r for r in references if r.get("controller")), {})


def trim(kind: Kind, raw: dict[str, Any]) -> dict[str, Any]:
    """The parts of an object that the store keeps: a tenth of a pod, since there may be 10,000 pods."""
    raw["metadata"].pop("managedFields", None)
    if kind is PDBS:
        # All budgets of all namespaces are watched. Their status moves with every pod, and nobody reads it.
        return {key: value for key, value in raw.items() if key != "status"}
    if kind is not PODS:
        return raw
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    kept = (
        *("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "labels", "ownerReferences"),
        *("deletionTimestamp", "deletionGracePeriodSeconds"),
    )
    annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if k.startswith(names.GROUP)}
    containers = [hooks.trimmed(c) for c in spec.get("containers") or []]
    condition_fields = ("type", "status", "reason", "lastTransitionTime", "message")
    return {
        "apiVersion": raw.get("apiVersion", "v1"),
        "kind": raw.get("kind", "Pod"),
        "metadata": {k: meta[k] for k in kept if k in meta} | {"annotations": annotations},
        "spec": {
            "nodeName": spec.get("nodeName"),
            "hostNetwork": spec.get("hostNetwork", False),
            "containers": containers,
        },
        "status": {
            "phase": status.get("phase", "Pending"),
            "podIP": status.get("podIP", ""),
            "conditions": [
                {k: c[k] for k in condition_fields if k in c}
                for c in status.get("conditions") or []
                if c.get("type") in ("Ready", "PodScheduled", "DisruptionTarget")
            ],
            "containerStatuses": status.get("containerStatuses") or [],
            "initContainerStatuses": status.get("initContainerStatuses") or [],
        },
    }
