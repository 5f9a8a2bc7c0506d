"""Whom the operator takes for its own: by controllers, not by labels, which anybody can set."""

from typing import Any

from tidegate.api import names
from tidegate.api.resource import LLMServiceSpec
from tidegate.cluster import gather
from tidegate.cluster.port import DEPLOYMENTS, PDBS, PODS, REPLICASETS, SERVICES, Kind
from tidegate.cluster.store import Store
from tidegate.core.state.snapshot import Snapshot

LABELS = {names.SERVICE: "chat", names.REVISION: "v1", names.STATE: "serving", names.MANAGED_BY: names.MANAGER}
TEMPLATE = {"spec": {"containers": [{"name": "server", "ports": [{"name": "http", "containerPort": 8000}]}]}}
SPEC = {"replicas": 1, "port": "http", "drain": {"mode": "Native", "native": {"port": 9901}}, "template": TEMPLATE}


def controlled(kind: str, name: str, uid: str) -> list[dict[str, Any]]:
    return [{"apiVersion": "x/v1", "kind": kind, "name": name, "uid": uid, "controller": True}]


def body(name: str, owners: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    meta |= {"labels": LABELS, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {names.CONTAINER: "server"}}
    return {"metadata": meta | {"ownerReferences": owners}, "spec": {"replicas": 1, "containers": []}, **more}


def seen(*objects: tuple[Kind, dict[str, Any]]) -> Snapshot:
    store = Store()
    for kind, raw in objects:
        store.put(kind, raw)
    service = {"metadata": {"name": "chat", "namespace": "shop", "uid": "uid-chat", "generation": 1}, "spec": SPEC}
    return gather.snapshot(store, service, LLMServiceSpec.parse(SPEC), gather.Known(now=0.0))


OURS = (
    (DEPLOYMENTS, body("chat-v1", controlled(names.KIND, "chat", "uid-chat"))),
    (REPLICASETS, body("chat-v1-a", controlled("Deployment", "chat-v1", "uid-chat-v1"))),
    (PODS, body("chat-v1-a-1", controlled("ReplicaSet", "chat-v1-a", "uid-chat-v1-a"))),
)


def test_a_pod_is_ours_by_its_controllers():
    assert [pod.name for pod in seen(*OURS).pods] == ["chat-v1-a-1"]


def test_a_pod_with_our_labels_and_another_controller_or_none_is_neither_counted_nor_called():
    bare = body("bare", [])
    theirs = body("theirs", controlled("ReplicaSet", "other", "uid-other"))
    s = seen(*OURS, (PODS, bare), (PODS, theirs))
    assert [pod.name for pod in s.pods] == ["chat-v1-a-1"]


def test_a_child_of_somebody_else_s_is_named_and_left_alone():
    service = body("chat", controlled("Gateway", "front", "uid-front"))
    s = seen(*OURS, (SERVICES, service))
    assert s.live_service is None
    assert [(c.kind, c.name) for c in s.conflicts] == [("Service", "chat")]
    assert "belongs to Gateway front" in s.conflicts[0].detail


def test_a_deployment_of_somebody_else_s_is_named_and_its_pods_are_not_ours():
    (_, deployment), *others = OURS
    owners = controlled(names.KIND, "other", "uid-of-another")
    theirs = {**deployment, "metadata": {**deployment["metadata"], "ownerReferences": owners}}
    s = seen((DEPLOYMENTS, theirs), *others)
    assert (s.deployments, s.replica_sets, s.pods) == ((), (), ())
    assert [(c.kind, c.name) for c in s.conflicts] == [("Deployment", "chat-v1")]


def budget(name: str, selector: dict[str, Any] | None, **meta: Any) -> tuple[Kind, dict[str, Any]]:
    raw = body(name, [], spec={"maxUnavailable": 1} | ({} if selector is None else {"selector": selector}))
    return PDBS, {**raw, "metadata": raw["metadata"] | {"labels": {}} | meta}


APP = {"matchLabels": {names.SERVICE: "chat"}}


def test_budgets_of_others_over_our_pods_are_known_by_whatever_their_selectors_say():
    found = seen(
        *OURS,
        budget("all", {}),
        budget("none", None),
        budget("by-label", APP),
        budget("by-expression", {"matchExpressions": [{"key": names.REVISION, "operator": "NotIn", "values": ["v2"]}]}),
        budget("of-an-app", {"matchLabels": {"app": "other"}}),
        budget("without-us", {"matchExpressions": [{"key": names.SERVICE, "operator": "DoesNotExist"}]}),
        budget("elsewhere", {}, namespace="another"),
        budget("chat", APP),
    )
    assert found.budgets_beside == ("all", "by-label", "by-expression")


def test_pods_that_our_own_budget_leaves_out_have_one_budget_alone():
    (_, pod) = OURS[2]
    drained = {**pod, "metadata": pod["metadata"] | {"labels": LABELS | {names.STATE: "drained"}}}
    going = {**pod, "metadata": pod["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    for one in (drained, going):
        assert seen(*OURS[:2], (PODS, one), budget("all", {})).budgets_beside == ()
    assert seen(*OURS[:2], budget("all", {})).budgets_beside == (), "nor is there anything to say without pods"
