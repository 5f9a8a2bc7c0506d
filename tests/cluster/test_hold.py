"""`onExpiry: Hold` on a real cluster: the pod stays, the rollout stops, and every way out that is named leads out."""

import re
import shlex

import pytest

from cluster.harness.evidence import Line
from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load, LoadResult, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_draining, is_serving
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import ConditionType, Outcome, Phase, Reason

BUDGET_SECONDS = 4
HOLD = {"budgetSeconds": BUDGET_SECONDS, "onExpiry": "Hold"}
NOT_YET = {"minReadySeconds": 1000}
"""Lets the new pod start, and nothing follow from it, before the streams do."""
WAYS = ("raised", "let-go", "rolled-back", "broken-glass")


@pytest.mark.begins_first
def test_a_held_pod_stops_the_rollout_until_one_of_the_ways_out_is_taken(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """Four services, each with streams that outlive the budget by far, and another way out for each."""
    services = {way: Service(namespace, way, replicas=2, drain=HOLD).apply() for way in WAYS}
    for service in services.values():
        service.wait_settled()
        service.apply(tag="v2", rollout=NOT_YET)
    for service in services.values():
        eventually("the new pod is up", lambda service=service: service.status["updated"] == 1)
    watched = {way: record(service.labels) for way, service in services.items()}
    # To all pods in turn: by the Service's choice an old one might get no stream, and would go at once.
    loads = {way: lasting(namespace, way, 12, service.pods()).start() for way, service in services.items()}
    for load in loads.values():
        load.wait_running()
    for service in services.values():
        service.apply(rollout={})
    stalled = {way: held(service) for way, service in services.items()}
    pods = {way: assert_stands_still(services[way], watched[way]) for way in WAYS}
    for way in WAYS:
        assert_said(services[way], pods[way], stalled[way])

    raised, let_go, back, glass = services.values()
    raised.apply(drain=HOLD | {"budgetSeconds": 600})
    let_go.apply(drain=HOLD | {"onExpiry": "Release"})
    back.apply(tag="v1")
    reason = break_the_glass(glass, stalled["broken-glass"]["message"])

    assert_waits_on(raised, pods["raised"])
    # Each way is taken with the streams in the pod; only then do they end.
    for way, event in (("let-go", "token"), ("rolled-back", "undrain"), ("broken-glass", "prestop")):
        pod = pods[way]
        eventually(f"{event} of {pod}", lambda pod=pod, event=event: namespace.logs.find(event, pod=pod))
    # First those of the pod that was deleted: its grace period runs.
    results = {way: loads[way].finish() for way in reversed(WAYS)}
    assert_serves_again(back, watched["rolled-back"], pods["rolled-back"])
    for service in services.values():
        service.wait_settled()
    for way in ("raised", "rolled-back"):
        results[way].assert_whole()
        assert services[way].status["rollout"]["cut"] == 0
    # Nobody counts what a pod cuts that is let go by hand: unknown, though it was nothing.
    results["broken-glass"].assert_whole()
    rollout = glass.status["rollout"]
    assert "cut" not in rollout and rollout["uncounted"] == 1, rollout
    assert outcomes(raised)[pods["raised"]]["outcome"] == Outcome.DRAINED
    assert_told_and_counted(let_go, results["let-go"], pods["let-go"])
    assert_released(glass, pods["broken-glass"], reason)
    for found in watched.values():
        found.catch_up()
        found.assert_bounds(serving=2, standing=3)


def held(service: Service) -> Object:
    """Held, and known for what: on a busy machine the pod may be late to say what it holds."""

    def known() -> Object | None:
        found = service.stalled_by(Reason.BUDGET_HELD)
        return found if found and "in flight" in found["message"] else None

    return eventually(f"{service.name} is held", known)


def assert_stands_still(service: Service, watched: Record) -> str:
    """One old pod drains, nobody else was withdrawn, nobody went; returns the pod."""
    watched.catch_up()
    assert watched.removals() == []
    (pod,) = watched.drained_pods()
    assert [item["metadata"]["name"] for item in service.pods() if is_draining(item)] == [pod]
    return pod


def assert_said(service: Service, pod: str, stalled: Object) -> None:
    """What is, why, and what a person can do: in the status and in the words of `kubectl describe`."""
    text = stalled["message"]
    holds = (
        rf"Pod {pod} has exceeded its drain budget of {BUDGET_SECONDS} s and is held, which blocks the rollout: "
        r"\d+ requests? in flight \(oldest \d+ s\)"
    )
    assert re.search(holds, text), text
    for way_out in (
        "raise spec.drain.budgetSeconds",
        "push the old revision again",
        "set spec.drain.onExpiry: Release",
        f"kubectl annotate pod {pod} {names.RELEASE}='your reason'",
    ):
        assert way_out in text, text
    status = service.status
    assert status["phase"] == Phase.STALLED
    assert re.search(holds, status["message"])
    (row,) = status["pods"]
    assert row["name"] == pod and row["inFlight"] > 0 and "deadline" not in row
    described = service.kubectl("describe", "llmservice", service.name)
    assert re.search(rf"Message:\s+{holds}", described), described
    assert re.search(rf"Reason:\s+{Reason.BUDGET_HELD}\n\s+Status:\s+True\n\s+Type:\s+DrainOverdue", described), (
        described
    )
    events = service.namespace.events
    eventually("an Event says so", lambda: [e for e in events(Reason.BUDGET_HELD) if pod in e["message"]])


def break_the_glass(service: Service, text: str) -> str:
    """Type the command that the message gives, with a reason in place of its example."""
    command = text[text.index("kubectl annotate pod") :].rstrip(".").replace("your reason", "its node burns")
    verb, *arguments = shlex.split(command)
    assert verb == "kubectl"
    service.kubectl(*arguments)
    return "its node burns"


def assert_waits_on(service: Service, pod: str) -> None:
    """With a budget of more than was spent nothing stands still any more, and the pod drains on."""

    def goes_on() -> Object | None:
        # Of the spec that was raised: until the operator has seen it, the condition speaks of the one before.
        found = service.get()
        status: Object = found["status"]
        current = status["observedGeneration"] == found["metadata"]["generation"]
        return status if current and status["phase"] != Phase.STALLED else None

    status = eventually("a raised budget is no longer spent", goes_on)
    assert ConditionType.DRAIN_OVERDUE not in [condition["type"] for condition in status["conditions"]]
    assert status["phase"] == Phase.ROLLING
    assert [row["name"] for row in status["pods"]] == [pod]


def assert_serves_again(service: Service, watched: Record, pod: str) -> None:
    """The drain is undone: the pod keeps its streams and takes new ones, and the new revision's goes."""
    service.wait_settled()
    logs = service.namespace.logs
    assert "undrain" in [line["event"] for line in logs.of(pod)]
    again = Load(service.namespace, service.name, streams=12, seconds="1", options=("--total", "24")).start()
    result = again.wait_done()
    result.assert_whole()
    assert result.summary["byPod"].keys() == {i["metadata"]["name"] for i in service.pods() if is_serving(i)}
    assert pod in result.summary["byPod"]
    watched.catch_up()
    (new,) = {d["metadata"]["labels"][names.REVISION] for d in service.deployments() if not d["spec"]["replicas"]}
    revisions = {event.object["metadata"]["labels"][names.REVISION] for event in watched.removals()}
    assert revisions == {new}


def outcomes(service: Service) -> dict[str, Line]:
    return {row["pod"]: row for row in service.status["outcomes"]}


def assert_told_and_counted(service: Service, result: LoadResult, pod: str) -> None:
    """Every request of the held pod got its token; as many are counted as clients saw cut, and none beside."""
    rows = outcomes(service)
    assert rows[pod]["outcome"] == Outcome.EXPIRED
    assert result.summary["cutBy"].keys() == {"token"}, result.summary
    seen = {name: len([line for line in result.failures if line["pod"] == name]) for name in rows}
    assert seen[pod] > 0
    assert {name: row["cut"] for name, row in rows.items()} == seen
    assert service.status["rollout"]["cut"] == result.summary["cut"]


def assert_released(service: Service, pod: str, reason: str) -> None:
    """Listed and announced with the reason that was given; nobody counts what it took with it."""
    row = outcomes(service)[pod]
    assert row["outcome"] == Outcome.RELEASED and "cut" not in row, row
    events = [event["message"] for event in service.namespace.events(Outcome.RELEASED)]
    assert [text for text in events if pod in text and reason in text], events
