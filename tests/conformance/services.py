"""The LLMService resource itself: its status, its generation, its one default, its scale."""

from typing import Any

from conformance.children import make_service
from conformance.kubernetes import Kubernetes, refused
from conformance.rows import Rows
from tidegate.api.errors import Conflict, NotFound
from tidegate.cluster.port import LLM_SERVICES, Object
from tidegate.controller.status_writer import status_patch

ROWS = Rows()
REPORT = "controller.status_writer:StatusWriter.write"


async def _report(k8s: Kubernetes, uid: str, status: dict[str, Any], held: Object | None = None) -> Object:
    """The operator's write of a status, where it holds `held` to be the present one."""
    return await k8s.cluster.patch_status(LLM_SERVICES, k8s.namespace, k8s.name, status_patch(uid, held or {}, status))


def _condition(kind: str, **more: Any) -> Object:
    at = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": "True", "reason": "X", "message": "x", "lastTransitionTime": at, **more}


@ROWS.row(
    "nothing of a spec is filled in but replicas", "core.planner.revision:source", "api.resource:LLMServiceSpec.parse"
)
async def _(k8s: Kubernetes) -> None:
    template = k8s.template("still")
    spec = {"port": "http", "template": template, "drain": {"mode": "Native"}}
    made = await k8s.create(LLM_SERVICES, {"metadata": {"name": k8s.name}, "spec": spec})
    assert made["spec"] == {**spec, "replicas": 1}


@ROWS.row("a status is written without touching spec or generation", REPORT)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    before = await k8s.read(LLM_SERVICES, k8s.name)
    answer = await _report(k8s, made.owner.uid, {"phase": "Ready", "observedGeneration": 1})
    assert answer["status"] == {"phase": "Ready", "observedGeneration": 1}
    assert answer["spec"] == before["spec"]
    assert answer["metadata"]["generation"] == before["metadata"]["generation"] == 1


@ROWS.row(
    "a status becomes what is wanted: keys come and go, maps and lists are replaced whole",
    "controller.status_writer:status_patch",
)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    first = {"phase": "Rolling", "message": "m", "conditions": [_condition("Ready"), _condition("Stalled")]}
    held = (await _report(k8s, made.owner.uid, {**first, "rollout": {"seconds": 3, "drained": 1}}))["status"]
    wanted = {"phase": "Rolling", "serving": 2, "conditions": [_condition("Ready")], "rollout": {"drained": 1}}
    assert (await _report(k8s, made.owner.uid, wanted, held))["status"] == wanted
    assert (await _report(k8s, made.owner.uid, held, wanted))["status"] == held


@ROWS.row(
    "a status written on the belief that there is none replaces the one that there is",
    "controller.status_writer:status_patch",
)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await _report(k8s, made.owner.uid, {"phase": "Ready", "message": "m"})
    assert (await _report(k8s, made.owner.uid, {"phase": "Rolling"}))["status"] == {"phase": "Rolling"}


@ROWS.row("a status that says nothing new leaves the resourceVersion as it is", REPORT)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    first = await _report(k8s, made.owner.uid, {"phase": "Ready"})
    again = await _report(k8s, made.owner.uid, {"phase": "Ready"})
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@ROWS.row("a status field that the CRD does not know is dropped, and nobody complains", REPORT)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    answer = await _report(k8s, made.owner.uid, {"phase": "Ready", "ofTomorrow": 1, "rollout": {"ofTomorrow": 1}})
    assert answer["status"] == {"phase": "Ready", "rollout": {}}


@ROWS.row("a status for another LLMService of the same name is a conflict", REPORT)
async def _(k8s: Kubernetes) -> None:
    await make_service(k8s)
    await refused(_report(k8s, "another-uid", {"phase": "Ready"}), Conflict)
    assert "status" not in await k8s.read(LLM_SERVICES, k8s.name)


@ROWS.row("a status for an LLMService that is gone says so", "controller.runtime:Operator._work")
async def _(k8s: Kubernetes) -> None:
    await refused(_report(k8s, "u", {"phase": "Ready"}), NotFound)


@ROWS.row("a user's write of the status beside the spec is ignored", REPORT)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    await _report(k8s, made.owner.uid, {"phase": "Ready"})
    change = {"status": {"phase": "Rolling"}, "spec": {"replicas": 4}}
    answer = await k8s.merge(LLM_SERVICES, k8s.name, change)
    assert (answer["status"], answer["spec"]["replicas"]) == ({"phase": "Ready"}, 4)


@ROWS.row(
    "the generation rises with the spec alone, not with labels, annotations or status", "core.report.status:status"
)
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    for change, generation in (
        ({"metadata": {"labels": {"note": "x"}, "annotations": {"note": "x"}}}, 1),
        ({"spec": {"replicas": 7}}, 2),
        ({"spec": {"replicas": 7}}, 2),
    ):
        answer = await k8s.merge(LLM_SERVICES, k8s.name, change)
        assert answer["metadata"]["generation"] == generation
    answer = await _report(k8s, made.owner.uid, {"phase": "Ready"})
    assert answer["metadata"]["generation"] == 2


@ROWS.row("/scale shows the count of the status and its selector, and writes the spec", "core.report.status:status")
async def _(k8s: Kubernetes) -> None:
    made = await make_service(k8s)
    selector = f"tidegate.dev/service={k8s.name},tidegate.dev/state notin (draining,drained)"
    await _report(k8s, made.owner.uid, {"replicas": 2, "selector": selector})
    seen = await k8s.merge(LLM_SERVICES, k8s.name, {"spec": {"replicas": 5}}, "scale")
    assert (seen["spec"], seen["status"]) == ({"replicas": 5}, {"replicas": 2, "selector": selector})
    live = await k8s.read(LLM_SERVICES, k8s.name)
    assert (live["spec"]["replicas"], live["metadata"]["generation"]) == (5, 2)
