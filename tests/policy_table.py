"""The decision table of the admission policies: what is refused, what passes, and why the two differ.

Rows are plain data, so that the same table runs against the real API server and against the one in memory. An object
is given as it stands in the store, status included; requests are DELETE with its options, or a JSON merge patch.
Every refused row names a neighbour, a row that passes and differs in just what the rule looks at: a policy that
refuses everything, or nothing, fails.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from tidegate.api.conditions import PodState
from tidegate.api.names import (
    CONTAINER,
    DRAIN,
    RELEASE,
    REPLICAS,
    REVISION,
    SERVICE,
    SOURCE,
    STATE,
)

Object = Mapping[str, Any]
SERVING, DRAINING, DRAINED = PodState.SERVING.value, PodState.DRAINING.value, PodState.DRAINED.value
SERVICE_NAME = "chat"
HASH = "0123456789"
DESIRED = "deployment.kubernetes.io/desired-replicas"
SYSTEM_REASONS = (
    "DeletionByTaintManager",
    "DeletionByDeviceTaintManager",
    "DeletionByPodGC",
    "PreemptionByScheduler",
    "TerminationByKubelet",
)


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETE with these options; UID stands for the object's own uid."""

    options: Object = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON merge patch of the object, or of its subresource."""

    body: Object
    subresource: Literal["", "scale"] = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One request and its verdict.

    `refused`: a fragment of the message with which `policy` refuses it; None: it passes. `terminating`: the object
    already has a deletionTimestamp when the request comes.
    """

    name: str
    policy: str
    given: Object
    request: Delete | Patch
    refused: str | None = None
    neighbour: str | None = None
    terminating: bool = False


UID = "$uid"
KUBECTL = Delete({"propagationPolicy": "Background"})
FORCE = Delete({"propagationPolicy": "Background", "gracePeriodSeconds": 0})
REPLICASET_CONTROLLER = Delete({})
GARBAGE_COLLECTOR = Delete({"propagationPolicy": "Background", "preconditions": {"uid": UID}})
OPERATOR = Delete({"preconditions": {"uid": UID}})


def pod(
    state: str | None = SERVING,
    *,
    phase: str = "Running",
    started: Mapping[str, bool] | None = None,
    sidecars: Mapping[str, bool] | None = None,
    container: str | None = "server",
    annotations: Mapping[str, str] | None = None,
    condition: tuple[str, str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> Object:
    """A pod of the service. `started`: by name of container; `condition`: its type, status and reason."""
    own = {SERVICE: SERVICE_NAME, REVISION: HASH} if labels is None else dict(labels)
    status: dict[str, Any] = {"phase": phase}
    if phase != "Pending":
        status["containerStatuses"] = _statuses({"server": True} if started is None else started)
        status["initContainerStatuses"] = _statuses(sidecars or {})
    if condition:
        status["conditions"] = [dict(zip(("type", "status", "reason"), condition, strict=True))]
    names = ["server"] if started is None else list(started)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": own | ({STATE: state} if state else {}),
            "annotations": ({CONTAINER: container} if container else {}) | dict(annotations or {}),
        },
        "spec": _pod_spec(names, list(sidecars or {})),
        "status": status,
    }


def _pod_spec(containers: list[str], sidecars: list[str]) -> dict[str, Any]:
    """A spec that no scheduler takes up: what the status says is the row's alone."""
    return {
        "schedulerName": "nobody",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": name, "image": "none"} for name in containers],
        "initContainers": [{"name": name, "image": "none", "restartPolicy": "Always"} for name in sidecars],
    }


def _statuses(started: Mapping[str, bool]) -> list[dict[str, Any]]:
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    return [
        {"name": name, "image": "none", "imageID": "", "ready": up, "restartCount": 0, "started": up, "state": running}
        for name, up in started.items()
    ]


def _workload(kind: str, replicas: int, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"labels": dict(labels), "annotations": dict(annotations)},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": dict(labels) | {STATE: SERVING}, "annotations": {CONTAINER: "server"}},
                "spec": _pod_spec(["server"], []),
            },
        },
    }


OURS = {SERVICE: SERVICE_NAME, REVISION: HASH}
OTHERS = {"app": "other"}


def deployment(replicas: int = 3, *, counted: str | None = "", labels: Mapping[str, str] = OURS) -> Object:
    """A revision's Deployment. `counted`: its replicas annotation; "" for the true count, None for none."""
    annotations = {SOURCE: '{"port":8000}'} if labels == OURS else {}
    if counted is not None:
        annotations[REPLICAS] = counted or str(replicas)
    return _workload("Deployment", replicas, labels, annotations)


def replicaset(replicas: int = 3, *, labels: Mapping[str, str] = OURS) -> Object:
    """A ReplicaSet as the Deployment controller leaves it."""
    return _workload("ReplicaSet", replicas, labels, {DESIRED: str(replicas)})


def counts(replicas: int | None = None, counted: str | None = None) -> Patch:
    """Patch of spec.replicas, of the annotation that repeats it, or of both."""
    body: dict[str, Any] = {}
    if replicas is not None:
        body["spec"] = {"replicas": replicas}
    if counted is not None:
        body["metadata"] = {"annotations": {REPLICAS: counted}}
    return Patch(body)


def labels(**values: str | None) -> Patch:
    """Patch of our labels, by the last part of their names."""
    return Patch({"metadata": {"labels": {f"tidegate.dev/{key}": value for key, value in values.items()}}})


def annotations(values: Mapping[str, str | None]) -> Patch:
    return Patch({"metadata": {"annotations": dict(values)}})


def scale(replicas: int) -> Patch:
    return Patch({"spec": {"replicas": replicas}}, "scale")


NEW_IMAGE = {"spec": {"template": {"spec": {"containers": [{"name": "server", "image": "newer"}]}}}}
RESTART = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}

POD_DELETE = "tidegate-pod-delete"
POD_LABELS = "tidegate-pod-labels"
DEPLOYMENT = "tidegate-deployment"
REPLICASET = "tidegate-replicaset"
SCALE = "tidegate-scale"
CHILD_DELETE = "tidegate-child-delete"

HOLDS = "may hold requests"
RELEASED_WHEN = "kubectl annotate pod"


def _pod_deletes() -> list[Row]:
    def row(name: str, given: Object, request: Delete, refused: str | None = None, **more: Any) -> Row:
        return Row(name, POD_DELETE, given, request, refused, **more)

    idle = "an unstarted pod"
    rows = [
        row(
            "a serving pod by kubectl",
            pod(),
            KUBECTL,
            "is serving and may hold requests",
            neighbour="a drained pod by kubectl",
        ),
        row("a drained pod by kubectl", pod(DRAINED), KUBECTL),
        row("a serving pod by force", pod(), FORCE, RELEASED_WHEN, neighbour="a drained pod by force"),
        row("a drained pod by force", pod(DRAINED), FORCE),
        row(
            "a draining pod",
            pod(DRAINING),
            KUBECTL,
            "is draining and may hold requests",
            neighbour="a drained pod by kubectl",
        ),
        row(
            "a serving pod by the ReplicaSet controller",
            pod(),
            REPLICASET_CONTROLLER,
            "spec.replicas or spec.template of LLMService chat",
            neighbour="a drained pod by the ReplicaSet controller",
        ),
        row("a drained pod by the ReplicaSet controller", pod(DRAINED), REPLICASET_CONTROLLER),
        row("a serving pod by uid alone", pod(), OPERATOR, HOLDS, neighbour="a serving pod by the garbage collector"),
        row("a serving pod by the garbage collector", pod(), GARBAGE_COLLECTOR),
        row("a pod that terminates", pod(), KUBECTL, terminating=True),
        row("a pod of nobody", pod(labels=OTHERS), KUBECTL),
        row("a pod without state", pod(None), KUBECTL),
        row("a pending pod", pod(phase="Pending"), KUBECTL),
        row("a succeeded pod", pod(phase="Succeeded"), KUBECTL),
        row("a failed pod", pod(phase="Failed"), KUBECTL),
        row(idle, pod(started={"server": False}), KUBECTL),
        row(
            "a started server beside an unstarted one",
            pod(started={"server": True, "logs": False}),
            KUBECTL,
            HOLDS,
            neighbour="an unstarted server beside a started one",
        ),
        row("an unstarted server beside a started one", pod(started={"server": False, "logs": True}), KUBECTL),
        row(
            "a started server that is a sidecar",
            pod(started={"batch": False}, sidecars={"server": True}),
            KUBECTL,
            HOLDS,
            neighbour="an unstarted server that is a sidecar",
        ),
        row("an unstarted server that is a sidecar", pod(started={"batch": True}, sidecars={"server": False}), KUBECTL),
        row(
            "no named server, one started",
            pod(started={"a": False, "b": True}, container=None),
            KUBECTL,
            HOLDS,
            neighbour="no named server, none started",
        ),
        row("no named server, none started", pod(started={"a": False, "b": False}, container=None), KUBECTL),
        row(
            "a name no container has",
            pod(container="typo"),
            KUBECTL,
            HOLDS,
            neighbour="a name no container has, none started",
        ),
        row("a name no container has, none started", pod(started={"server": False}, container="typo"), KUBECTL),
        row("a released pod", pod(annotations={RELEASE: "node is burning"}), KUBECTL),
        row("an empty release", pod(annotations={RELEASE: ""}), KUBECTL, HOLDS, neighbour="a released pod"),
        row("a blank release", pod(annotations={RELEASE: " "}), KUBECTL, HOLDS, neighbour="a released pod"),
        row(
            "DisruptionTarget of an eviction",
            pod(condition=("DisruptionTarget", "True", "EvictionByEvictionAPI")),
            KUBECTL,
            HOLDS,
            neighbour=f"DisruptionTarget {SYSTEM_REASONS[0]}",
        ),
        row(
            "another condition with such a reason",
            pod(condition=("Ready", "True", SYSTEM_REASONS[0])),
            KUBECTL,
            HOLDS,
            neighbour=f"DisruptionTarget {SYSTEM_REASONS[0]}",
        ),
        row(
            "DisruptionTarget that is False",
            pod(condition=("DisruptionTarget", "False", SYSTEM_REASONS[0])),
            KUBECTL,
            HOLDS,
            neighbour=f"DisruptionTarget {SYSTEM_REASONS[0]}",
        ),
    ]
    return rows + [
        row(f"DisruptionTarget {reason}", pod(condition=("DisruptionTarget", "True", reason)), REPLICASET_CONTROLLER)
        for reason in SYSTEM_REASONS
    ]


def _pod_labels() -> list[Row]:
    def row(name: str, given: Object, request: Patch, refused: str | None = None, **more: Any) -> Row:
        return Row(name, POD_LABELS, given, request, refused, **more)

    keep, known = "of a pod cannot be changed", "serving, draining or drained"
    one_way = "cannot be changed from drained"
    free = "another label of a pod"
    return [
        row(free, pod(), labels(note="x")),
        row("the service label dropped", pod(), labels(service=None), keep, neighbour=free),
        row("the service label changed", pod(), labels(service="other"), keep, neighbour=free),
        row("the revision label dropped", pod(), labels(revision=None), keep, neighbour=free),
        row("the revision label changed", pod(), labels(revision="other"), keep, neighbour=free),
        row(
            "the service label of a terminating pod dropped",
            pod(),
            labels(service=None),
            keep,
            neighbour=free,
            terminating=True,
        ),
        row("the service label put on a pod of nobody", pod(None, labels=OTHERS), labels(service="chat")),
        row("an unknown state on a pod of nobody", pod(None, labels=OTHERS), labels(state="odd")),
        row("serving to draining", pod(), labels(state=DRAINING)),
        row("draining to serving", pod(DRAINING), labels(state=SERVING)),
        row("draining to drained", pod(DRAINING), labels(state=DRAINED)),
        row("serving to drained", pod(), labels(state=DRAINED)),
        row("the state dropped", pod(), labels(state=None), known, neighbour="serving to draining"),
        row("an unknown state", pod(), labels(state="gone"), known, neighbour="serving to draining"),
        row("an empty state", pod(), labels(state=""), known, neighbour="serving to draining"),
        row("a state where there was none", pod(None), labels(state=SERVING)),
        row(
            "an unknown state where there was none",
            pod(None),
            labels(state="odd"),
            known,
            neighbour="a state where there was none",
        ),
        row("drained to serving", pod(DRAINED), labels(state=SERVING), one_way, neighbour="draining to serving"),
        row("drained to draining", pod(DRAINED), labels(state=DRAINING), one_way, neighbour="serving to draining"),
        row(
            "the state of a drained pod dropped",
            pod(DRAINED),
            labels(state=None),
            known,
            neighbour="another label of a drained pod",
        ),
        row("another label of a drained pod", pod(DRAINED), labels(note="x")),
        row("an annotation of a draining pod", pod(DRAINING), annotations({DRAIN: "{}"})),
    ]


def _deployments() -> list[Row]:
    def row(name: str, given: Object, request: Patch, refused: str | None = None, **more: Any) -> Row:
        return Row(name, DEPLOYMENT, given, request, refused, **more)

    count, image = "kubectl scale llmservice chat", "spec.template of LLMService chat"
    keep = "to the operator and cannot be changed"
    both = "replicas and annotation together"
    at_zero = "an image at 0 replicas"
    return [
        row(both, deployment(3), counts(2, "2")),
        row("replicas and annotation together to 0", deployment(1), counts(0, "0")),
        row("replicas and annotation together from 0", deployment(0), counts(1, "1")),
        row("replicas alone", deployment(3), counts(2), count, neighbour=both),
        row("the annotation alone", deployment(3), counts(counted="2"), count, neighbour=both),
        row("the annotation dropped", deployment(3), annotations({REPLICAS: None}), count, neighbour=both),
        row("replicas and annotation that differ", deployment(3), counts(2, "1"), count, neighbour=both),
        row("an annotation that is no number", deployment(3), counts(2, "two"), count, neighbour=both),
        row("an annotation written otherwise", deployment(3), counts(2, "02"), count, neighbour=both),
        row("replicas to what the annotation says", deployment(3, counted="2"), counts(2)),
        row("another field while the two differ", deployment(3, counted="2"), Patch({"spec": {"minReadySeconds": 5}})),
        row("a first annotation", deployment(3, counted=None), counts(counted="3")),
        row(
            "replicas where there is no annotation",
            deployment(3, counted=None),
            counts(2),
            count,
            neighbour="a first annotation",
        ),
        row("replicas of a Deployment of nobody", deployment(3, counted=None, labels=OTHERS), counts(2)),
        row(at_zero, deployment(0), Patch(NEW_IMAGE)),
        row("an image", deployment(3), Patch(NEW_IMAGE), image, neighbour=at_zero),
        row("an image of a Deployment of nobody", deployment(3, counted=None, labels=OTHERS), Patch(NEW_IMAGE)),
        row(
            "a restart", deployment(3), Patch(RESTART), "spec.rollout.restartedAt", neighbour="a restart at 0 replicas"
        ),
        row("a restart at 0 replicas", deployment(0), Patch(RESTART)),
        row("an image on the way to 0", deployment(3), _merged(NEW_IMAGE, counts(0, "0")), image, neighbour=at_zero),
        row("an image on the way from 0", deployment(0), _merged(NEW_IMAGE, counts(1, "1")), image, neighbour=at_zero),
        row("another label of a Deployment", deployment(), labels(note="x")),
        row(
            "the service label of a Deployment dropped",
            deployment(),
            labels(service=None),
            keep,
            neighbour="another label of a Deployment",
        ),
        row(
            "the revision label of a Deployment dropped",
            deployment(),
            labels(revision=None),
            keep,
            neighbour="another label of a Deployment",
        ),
        row(
            "the service label of a Deployment changed",
            deployment(),
            labels(service="x"),
            keep,
            neighbour="another label of a Deployment",
        ),
        row(
            "the source dropped",
            deployment(),
            annotations({SOURCE: None}),
            keep,
            neighbour="another annotation of a Deployment",
        ),
        row(
            "the source changed",
            deployment(),
            annotations({SOURCE: "{}"}),
            keep,
            neighbour="the source changed at 0 replicas",
        ),
        row("the source changed at 0 replicas", deployment(0), annotations({SOURCE: "{}"})),
        row(
            "the source dropped at 0 replicas",
            deployment(0),
            annotations({SOURCE: None}),
            keep,
            neighbour="the source changed at 0 replicas",
        ),
        row("another annotation of a Deployment", deployment(), annotations({"note": "x"})),
    ]


def _replicasets() -> list[Row]:
    def row(name: str, given: Object, request: Patch, refused: str | None = None, **more: Any) -> Row:
        return Row(name, REPLICASET, given, request, refused, **more)

    count, image = "kubectl scale llmservice chat", "spec.template of LLMService chat"
    keep = "to the operator and cannot be changed"
    as_controller = "replicas as the Deployment controller writes them"
    return [
        row(
            as_controller, replicaset(3), Patch({"spec": {"replicas": 2}, "metadata": {"annotations": {DESIRED: "2"}}})
        ),
        row("replicas of a ReplicaSet alone", replicaset(3), counts(2), count, neighbour=as_controller),
        row("more replicas of a ReplicaSet alone", replicaset(3), counts(4), count, neighbour=as_controller),
        row("replicas of a ReplicaSet of nobody", replicaset(3, labels=OTHERS), counts(2)),
        row("another field of a ReplicaSet", replicaset(3), Patch({"spec": {"minReadySeconds": 5}})),
        row(
            "an image of a ReplicaSet",
            replicaset(3),
            Patch(NEW_IMAGE),
            image,
            neighbour="another field of a ReplicaSet",
        ),
        row("an image of a ReplicaSet of nobody", replicaset(3, labels=OTHERS), Patch(NEW_IMAGE)),
        row("another label of a ReplicaSet", replicaset(), labels(note="x")),
        row(
            "the service label of a ReplicaSet dropped",
            replicaset(),
            labels(service=None),
            keep,
            neighbour="another label of a ReplicaSet",
        ),
        row(
            "the revision label of a ReplicaSet changed",
            replicaset(),
            labels(revision="x"),
            keep,
            neighbour="another label of a ReplicaSet",
        ),
    ]


def _scales() -> list[Row]:
    def row(name: str, given: Object, request: Patch, refused: str | None = None, **more: Any) -> Row:
        return Row(name, SCALE, given, request, refused, **more)

    count = "kubectl scale llmservice chat --replicas=N"
    same, same_set = "a Deployment scaled to what it is", "a ReplicaSet scaled to what it is"
    return [
        row(same, deployment(3), scale(3)),
        row("a Deployment scaled in", deployment(3), scale(2), count, neighbour=same),
        row("a Deployment scaled out", deployment(3), scale(4), count, neighbour=same),
        row("a Deployment scaled to 0", deployment(3), scale(0), count, neighbour="a Deployment at 0 scaled to 0"),
        row("a Deployment scaled from 0", deployment(0), scale(1), count, neighbour="a Deployment at 0 scaled to 0"),
        row("a Deployment at 0 scaled to 0", deployment(0), scale(0)),
        row("a Deployment of nobody scaled", deployment(3, counted=None, labels=OTHERS), scale(1)),
        row(same_set, replicaset(3), scale(3)),
        row("a ReplicaSet scaled in", replicaset(3), scale(2), count, neighbour=same_set),
        row("a ReplicaSet of nobody scaled", replicaset(3, labels=OTHERS), scale(1)),
    ]


def _child_deletes() -> list[Row]:
    def row(name: str, given: Object, request: Delete, refused: str | None = None, **more: Any) -> Row:
        return Row(name, CHILD_DELETE, given, request, refused, **more)

    instead = "kubectl delete llmservice chat"
    return [
        row("a Deployment by kubectl", deployment(3), KUBECTL, instead, neighbour="a Deployment at 0 by kubectl"),
        row("a Deployment at 0 by kubectl", deployment(0), KUBECTL),
        row(
            "a Deployment orphaning its pods",
            deployment(3),
            Delete({"propagationPolicy": "Orphan"}),
            instead,
            neighbour="a Deployment at 0 by kubectl",
        ),
        row(
            "a Deployment by uid alone",
            deployment(3),
            OPERATOR,
            instead,
            neighbour="a Deployment by the garbage collector",
        ),
        row("a Deployment by the garbage collector", deployment(3), GARBAGE_COLLECTOR),
        row("a Deployment that terminates", deployment(3), KUBECTL, terminating=True),
        row("a Deployment of nobody", deployment(3, counted=None, labels=OTHERS), KUBECTL),
        row(
            "a ReplicaSet by kubectl",
            replicaset(3),
            KUBECTL,
            instead,
            neighbour="a ReplicaSet at 0 by the Deployment controller",
        ),
        row("a ReplicaSet at 0 by the Deployment controller", replicaset(0), Delete({})),
        row("a ReplicaSet by the garbage collector", replicaset(3), GARBAGE_COLLECTOR),
        row("a ReplicaSet of nobody", replicaset(3, labels=OTHERS), KUBECTL),
    ]


def _merged(body: Object, patch: Patch) -> Patch:
    merged = deepcopy(dict(body))
    for key, value in patch.body.items():
        merged[key] = {**merged.get(key, {}), **value}
    return Patch(merged)


TABLE: tuple[Row, ...] = (
    *_pod_deletes(),
    *_pod_labels(),
    *_deployments(),
    *_replicasets(),
    *_scales(),
    *_child_deletes(),
)
