"""The admission policies of manifests/cluster as Python twins, rule by rule in their order.

Kept honest by the decision table, which runs here and against the real API server alike. The messages are fragments
of the originals: enough for the table to tell one rule from another.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.api import names

Object = Mapping[str, Any]
DESIRED = "deployment.kubernetes.io/desired-replicas"
SYSTEM = frozenset(
    (
        "DeletionByTaintManager",
        "DeletionByDeviceTaintManager",
        "DeletionByPodGC",
        "PreemptionByScheduler",
        "TerminationByKubelet",
    )
)


@dataclass(frozen=True, slots=True)
class Request:
    """What admission sees: DELETE has no `new`. `resource` is the plural, with its subresource after a slash."""

    operation: str
    resource: str
    old: Object
    new: Object = field(default_factory=dict)
    options: Object = field(default_factory=dict)
    namespace_terminating: bool = False


def refusal(request: Request, bound: frozenset[str]) -> str | None:
    """Why a policy among `bound` refuses the request, or None."""
    for policy, resources, operation, rule in _RULES:
        if policy in bound and request.operation == operation and request.resource in resources:
            reason = rule(request)
            if reason is not None:
                return f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {reason}"
    return None


def _labels(item: Object) -> Object:
    return item.get("metadata", {}).get("labels") or {}


def _annotations(item: Object) -> Object:
    return item.get("metadata", {}).get("annotations") or {}


def _ours(request: Request) -> bool:
    # objectSelector: the old or the new object carries the label.
    return names.SERVICE in _labels(request.old) or names.SERVICE in _labels(request.new)


def _by_garbage_collector(request: Request) -> bool:
    return "uid" in (request.options.get("preconditions") or {}) and "propagationPolicy" in request.options


def _going(request: Request) -> bool:
    return (
        "deletionTimestamp" in request.old["metadata"]
        or request.namespace_terminating
        or _by_garbage_collector(request)
    )


def _pod_delete(request: Request) -> str | None:
    old = request.old
    labels, annotations, status = _labels(old), _annotations(old), old.get("status") or {}
    if names.SERVICE not in labels or labels.get(names.STATE) not in (names.SERVING, names.DRAINING):
        return None
    statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    container = annotations.get(names.CONTAINER, "")
    named = any(s["name"] == container for s in statuses)
    started = any((not named or s["name"] == container) and s.get("started", False) for s in statuses)
    if status.get("phase") != "Running" or not started or _going(request):
        return None
    for condition in status.get("conditions") or []:
        disrupted = condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        if disrupted and condition.get("reason") in SYSTEM:
            return None
    if annotations.get(names.RELEASE, "").strip():
        return None
    service, name = labels[names.SERVICE], old["metadata"]["name"]
    return (
        f"pod {name} is {labels[names.STATE]} and may hold requests. It goes by itself once drained: change "
        f"spec.replicas or spec.template of LLMService {service}, or set its spec.rollout.restartedAt to replace all "
        f"pods. To cut its requests now: kubectl annotate pod {name} tidegate.dev/release='your reason', then delete it"
    )


def _identity_kept(request: Request) -> bool:
    before, after = _labels(request.old), _labels(request.new)
    return all(key not in before or after.get(key) == before[key] for key in (names.SERVICE, names.REVISION))


def _pod_labels(request: Request) -> str | None:
    if not _ours(request):
        return None
    before, after = _labels(request.old).get(names.STATE, ""), _labels(request.new).get(names.STATE, "")
    if not _identity_kept(request):
        return "labels tidegate.dev/service and tidegate.dev/revision of a pod stay as they are"
    if after not in (before, names.SERVING, names.DRAINING, names.DRAINED):
        return "label tidegate.dev/state is the operator's: serving, draining or drained"
    if before == names.DRAINED and after != names.DRAINED:
        return "label tidegate.dev/state stays drained: the pod may be deleted at any moment"
    return None


def _replicas(item: Object) -> int:
    return int(item["spec"].get("replicas", 1))


def _service(request: Request) -> str:
    return str(_labels(request.old).get(names.SERVICE) or _labels(request.new).get(names.SERVICE))


def _deployment(request: Request) -> str | None:
    if not _ours(request):
        return None
    old, new = request.old, request.new
    before, after = _replicas(old), _replicas(new)
    counted, was_counted = _annotations(new).get(names.REPLICAS, ""), _annotations(old).get(names.REPLICAS, "")
    if not (after == before and counted == was_counted) and counted != str(after):
        return (
            "the operator sets the replicas of this Deployment, so that pods are drained before they go. Scale the "
            f"service instead: kubectl scale llmservice {_service(request)} --replicas=N"
        )
    empty = before == 0 and after == 0
    if new["spec"]["template"] != old["spec"]["template"] and not empty:
        return (
            "the pod template of this Deployment belongs to one revision. Edit spec.template of LLMService "
            f"{_service(request)} instead; to restart its pods set spec.rollout.restartedAt there"
        )
    source, was_source = _annotations(new).get(names.SOURCE, ""), _annotations(old).get(names.SOURCE, "")
    if not _identity_kept(request) or not (was_source in ("", source) or (empty and source != "")):
        return (
            "labels and annotation tidegate.dev/source tell the operator what this Deployment is, and stay as they are"
        )
    return None


def _replicaset(request: Request) -> str | None:
    if not _ours(request):
        return None
    before, after = _replicas(request.old), _replicas(request.new)
    if after != before and _annotations(request.new).get(DESIRED, "") != str(after):
        return f"the replicas of this ReplicaSet follow its Deployment: kubectl scale llmservice {_service(request)}"
    if request.new["spec"]["template"] != request.old["spec"]["template"]:
        return (
            "the pod template of this ReplicaSet belongs to one revision. Edit spec.template of LLMService "
            f"{_service(request)} instead"
        )
    if not _identity_kept(request):
        return "labels tell the operator what this ReplicaSet is, and stay as they are"
    return None


def _scale(request: Request) -> str | None:
    selector = (request.old.get("status") or {}).get("selector", "")
    mark = f"{names.SERVICE}="
    if mark not in selector:
        return None
    before, after = (
        (request.old.get("spec") or {}).get("replicas", 0),
        (request.new.get("spec") or {}).get("replicas", 0),
    )
    if before == after:
        return None
    service = selector.split(mark)[1].split(",")[0]
    return f"the operator sets the replicas here: kubectl scale llmservice {service} --replicas=N"


def _child_delete(request: Request) -> str | None:
    if not _ours(request) or _replicas(request.old) == 0 or _going(request):
        return None
    service = _labels(request.old)[names.SERVICE]
    return f"it still has pods of LLMService {service}. To remove the service: kubectl delete llmservice {service}"


Rule = Callable[[Request], str | None]
_RULES: tuple[tuple[str, tuple[str, ...], str, Rule], ...] = (
    ("tidegate-pod-delete", ("pods",), "DELETE", _pod_delete),
    ("tidegate-pod-labels", ("pods",), "UPDATE", _pod_labels),
    ("tidegate-deployment", ("deployments",), "UPDATE", _deployment),
    ("tidegate-replicaset", ("replicasets",), "UPDATE", _replicaset),
    ("tidegate-scale", ("deployments/scale", "replicasets/scale"), "UPDATE", _scale),
    ("tidegate-child-delete", ("deployments", "replicasets"), "DELETE", _child_delete),
)
