"""Old revisions that are not well, on a real cluster: what runs nothing goes at once, what still generates is waited
for, and what is lost in the middle of its drain is said to be lost."""

import pytest

from cluster.harness import inside
from cluster.harness.audit import Audit
from cluster.harness.kube import PODS, Object, eventually
from cluster.harness.load import lasting
from cluster.harness.nodes import vanish
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_ready, is_serving, is_standing, state
from cluster.harness.service import Namespace, Service
from tidegate.api.conditions import ConditionType, Outcome, PodState, Reason

STARTING = {"START_SECONDS": "3600"}
SLOW = {"START_SECONDS": "12"}
"""The fix: whoever waited for it to serve would be seen to have waited, on a slow machine too."""
NOTHING_RUNS: dict[str, tuple[Object, tuple[str, ...]]] = {
    "crash loop": (
        {"env": {"MISBEHAVE": "crash-at-start"}},
        # Whichever it is in at that moment.
        ("is not running (CrashLoopBackOff)", "is not running (exited", "has not started yet"),
    ),
    "still starting, as its pods say": ({"env": STARTING}, ("it reports that it is still starting",)),
    "still starting, as the startup probe says": (
        {"env": STARTING, "more": {"probes": {"startup": {"path": "/readyz"}}}},
        ("its container has not started yet",),
    ),
}


@pytest.mark.parametrize("way", NOTHING_RUNS)
def test_where_nothing_runs_the_fix_rolls_at_once_and_says_why(
    operator: Operator, namespace: Namespace, record: MakeRecord, way: str
) -> None:
    """There is nothing to protect, so no old pod waits for a new one that serves, and none drains."""
    conduct, reasons = NOTHING_RUNS[way]
    service = Service(namespace, replicas=2).apply(**conduct)
    broken = eventually("its pods stand", lambda: names_of(service) if len(service.pods()) == 2 else None)
    if way == "crash loop":
        eventually("it is Stalled", lambda: is_stalled(service))
    else:
        eventually("they can be asked", lambda: len(namespace.logs.find("listening")) == 2)
        # The operator knows of a container what the kubelet says, which is later than the container's own word.
        eventually("the kubelet says that they run", lambda: all(map(runs, service.pods())))
    watched = record(service.labels)
    service.apply(env=SLOW, tag="v2", more={})
    service.wait_settled()
    watched.catch_up()

    assert watched.drained_pods() == [], "nothing runs in these pods, yet they were drained"
    rows = {row["pod"]: (row["outcome"], row["cut"]) for row in service.status["outcomes"]}
    assert rows == dict.fromkeys(broken, (Outcome.NO_WORK, 0))
    assert_at_once(watched, broken)
    said = {event["message"].split()[1].rstrip(":"): event["message"] for event in namespace.events("Drained")}
    assert said.keys() == set(broken)
    assert all("because it" in text and any(why in text for why in reasons) for text in said.values()), said


def names_of(service: Service) -> list[str]:
    return [pod["metadata"]["name"] for pod in service.pods()]


def runs(pod: Object) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return bool(statuses) and all("running" in status["state"] for status in statuses)


def is_stalled(service: Service) -> bool:
    stalled = service.condition(ConditionType.STALLED)
    return stalled is not None and stalled["reason"] == Reason.NEW_REVISION_FAILED


def assert_at_once(record: Record, broken: list[str]) -> None:
    """All of them are let go before any pod of the fix is Ready."""
    first_ready = min(e.version for e in record.events("Pod") if e.name not in broken and is_ready(e.object))
    let_go = {e.name: e.version for e in reversed(record.events("Pod")) if state(e.object) == PodState.DRAINED}
    assert let_go.keys() == set(broken)
    late = {name for name, version in let_go.items() if version > first_ready}
    assert late == set(), "they waited for a pod of the fix to be Ready"


def misbehave(service: Service, pod: Object, ways: str) -> None:
    """Turn a running pod's conduct."""
    path = f"{PODS.format(service.namespace.name)}/{pod['metadata']['name']}:9901/proxy/misbehave"
    service.namespace.kube.post_text(path, ways)


def end_streams_of_draining(namespace: Namespace) -> set[str]:
    """Let the streams end in the pods that have been told to drain, one after the other; returns these pods."""
    told = {line["pod"] for line in namespace.logs.find("drain")}
    namespace.hurry(told)
    return told


def test_old_pods_that_are_not_ready_but_generate_are_asked_and_waited_for(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """Readiness is not idleness: all old pods fail their probe with streams in them, and the fix is pushed."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    old = names_of(service)
    load = lasting(namespace, service.name, 16, service.pods()).start().wait_running()
    watched = record(service.labels)
    for pod in service.pods():
        misbehave(service, pod, "never-ready")
    eventually("no pod is Ready", lambda: not any(map(is_ready, service.pods())))
    service.apply(tag="v2")
    # Each has its streams until it has been told to drain.
    eventually("all old pods drain", lambda: end_streams_of_draining(namespace) == set(old))
    result = load.wait_done()
    service.wait_settled()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["byVersion"] == {"v1": 16}
    assert set(watched.drained_pods()) == set(old)
    rows = {row["pod"]: (row["outcome"], row["cut"]) for row in service.status["outcomes"]}
    assert rows == dict.fromkeys(old, (Outcome.DRAINED, 0))
    assert all(namespace.logs.drain_evidence(pod).held for pod in old)
    assert namespace.logs.interrupted() == []
    assert {state(event.object) for event in watched.removals()} == {PodState.DRAINED}
    most, moment = watched.most(is_standing)
    assert most <= 3, moment


def restart(pod: Object, service: Service) -> None:
    inside.kill(pod)


@pytest.mark.parametrize("happens", [restart, vanish])
def test_a_pod_that_is_lost_in_the_middle_of_its_drain_is_said_to_be_lost(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit, happens: object
) -> None:
    """Its streams are cut, which nobody can prevent, and nobody else's; the rollout goes on and tells no lie of it."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    pods = {pod["metadata"]["name"]: pod for pod in service.pods()}
    loads = {name: lasting(namespace, service.name, 5, [pod]).start() for name, pod in pods.items()}
    for load in loads.values():
        load.wait_running()
    watched = record(service.labels)
    service.apply(tag="v2")
    (lost,) = eventually("a pod drains", lambda: namespace.logs.find("drain"))[:1]
    name = lost["pod"]
    happens(pods[name], service)  # type: ignore[operator]
    lost_streams = loads[name].wait_done().summary
    (kept,) = set(pods) - {name}
    eventually("the other one drains", lambda: namespace.logs.find("drain", pod=kept))
    loads[kept].finish().assert_whole()
    service.wait_settled()
    watched.catch_up()

    assert lost_streams["cut"] == 5, lost_streams
    rows = {row["pod"]: row for row in service.status["outcomes"]}
    # Of a pod that vanishes the ReplicaSet knows no more than its count: it made another of the old revision.
    replaced = rows.keys() - set(pods)
    assert len(replaced) == (happens is vanish)
    assert {rows[pod]["outcome"] for pod in replaced} <= {Outcome.NO_WORK, Outcome.DRAINED}
    assert {rows[pod]["cut"] for pod in replaced} <= {0}
    assert rows[name]["outcome"] == Outcome.VANISHED
    assert "cut" not in rows[name], "nobody could count, so no number may stand there"
    assert (rows[kept]["outcome"], rows[kept]["cut"]) == (Outcome.DRAINED, 0)
    (event,) = namespace.events("Vanished")
    assert event["type"] == "Warning"
    assert name in event["message"]
    fewest, moment = watched.fewest(is_serving)
    assert fewest >= 1, moment
    assert {p["metadata"]["name"] for p in service.pods() if is_serving(p)}.isdisjoint(pods)
    assert audit.spec_writes(namespace.name) == []
    if happens is restart:
        # The kubelet starts it again in its own time, which no outcome waits for.
        eventually("its container comes back", lambda: len(namespace.logs.find("start", pod=name)) >= 2)
