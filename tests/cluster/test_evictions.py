"""Evictions, as `kubectl drain` of a node makes them, on a real cluster: an evicted pod ends its streams in place."""

import httpx
import pytest

from cluster.harness.kube import BUDGETS, PODS, REPLICASETS, Object, eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, is_serving
from cluster.harness.service import Namespace, Service
from tidegate.api.conditions import ConditionType, DrainReason, Outcome, PodState, Reason
from tidegate.core.state import times


def evict(namespace: Namespace, pod: str) -> httpx.Response:
    """By the Eviction API, which passes by the admission lock and asks the PodDisruptionBudget alone."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    return namespace.kube.call("POST", f"{PODS.format(namespace.name)}/{pod}/eviction", body)


def evict_allowed(namespace: Namespace, pod: str) -> None:
    """Once the budget's controller has counted the pods, which are Ready before that."""
    eventually("the budget lets one pod go", lambda: evict(namespace, pod).is_success)


def test_an_evicted_pod_drains_in_place_within_its_grace_period(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=30).start().wait_running()
    pods = service.pods()
    evicted, spared = (pod["metadata"]["name"] for pod in pods)
    # The preStop hook finds these, however late the kubelet comes to it.
    held = lasting(namespace, service.name, 5, pods[:1]).start()
    eventually("the pod has streams to lose", lambda: namespace.logs.running(evicted) >= 5)
    held.wait_running()
    evict_allowed(namespace, evicted)
    second = evict(namespace, spared)
    assert second.status_code == httpx.codes.TOO_MANY_REQUESTS, second.text
    eventually("preStop has called the pod", lambda: namespace.logs.find("prestop", pod=evicted))
    held.finish().assert_whole()
    eventually("the evicted pod is gone", lambda: evicted not in {p["metadata"]["name"] for p in service.pods()})
    service.wait_settled()
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    (removal,) = watched.removals()
    assert removal.name == evicted
    assert removal.object["metadata"]["deletionGracePeriodSeconds"] == service.status["gracePeriod"]["seconds"]
    assert sum(term["seconds"] for term in service.status["gracePeriod"]["terms"]) == 1 + 60 + 2 + 2
    assert watched.drained_pods() == []
    (creation,) = watched.creations()
    fewest, moment = watched.fewest(is_serving)
    assert fewest >= 1, moment
    assert {pod["metadata"]["name"] for pod in service.pods()} == {spared, creation.name}
    assert_ended_before_its_container(namespace, evicted)


SHORT_GRACE = {"initialSeconds": 6, "teardownSeconds": 2, "safetySeconds": 2}
"""In seconds, and far less than `endless` streams take."""


def endless(namespace: Namespace, service: Service, pod: Object, streams: int) -> Load:
    """Streams of this pod that outlast whatever happens to it, and no others after them."""
    ips, total = (str(pod["status"]["podIP"]),), ("--total", str(streams))
    return Load(namespace, service.name, streams=streams, seconds="600", options=total, pod_ips=ips).start()


def outcome(service: Service, pod: str) -> Object:
    """The row of this pod in the status, once it is there."""
    found: Object = eventually(
        f"the end of {pod} is told", lambda: next((r for r in service.status["outcomes"] if r["pod"] == pod), {})
    )
    return found


def test_evictions_with_streams_longer_than_the_grace_period_are_told_with_the_right_count(
    operator: Operator, namespace: Namespace
) -> None:
    service = Service(namespace, replicas=3, drain={"grace": SHORT_GRACE}).apply()
    service.wait_settled()
    pods = service.pods()
    held = {pod["metadata"]["name"]: endless(namespace, service, pod, n) for n, pod in zip((3, 5), pods, strict=False)}
    idle = pods[2]["metadata"]["name"]
    for load in held.values():
        load.wait_running()
    for name in (*held, idle):
        evict_allowed(namespace, name)
    seen = {name: load.wait_done().summary for name, load in held.items()}
    for name, summary in seen.items():
        row = outcome(service, name)
        assert summary["cut"] + summary["complete"] == summary["started"], summary
        assert (row["outcome"], row["reason"], row["cut"]) == (Outcome.EXPIRED, DrainReason.NODE_DRAIN, summary["cut"])
    assert [summary["cut"] for summary in seen.values()] == [3, 5]
    row = outcome(service, idle)
    assert (row["outcome"], row["reason"], row["cut"]) == (Outcome.DRAINED, DrainReason.NODE_DRAIN, 0)
    service.wait_settled()
    eventually("each has its Event", lambda: len(namespace.events("NodeDrain")) >= 3)
    said = {event["message"].split()[1].rstrip(":"): event for event in namespace.events("NodeDrain")}
    assert {name: event["type"] for name, event in said.items()} == {**dict.fromkeys(held, "Warning"), idle: "Normal"}
    for name, summary in seen.items():
        assert f"{summary['cut']} requests cut; it was evicted (EvictionByEvictionAPI)" in said[name]["message"]
    assert namespace.events("Vanished") == []
    assert "pods" not in service.status or service.status["pods"] == []


def test_a_draining_pod_that_is_evicted_goes_on_draining_and_the_rollout_waits_for_it(
    operator: Operator, namespace: Namespace
) -> None:
    service = Service(namespace, replicas=1, drain={"grace": {**SHORT_GRACE, "initialSeconds": 20}}).apply()
    service.wait_settled()
    (old,) = service.pods()
    name = old["metadata"]["name"]
    load = endless(namespace, service, old, 4).wait_running()
    service.apply(tag="v2")
    eventually("it drains", lambda: namespace.logs.find("drain", pod=name))
    evict_allowed(namespace, name)
    eventually("preStop has called the pod", lambda: namespace.logs.find("prestop", pod=name))
    listed = eventually("its drain is shown", lambda: [r for r in service.status.get("pods", []) if r["name"] == name])
    assert (listed[0]["state"], listed[0]["reason"]) == (PodState.DRAINING, DrainReason.ROLLOUT)
    assert all(row["pod"] != name for row in service.status["outcomes"])
    summary = load.wait_done().summary
    row = outcome(service, name)
    assert (row["outcome"], row["reason"], row["cut"]) == (Outcome.EXPIRED, DrainReason.ROLLOUT, summary["cut"])
    assert summary["cut"] == 4, summary
    service.wait_settled()
    assert service.status["rollout"]["cut"] == 4
    # Both may be of the same pass, and each is rounded to milliseconds in its own way.
    finished, ended = times.parse(service.status["rollout"]["finishedAt"]), times.parse(row["at"])
    assert finished is not None and ended is not None and finished >= ended - 0.0015
    assert namespace.events("Vanished") == []


def assert_ended_before_its_container(namespace: Namespace, pod: str) -> None:
    """preStop found streams, and SIGTERM, which the kubelet sends when preStop has returned, found none of them."""
    lines = namespace.logs.of(pod)
    (prestop,) = [line for line in lines if line["event"] == "prestop"]
    (sigterm,) = [line for line in lines if line["event"] == "sigterm"]
    assert len(prestop["streams"]) >= 3
    held = {stream["id"] for stream in prestop["streams"]}
    ended = {line["id"] for line in lines[: lines.index(sigterm)] if line["event"] == "stream-end" and line["whole"]}
    assert held <= ended, held - ended
    assert all(line["whole"] for line in lines if line["event"] == "stream-end")
    assert namespace.events("FailedPreStopHook") == []


def test_with_disruption_mode_hold_no_eviction_is_admitted(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """Until the operator has drained the pod: then the budget does not cover it any more."""
    service = Service(namespace, replicas=2, more={"disruption": {"mode": "Hold"}}).apply()
    service.wait_settled()
    watched, asked = record(service.labels), service.generations()
    for pod in service.pods():
        answer = evict(namespace, pod["metadata"]["name"])
        assert answer.status_code == httpx.codes.TOO_MANY_REQUESTS, answer.text
    watched.catch_up()
    assert watched.events("Pod") == []
    assert service.generations() == asked

    before = {rs["metadata"]["uid"] for rs in namespace.kube.items(REPLICASETS.format(namespace.name))}
    service.apply(more={"disruption": {"mode": "Budget"}})
    pod = service.serving_pod()
    evict_allowed(namespace, pod)
    service.wait_settled()
    assert {rs["metadata"]["uid"] for rs in namespace.kube.items(REPLICASETS.format(namespace.name))} == before


@pytest.mark.alone
def test_a_drain_of_their_node_ends_while_pods_crash_and_is_refused_once_they_can_work(
    operator: Operator, namespace: Namespace
) -> None:
    """Crash-looping pods are Running and NotReady: with Kubernetes' default policy too few are healthy to evict any."""
    # The budget wants two of three to stay.
    service = Service(namespace, replicas=3, env={"MISBEHAVE": "crash-at-start"}).apply()
    kube = namespace.kube

    def crashing() -> bool:
        states = [
            status.get("state") or {} for pod in service.pods() for status in pod["status"].get("containerStatuses", ())
        ]
        return len(states) == 3 and all(
            (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff" for state in states
        )

    eventually("all pods crash", crashing)
    node = service.pods()[0]["spec"]["nodeName"]
    there = {pod["metadata"]["uid"] for pod in service.pods() if pod["spec"]["nodeName"] == node}
    try:
        selected = f"--pod-selector={service.labels}"
        said = kube.must("drain", node, selected, "--delete-emptydir-data", "--timeout=120s")
        assert said.count("evicted") >= len(there)
        assert not there & {
            pod["metadata"]["uid"] for pod in service.pods() if "deletionTimestamp" not in pod["metadata"]
        }
    finally:
        kube.must("uncordon", node)
    service.apply(env={})
    service.wait_settled()
    eventually("the budget protects them again", lambda: policy(namespace, service.name) == "IfHealthyBudget")
    evict_allowed(namespace, service.pods()[0]["metadata"]["name"])


def policy(namespace: Namespace, name: str) -> str:
    budget = namespace.kube.get(f"{BUDGETS.format(namespace.name)}/{name}")
    assert budget is not None
    return str(budget["spec"].get("unhealthyPodEvictionPolicy"))


def test_a_second_budget_over_the_pods_is_named_until_it_is_gone(operator: Operator, namespace: Namespace) -> None:
    """As a chart of the application brings one: no eviction is admitted while both are there."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["chat"]}]}
    spec = {"maxUnavailable": 1, "selector": selector}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "of-the-chart"}}
    namespace.kube.apply(namespace.name, budget | {"spec": spec})
    kind = ConditionType.DISRUPTION_BUDGET_CONFLICT
    found = eventually("it is named", lambda: service.condition(kind))
    assert (found["status"], found["reason"]) == ("True", Reason.SECOND_BUDGET)
    assert "PodDisruptionBudget of-the-chart selects pods" in found["message"]
    assert service.status["message"] == found["message"]
    pod = service.serving_pod()
    eventually("evictions fail", lambda: evict(namespace, pod).status_code == httpx.codes.INTERNAL_SERVER_ERROR)
    eventually("an Event says so", lambda: namespace.events(Reason.SECOND_BUDGET))
    service.kubectl("delete", "pdb/of-the-chart")
    eventually("it is not named any more", lambda: service.condition(kind) is None)
    assert len(namespace.events(Reason.SECOND_BUDGET)) == 1
    evict_allowed(namespace, pod)
    service.wait_settled()
