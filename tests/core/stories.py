"""Snapshots in a few words, and plans told as short sentences, so that a test of a decision reads as a story.

A revision is named by its image tag, a pod by its revision and a number: `serving("v1-2")` is the second pod of v1. Its
uid is `uid-v1-2`. Times are seconds relative to `NOW`. Whatever a story does not mention is in order: children are as
rendered, the Secret is there, every running pod answered a second ago and holds one request.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import LLMServiceStatus
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.planner import actions as a
from tidegate.core.planner import revision
from tidegate.core.planner.plan import Plan, plan
from tidegate.core.render import objects
from tidegate.core.state.snapshot import (
    ContainerStatus,
    Deployment,
    DrainRecord,
    OutcomeRecord,
    Pod,
    Reading,
    ReplicaSet,
    Snapshot,
)

NOW = 1_800_000_000.0
BUDGET = 600
PROPAGATION = 5
OWNER = objects.Owner("shop", "chat", "uid-chat")
PARTS = ("rollout", "drain", "service", "probes", "disruption")


def raw_spec(image: str = "v1", **changes: Any) -> dict[str, Any]:
    """A spec as a user writes it; `rollout`, `drain` and the like are merged, anything else is set."""
    spec: dict[str, Any] = {
        "replicas": 3,
        "port": "http",
        "template": {"spec": {"containers": [container(image)]}},
        "drain": {"mode": "Native", "budgetSeconds": BUDGET, "native": {"port": "admin"}},
    }
    for key, value in changes.items():
        spec[key] = {**spec.get(key, {}), **value} if key in PARTS else value
    return spec


def container(image: str = "v1", **more: Any) -> dict[str, Any]:
    ports = [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 9901}]
    return {"name": "server", "image": f"app:{image}", "ports": ports, **more}


def spec(image: str = "v1", **changes: Any) -> LLMServiceSpec:
    return LLMServiceSpec.parse(raw_spec(image, **changes))


def serving(name: str, **fields: Any) -> Pod:
    """Ready for 100 s."""
    known: dict[str, Any] = {
        "name": name,
        "uid": f"uid-{name}",
        "revision": name.rpartition("-")[0],
        "state": PodState.SERVING,
        "phase": "Running",
        "created": NOW - 200,
        "ip": "192.0.2.1",
        "ready_since": NOW - 100,
        "any_running": True,
        "container": ContainerStatus(running=True, started=True),
        "contract_port": names.CONTRACT_PORT,
    }
    return Pod(**(known | fields))


def several(tag: str, count: int, **fields: Any) -> list[Pod]:
    return [serving(f"{tag}-{n}", **fields) for n in range(1, count + 1)]


def unready(name: str, **fields: Any) -> Pod:
    """Runs and has started, and is not Ready: it may still work."""
    return serving(name, **({"ready_since": None} | fields))


def starting(name: str, **fields: Any) -> Pod:
    """Its serving container runs and has not started yet."""
    known = {"container": ContainerStatus(running=True), "created": NOW - 10}
    return unready(name, **(known | fields))


def waiting(name: str, reason: str = "ImagePullBackOff", message: str = "no such tag", **fields: Any) -> Pod:
    """No container of it runs, for a reason of the kubelet's."""
    held = ContainerStatus(waiting_reason=reason, waiting_message=message)
    return unready(name, **({"phase": "Pending", "any_running": False, "container": held} | fields))


def crashing(name: str, code: int = 7, restarts: int = 4) -> Pod:
    held = ContainerStatus(
        waiting_reason="CrashLoopBackOff", restarts=restarts, exit_code=code, exit_reason="Error",
        waiting_message="back-off 40s",
    )  # fmt: skip
    return unready(name, any_running=False, container=held)


def homeless(name: str, message: str = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.") -> Pod:
    return unready(name, phase="Pending", any_running=False, container=ContainerStatus(), ip="", unschedulable=message)


def going(pod: Pod) -> Pod:
    """The same pod, terminating."""
    return replace(pod, terminating=True, ready_since=None)


def record(name: str, *, since: float = -60, budget: float | None = BUDGET, reason: str = "Rollout") -> DrainRecord:
    begun = NOW + since
    return DrainRecord(
        f"id-{name}", f"run-{name}", reason, begun, None if budget is None else begun + budget, budget
    )  # fmt: skip


def draining(name: str, *, drain: DrainRecord | None = None, **fields: Any) -> Pod:
    """Withdrawn a minute ago, by default, and NotReady since."""
    held = record(name) if drain is None else drain
    return unready(name, **({"state": PodState.DRAINING, "drain": held} | fields))


def drained(name: str, *, cut: int | None = 0, at: float = -1, reason: str = "Rollout", **fields: Any) -> Pod:
    outcome = OutcomeRecord("Drained", 60.0, cut, None, NOW + at, reason)
    return draining(name, **({"state": PodState.DRAINED, "outcome": outcome} | fields))


def says(pod: Pod, state: str | None = None, **fields: Any) -> Reading:
    """What a pod answered a second ago: one request in flight, in the state that its label makes likely."""
    drain = pod.drain
    known: dict[str, Any] = {
        "at": NOW - 1,
        "instance": f"run-{pod.name}",
        "drain_id": drain.id if drain else None,
        "state": state or ("draining" if drain else "serving"),
        "in_flight": 0 if state == "sealed" else 1,
    }
    return Reading(**(known | fields))


def deployment(tag: str, replicas: int, **fields: Any) -> Deployment:
    """The Deployment of the revision that differs from others by its image tag alone, rendered as it would be today."""
    known: dict[str, Any] = {
        "name": f"chat-{tag}",
        "uid": f"uid-chat-{tag}",
        "revision": tag,
        "replicas": replicas,
        "created": NOW - 1000,
    }
    known["source"], known["rendered"], known["grace_seconds"] = _written(tag)
    return Deployment(**(known | fields))


@functools.cache
def _written(tag: str) -> tuple[str, str, int]:
    """Source, digest and grace period of the revision with this image tag."""
    return revision.source(raw_spec(tag)), objects.digest(OWNER, spec(tag), tag), grace_period(spec(tag)).seconds


def seen(held: Deployment) -> ReplicaSet:
    """Its ReplicaSet, which has observed the present count."""
    return ReplicaSet(f"{held.name}-rs", f"uid-{held.name}-rs", held.uid, held.replicas, True)


def story(
    want: str,
    *pods: Pod,
    counts: Mapping[str, int] | None = None,
    deployments: Iterable[Deployment] | None = None,
    readings: Mapping[str, Reading | None] | None = None,
    spec: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Snapshot:
    """The service shall run `want`, and these are its pods.

    Deployments count their alive pods unless `counts` says otherwise by tag; `readings` by pod name replace the
    answers, None being silence; `spec` changes the spec, `fields` the snapshot.
    """
    raw = raw_spec(want, **(spec or {}))
    parsed = LLMServiceSpec.parse(raw)
    tags = {p.revision: 0 for p in pods} | dict.fromkeys(counts or {}, 0)
    held = {tag: sum(p.alive and p.revision == tag for p in pods) for tag in tags} | dict(counts or {})
    made = tuple(deployment(tag, count) for tag, count in held.items()) if deployments is None else tuple(deployments)
    heard = {p.name: says(p) for p in pods if p.alive and p.container.started and p.state != PodState.DRAINED}
    heard |= readings or {}
    uids = {p.name: p.uid for p in pods}
    known: dict[str, Any] = {
        "now": NOW, "namespace": OWNER.namespace, "name": OWNER.name, "uid": OWNER.uid, "generation": 2,
        "raw_spec": raw, "spec": parsed, "pods": tuple(pods), "deployments": made,
        "replica_sets": tuple(seen(d) for d in made),
        "readings": {uids[name]: said for name, said in heard.items() if said is not None},
        "live_service": objects.service(OWNER, parsed), "live_budget": objects.disruption_budget(OWNER, parsed),
    }  # fmt: skip
    if "status" in fields:
        fields["status"] = LLMServiceStatus.read(fields["status"])
    return Snapshot(**(known | fields))


def tag_of(source: str) -> str:
    """The image tag in a revision source."""
    image: str = json.loads(source)["template"]["spec"]["containers"][0]["image"]
    return image.partition(":")[2]


def told(what: Snapshot | Plan) -> list[str]:
    """The actions of a plan, one short sentence each."""
    decided = plan(what) if isinstance(what, Snapshot) else what
    return [_sentence(decided.view.snapshot, action) for action in decided.actions]


def _sentence(s: Snapshot, action: a.Action) -> str:
    match action:
        case a.CreateRevision(refresh=True):
            return f"refresh {tag_of(action.source)}"
        case a.CreateRevision():
            return f"create {tag_of(action.source)} with {action.replicas}"
        case a.Scale():
            held = next(d for d in s.deployments if d.name == action.deployment)
            way = "raise" if action.replicas > held.replicas else "lower"
            return f"{way} {held.revision} to {action.replicas}"
        case a.Withdraw():
            return f"withdraw {action.pod} ({action.record.reason})"
        case a.UpdateDrain():
            return f"update drain of {action.pod}"
        case a.Restore():
            return f"restore {action.pod}"
        case a.MarkDrained():
            return f"drained {action.pod}: {action.outcome.outcome}"
        case a.DeletePod():
            return f"delete {action.pod}"
        case a.DeleteDeployment() | a.Adopt():
            verb = "adopt" if isinstance(action, a.Adopt) else "remove"
            return f"{verb} {action.name}"
        case a.ApplyChild() | a.DeleteChild():
            verb = "apply" if isinstance(action, a.ApplyChild) else "delete"
            return f"{verb} {action.kind} {action.name}"
        case a.EnsureSecret():
            return f"ensure {action.name}"


def only(what: Snapshot | Plan, kind: type[Any]) -> Any:
    """The one action of this kind."""
    decided = plan(what) if isinstance(what, Snapshot) else what
    found = [action for action in decided.actions if isinstance(action, kind)]
    assert len(found) == 1, told(decided)
    return found[0]
