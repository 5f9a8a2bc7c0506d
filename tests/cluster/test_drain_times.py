"""Drain times learnt on a real cluster: counted once whoever dies, shown term by term, carried by the next revision."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from cluster.harness.audit import OPERATOR, Audit
from cluster.harness.kube import CONFIGMAPS, PATIENCE_SECONDS, Object, eventually
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, state
from cluster.harness.service import Namespace, Service
from cluster.test_evictions import evict_allowed
from cluster.test_operator_restarts import kill_at
from tidegate.api.conditions import Outcome, PodState
from tidegate.cluster.drain_times import KEY, name_of
from tidegate.core.drain_time.drain_times import DrainTimes, load
from tidegate.core.drain_time.grace import DRIFT

GRACE = {"initialSeconds": 3, "teardownSeconds": 8, "safetySeconds": 2}
"""A teardown is measured too: declared shorter, a slow machine would outgrow it and make the sum stale once more."""
DECLARED_SECONDS = 1 + sum(GRACE.values())


def config_map(service: Service) -> Object | None:
    return service.namespace.kube.get(f"{CONFIGMAPS.format(service.namespace.name)}/{name_of(service.name)}")


def learnt(service: Service) -> DrainTimes:
    found = config_map(service)
    return DrainTimes() if found is None else load(found["data"][KEY])


def terms(service: Service) -> dict[str, Any]:
    return {term["name"]: term for term in service.status["gracePeriod"]["terms"]}


def graces(service: Service, tag: str) -> set[int]:
    """terminationGracePeriodSeconds of the standing pods of this revision."""
    specs = [p["spec"] for p in service.pods() if p["spec"]["containers"][0]["image"].endswith(f":{tag}")]
    return {int(spec["terminationGracePeriodSeconds"]) for spec in specs}


@pytest.mark.begins_first
def test_a_cut_drain_raises_the_term_and_the_next_revision_carries_it(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    """And nothing rolls for it; an evicted pod then ends its streams, which the declared time would have cut."""
    service = Service(namespace, replicas=2, drain={"budgetSeconds": 14, "grace": GRACE}).apply()
    service.wait_settled()
    assert graces(service, "v1") == {DECLARED_SECONDS}
    # To the pods in turn: through the Service, now and then one of the two would get none.
    ips, options = tuple(pod["status"]["podIP"] for pod in service.pods()), ("--total", "6")
    endless = Load(namespace, service.name, streams=6, seconds="600", options=options, pod_ips=ips).start()
    endless.wait_running()
    service.apply(tag="v2")
    service.wait_settled()
    assert endless.wait_done().summary["cutBy"] == {"token": 6}
    # Withdrawn, a second of propagation, and 12 s until the tokens a second before the deadline.
    known = learnt(service)
    assert (known.drains.n, known.drains.censored_n) == (2, 2)
    # Those of v1 may still terminate.
    eventually("only pods of v2 are left", lambda: len(service.pods()) == 2)
    # Of one read: each pod that is gone is one sample more of a teardown, whenever the operator hears of it.
    status = service.status
    said = {condition["type"]: condition["message"] for condition in status["conditions"]}
    summands = {term["name"]: term for term in status["gracePeriod"]["terms"]}
    grace = status["gracePeriod"]["seconds"]
    assert summands["drain"]["source"] == "Measured"
    # Whole seconds. However late a busy machine made them, the term covers what they took and grows by half at most.
    longest = max(row["seconds"] for row in status["outcomes"]) + 1
    assert 12 < summands["drain"]["seconds"] <= longest * 1.5
    assert summands["drain"]["samples"] == 2
    assert "spec.drain.budgetSeconds" in said["BudgetTruncating"]
    assert f"{grace} s" in said["GracePeriodStale"]
    assert grace == sum(term["seconds"] for term in summands.values()) > DECLARED_SECONDS
    assert graces(service, "v2") == {DECLARED_SECONDS}, "a revision keeps what it was made with"
    watched = record(service.labels)
    assert_described(service)
    watched.catch_up()
    assert watched.events("Pod") == []

    service.apply(tag="v3")
    service.wait_settled()
    (carried,) = graces(service, "v3")
    assert carried > DECLARED_SECONDS
    assert carried in {status["gracePeriod"]["seconds"] for status in audit.statuses(namespace.name, service.name)}
    status = service.status
    stale = any(condition["type"] == "GracePeriodStale" for condition in status["conditions"])
    # On a slow machine the teardowns of v2 may have moved the sum once more.
    assert stale == (abs(status["gracePeriod"]["seconds"] - carried) > DRIFT * carried)
    load_result = evicted_under_load(service, record)
    load_result.assert_whole()


def assert_described(service: Service) -> None:
    """`kubectl describe` shows the sum, and each term with its source, what it rests on and what its samples cover."""

    def shown_while_still() -> tuple[str, Object] | None:
        before = service.status["gracePeriod"]
        text = service.kubectl("describe", f"llmservice/{service.name}")
        return (text, before) if service.status["gracePeriod"] == before else None

    text, grace = eventually("the terms stand still for the time of two reads", shown_while_still)
    lines = [" ".join(line.split()) for line in text[text.index("Grace Period:") :].splitlines()]
    assert lines[1] == f"Seconds: {grace['seconds']}"
    for term in grace["terms"]:
        name, measured = term["name"], "samples" in term
        shown = [f"Covers: {term['covers']:g}", f"Message: {term['message']}"] if measured else []
        shown += [f"Name: {name}", *([f"Samples: {term['samples']}"] if measured else [])]
        shown += [f"Seconds: {term['seconds']}", f"Source: {term['source']}"]
        assert "\n".join(shown) in "\n".join(lines), (shown, text)
    (drain,) = [term for term in grace["terms"] if term["name"] == "drain"]
    assert f"{drain['samples']} samples, {drain['samples']} of them without an end" in drain["message"]


def evicted_under_load(service: Service, record: MakeRecord) -> Any:
    """Evict a pod that holds streams which last longer than the declared sum but end within the computed one."""
    watched = record(service.labels)
    load = Load(service.namespace, service.name, streams=12, seconds="15-17").start().wait_running()
    pod = service.serving_pod()
    eventually("the pod has streams to lose", lambda: service.namespace.logs.running(pod) >= 4)
    evict_allowed(service.namespace, pod)
    eventually("the evicted pod is gone", lambda: pod not in {p["metadata"]["name"] for p in service.pods()})
    result = load.stop()
    service.wait_settled()
    watched.catch_up()
    removal = next(event for event in watched.removals() if event.name == pod)
    # Not what status says by now: the pod carries what was in force when its revision was made.
    carried = removal.object["spec"]["terminationGracePeriodSeconds"]
    assert removal.object["metadata"]["deletionGracePeriodSeconds"] == carried
    return result


@pytest.mark.long
def test_no_death_of_the_operator_loses_or_doubles_a_sample(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    """It is killed in a drain, with an outcome written and not counted, and in the moments after."""
    service = Service(namespace, replicas=3).apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=30, seconds="3-6").start().wait_running()
    service.wait_busy()
    moments: list[Callable[[Object], bool]] = [
        lambda pod: state(pod) == PodState.DRAINED,
        lambda pod: state(pod) == PodState.DRAINING,
        lambda pod: state(pod) == PodState.DRAINED and counted_now(service, pod),
    ]
    killed = kill_at(operator, service, moments)
    service.apply(tag="v2")
    struck = killed.result(PATIENCE_SECONDS)
    service.wait_settled()
    load.stop().assert_whole()
    watched.catch_up()

    assert len(struck) == 3
    drained = watched.drained_pods()
    assert sorted(learnt(service).counted) == sorted(drained)
    assert learnt(service).drains.n == len(drained) == 3
    assert service.status["drainTimes"]["samples"] == 3
    assert {row["outcome"] for row in service.status["outcomes"]} == {Outcome.DRAINED}
    writes = [c for c in audit.writes(namespace.name, user=OPERATOR) if c.resource == "configmaps"]
    assert 1 <= len(writes) <= 3, "one write a drain at most"
    size = len(json.dumps(config_map(service)))
    assert size < 8_000


def counted_now(service: Service, pod: Object) -> bool:
    """Wait until the drain is in the ConfigMap: the kill falls between that and the lowering, or right after."""
    name = pod["metadata"]["name"]
    eventually(f"{name} is counted", lambda: name in learnt(service).counted)
    return True


def test_unreadable_drain_times_are_left_alone_and_said(operator: Operator, namespace: Namespace) -> None:
    service = Service(namespace, replicas=1)
    path = CONFIGMAPS.format(namespace.name)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name_of("chat")}, "data": {KEY: "{"}}
    assert namespace.kube.call("POST", path, body).is_success
    service.apply()
    service.wait_settled()
    said = eventually("it says so", lambda: service.condition("DrainTimesUnreadable"))
    assert "does not belong to Tidegate" in said["message"]
    service.apply(tag="v2")
    service.wait_settled()
    assert (config_map(service) or {})["data"] == {KEY: "{"}
    assert {term["source"] for term in terms(service).values()} == {"Declared"}
