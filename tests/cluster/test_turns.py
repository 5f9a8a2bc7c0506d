"""Rollouts that change their mind on a real cluster: back, to a third revision, paused, with other numbers halfway."""

import json
from typing import Any

import pytest

from cluster.harness.evidence import assert_run_counts
from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_draining, is_serving, state
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import Phase, PodState

STREAMS = "4-8"
"""So long that of the few that a pod holds when it is withdrawn one all but surely outlives it by two seconds."""


def anchored(service: Service) -> Load:
    """Streams in every pod, all begun now: until they are told to finish no drain ends."""
    pods = [pod for pod in service.pods() if is_serving(pod)]
    return lasting(service.namespace, service.name, 6 * len(pods), pods).start().wait_running()


def draining_pod(service: Service) -> str:
    """Wait until a pod has been told to drain and has streams; its name."""
    logs = service.namespace.logs

    def found() -> str | None:
        candidates = [pod["metadata"]["name"] for pod in service.pods() if is_draining(pod)]
        told = [name for name in candidates if any(line["event"] == "drain" for line in logs.of(name))]
        return next((name for name in told if logs.running(name) > 0), None)

    return str(eventually(f"a pod of {service.name} drains", found))


def pods_of(service: Service) -> set[str]:
    return {pod["metadata"]["name"] for pod in service.pods() if is_serving(pod)}


@pytest.mark.begins_first
def test_back_and_forth_and_on_to_a_third_revision(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """One service: rolled back in the middle, forward again, restarted in the middle of that, undone at last."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    old = pods_of(service)
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=24, seconds=STREAMS).start().wait_running()
    anchors = anchored(service)

    service.apply(tag="v2")
    undone = draining_pod(service)
    service.apply(tag="v1")
    service.wait_settled()
    assert_undone(service, watched, undone, old)

    service.apply(tag="v2")
    draining_pod(service)
    middle = pods_of(service) - old
    assert middle
    eventually("the middle revision has streams", lambda: all(namespace.logs.running(pod) >= 5 for pod in middle))
    service.apply(rollout={"restartedAt": "2026-11-29T20:00:00Z"})
    anchors.finish().assert_whole()
    service.wait_settled()
    assert_middle_drained(service, watched, old, middle)

    third, before = pods_of(service), deployments(service)
    service.wait_busy()
    service.apply(tag="v1", rollout={})
    service.wait_settled()
    load.stop().assert_whole()
    watched.catch_up()
    # The first revision's own Deployment, from 0: no other one was made for what is the same.
    assert {name: uid for name, (uid, _) in deployments(service).items()} == {n: uid for n, (uid, _) in before.items()}
    first = min(service.deployments(), key=lambda item: str(item["metadata"]["creationTimestamp"]))
    assert (before[first["metadata"]["name"]][1], first["spec"]["replicas"]) == (0, 2)
    assert service.status["targetRevision"] == first["metadata"]["name"]
    assert third <= set(watched.drained_pods())
    assert_run_counts(namespace.logs, third)
    assert_only_drained_pods_went(namespace, watched)
    watched.assert_bounds(serving=2, standing=3)


def assert_undone(service: Service, watched: Record, pod: str, old: set[str]) -> None:
    """Asked to serve again, it does: the same pods as before, and new streams in the one that was draining."""
    watched.catch_up()
    lines = service.namespace.logs.of(pod)
    assert "undrain" in [line["event"] for line in lines]
    assert pods_of(service) == old
    (new,) = {event.name for event in watched.creations()}
    assert {event.name for event in watched.removals()} == {new}
    asked_back = next(line["at"] for line in lines if line["event"] == "undrain")

    def serves() -> bool:
        events = service.namespace.logs.of(pod)
        return any(line["event"] == "stream-start" and line["at"] > asked_back for line in events)

    eventually("streams begin again in the pod that was given back", serves)


def assert_middle_drained(service: Service, watched: Record, old: set[str], middle: set[str]) -> None:
    """None of the first two revisions is left, and each of their pods was drained with streams to lose."""
    watched.catch_up()
    assert not pods_of(service) & (old | middle)
    assert old | middle <= set(watched.drained_pods())
    assert_run_counts(service.namespace.logs, middle)


def deployments(service: Service) -> dict[str, tuple[str, int]]:
    """Uid and replicas by name."""
    return {d["metadata"]["name"]: (d["metadata"]["uid"], d["spec"]["replicas"]) for d in service.deployments()}


def assert_only_drained_pods_went(namespace: Namespace, watched: Record) -> None:
    assert {state(event.object) for event in watched.removals()} == {PodState.DRAINED}
    assert namespace.logs.interrupted() == []
    assert namespace.events("FailedPreStopHook") == []


@pytest.mark.long
def test_paused_and_with_other_numbers_in_the_middle(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """One rollout: paused, scaled out, resumed with two slots, its budget raised, scaled in with one to spare."""
    service = Service(namespace).apply()
    service.wait_settled()
    old = pods_of(service)
    whole = record(service.labels)
    load = Load(namespace, service.name, streams=36, seconds=STREAMS).start().wait_running()
    service.wait_busy()
    # So that the pause is there before the first drain is over, however slow the machine.
    first = anchored(service)

    service.apply(tag="v2")
    pod = draining_pod(service)
    service.apply(rollout={"paused": True})
    first.finish().assert_whole()
    assert_paused(service, whole, pod)
    service.scale(4)
    eventually("a pod more of the new revision serves", lambda: service.status.get("updated") == 2)
    whole.catch_up()
    assert whole.drained_pods() == [pod]
    whole.assert_bounds(serving=3, standing=5)

    two_slots = record(service.labels)
    anchors = anchored(service)
    service.apply(rollout={"maxSurge": 2})
    eventually("two drain at once", lambda: sum(map(is_draining, service.pods())) == 2)
    service.apply(drain={"budgetSeconds": 500})
    moved = eventually("deadlines of running drains move", lambda: moved_deadlines(two_slots))
    anchors.finish().assert_whole()
    two_slots.catch_up()
    two_slots.assert_bounds(serving=4, standing=6)

    smaller = record(service.labels)
    service.apply(replicas=2, rollout={"maxSurge": 2, "maxUnavailable": 1})
    service.wait_settled()
    load.stop().assert_whole()
    for watched in (whole, two_slots, smaller):
        watched.catch_up()
    smaller.assert_bounds(serving=1, standing=6)
    assert set(moved) <= set(whole.drained_pods())
    assert len(pods_of(service)) == 2
    # Not the pods that scale-in took: it takes the idlest, which are those that were new and had got nothing yet.
    assert old <= set(whole.drained_pods())
    assert_run_counts(namespace.logs, old)
    assert_only_drained_pods_went(namespace, whole)


def assert_paused(service: Service, watched: Record, pod: str) -> None:
    """The drain that runs ends, its pod goes, and that is all; the status says why."""
    eventually("the running drain ends", lambda: not any(is_draining(item) for item in service.pods()))
    eventually("it is Paused", lambda: service.status["phase"] == Phase.PAUSED and service.status["serving"] == 3)
    assert "is paused (spec.rollout.paused)" in service.status["message"]
    watched.catch_up()
    assert watched.drained_pods() == [pod]
    assert len(watched.creations()) == 1


def drains(watched: Record) -> dict[str, list[Object]]:
    """The distinct records of each pod's drain, in order."""
    found: dict[str, list[Any]] = {}
    for event in watched.events("Pod"):
        text = (event.object["metadata"].get("annotations") or {}).get(names.DRAIN)
        rows = found.setdefault(event.name, [])
        if text is not None and json.loads(text) not in rows:
            rows.append(json.loads(text))
    return found


def moved_deadlines(watched: Record) -> list[str]:
    """Pods whose drain went on under its id with another budget, and so another deadline."""
    moved = {name: rows for name, rows in drains(watched).items() if len(rows) > 1}
    for first, second in moved.values():
        assert (first["id"], first["since"]) == (second["id"], second["since"])
        assert (first["budgetSeconds"], second["budgetSeconds"]) == (300, 500)
        assert first["deadline"] < second["deadline"]
    return list(moved)
