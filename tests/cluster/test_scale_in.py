"""Scale-in on a real cluster: whom it takes, and what becomes of that pod when the pod is wanted after all."""

import time
from collections.abc import Callable

from cluster.harness.kube import eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_ready, is_serving, state
from cluster.harness.service import Namespace, Service
from tidegate.api.conditions import Outcome, PodState
from tidegate.core.state.view import FRESH_SECONDS


def test_it_takes_the_idlest_pod_and_then_the_next(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """Least work first, by what the pods hold now and not by what they held when they were asked as they started."""
    service = Service(namespace).apply()
    service.wait_settled()
    pods = service.pods()
    watched = record(service.labels)
    counts = dict(zip((pod["metadata"]["name"] for pod in pods), (4, 9, 1), strict=True))
    order = sorted(counts, key=lambda name: counts[name])
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    loads = [lasting(namespace, service.name, counts[name], [by_name[name]]).start() for name in order]
    for load in loads:
        load.wait_running()
    time.sleep(FRESH_SECONDS)
    results = []
    for taken, load in enumerate(loads[:2], start=1):
        service.scale(3 - taken)
        # With its streams in it, which end when it has been told to drain.
        eventually("the next pod drains", lambda taken=taken: len(namespace.logs.find("drain")) >= taken)
        results.append(load.finish())
        service.wait_settled()
    results.append(loads[2].finish())
    watched.catch_up()

    assert watched.drained_pods() == order[:2], (counts, order)
    for result in results:
        result.assert_whole()
    held = [namespace.logs.drain_evidence(name).held for name in order[:2]]
    assert held == [1, 4]
    assert [p["metadata"]["name"] for p in service.pods() if is_serving(p)] == order[2:]
    assert watched.creations() == []
    assert watched.unroutable() == []


Reached = Callable[[Service, Record], bool]


def asked_for(service: Service, watched: Record) -> bool:
    return True


def withdrawn(service: Service, watched: Record) -> bool:
    return any(state(pod) == PodState.DRAINING for pod in service.pods())


def told(service: Service, watched: Record) -> bool:
    """The pod itself has begun to drain and is not Ready any more."""
    return any(state(pod) == PodState.DRAINING and not is_ready(pod) for pod in service.pods())


def test_cancelled_before_it_is_over_the_pod_serves_again(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """2 -> 1 -> 2, at once, when the pod is withdrawn, and when it drains: with streams in it all the time."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    before = {pod["metadata"]["name"] for pod in service.pods()}
    watched = record(service.labels)
    loads = [lasting(namespace, service.name, 3, [pod]).start() for pod in service.pods()]
    busy = Load(namespace, service.name, streams=10, seconds="1-3").start().wait_running()
    for load in loads:
        load.wait_running()
    for reached in (asked_for, withdrawn, told):
        service.scale(1)
        eventually(reached.__name__, lambda reached=reached: reached(service, watched))
        service.scale(2)
        service.wait_settled()
        eventually("both pods are routed to", lambda: watched.routed() == before)
    result = busy.stop()
    fresh = Load(namespace, service.name, streams=8, seconds="1", options=("--total", "24")).start().wait_done()
    held = [load.finish() for load in loads]
    watched.catch_up()

    for done in (result, fresh, *held):
        done.assert_whole()
    assert fresh.summary["byPod"].keys() == before
    assert len(watched.drained_pods()) >= 1, "no drain had begun when it was cancelled, so nothing was shown"
    undone = namespace.logs.find("undrain")
    assert undone, "no pod was told that it serves again"
    assert watched.creations() == watched.removals() == []
    assert {pod["metadata"]["name"] for pod in service.pods()} == before
    assert service.status.get("outcomes", []) == []
    assert watched.unroutable() == []


def test_reversed_when_its_pod_is_sealed_a_new_one_takes_its_place(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """2 -> 1 -> 2 when the pod has said that it is sealed, which it cannot take back."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    before = {pod["metadata"]["name"] for pod in service.pods()}
    watched = record(service.labels)
    busy = Load(namespace, service.name, streams=10, seconds="1-3").start().wait_running()
    service.scale(1)
    eventually("the pod is sealed", lambda: namespace.logs.find("sealed"))
    service.scale(2)
    service.wait_settled()
    result = busy.stop()
    watched.catch_up()

    result.assert_whole()
    (gone,) = watched.drained_pods()
    (new,) = {event.name for event in watched.creations()}
    assert [(row["pod"], row["outcome"], row["cut"]) for row in service.status["outcomes"]] == [
        (gone, Outcome.DRAINED, 0)
    ]
    eventually("both pods are routed to", lambda: watched.routed() == before - {gone} | {new})
    watched.catch_up()
    assert watched.unroutable() == []
    assert namespace.logs.interrupted() == []
