"""A drain whose budget is spent, on a real cluster: what is cut is told to the client, counted and listed."""

from cluster.harness.evidence import Line
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, state
from cluster.harness.service import Namespace, Service
from tidegate.api.conditions import Outcome, PodState

BUDGET_SECONDS, SHORT = 10, "1-2"
"""Streams within the budget are so much shorter that a node whose routes follow late, or a slow pod, cuts none."""
ROUNDING_SECONDS = 1.0
"""The status shows whole seconds."""


def test_only_streams_longer_than_the_budget_are_cut(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    service = Service(namespace, replicas=2, drain={"budgetSeconds": BUDGET_SECONDS}).apply()
    service.wait_settled()
    watched = record(service.labels)
    endless = Load(namespace, service.name, streams=3, seconds="600", options=("--total", "3")).start().wait_running()
    short = Load(namespace, service.name, streams=16, seconds=SHORT).start().wait_running()
    service.apply(tag="v2")
    service.wait_settled()
    seen_by_client = endless.wait_done()
    result = short.stop()
    watched.catch_up()

    result.assert_whole()
    assert seen_by_client.summary["cutBy"] == {"token": 3}, seen_by_client.summary
    tokens = namespace.logs.find("token")
    assert {line["id"] for line in tokens} == {stream["id"] for stream in seen_by_client.streams}
    assert [line["by"] for line in namespace.logs.find("stream-end") if not line["whole"]] == ["token"] * 3
    assert namespace.logs.find("sigterm", streams=[])
    assert not [line for line in namespace.logs.find("sigterm") if line["streams"]]

    drained = watched.drained_pods()
    assert len(drained) == 2
    assert {state(event.object) for event in watched.removals()} == {PodState.DRAINED}
    status = service.status
    assert [row["pod"] for row in status["outcomes"]] == drained
    for row in status["outcomes"]:
        assert_outcome(row, [line for line in tokens if line["pod"] == row["pod"]])
    assert (status["rollout"]["drained"], status["rollout"]["cut"]) == (2, 3)
    assert_announced(namespace, status["outcomes"])


def assert_outcome(row: Line, tokens: list[Line]) -> None:
    """As many as got a token are listed as cut, with the oldest one's age between its token and the pod's outcome."""
    assert row["cut"] == len(tokens), row
    if not tokens:
        assert row["outcome"] == Outcome.DRAINED
        assert "oldestCutSeconds" not in row
        return
    assert row["outcome"] == Outcome.EXPIRED
    age = max(line["seconds"] for line in tokens)
    waited = row["seconds"]
    assert age - ROUNDING_SECONDS <= row["oldestCutSeconds"] <= age + waited, (row, tokens)


def assert_announced(namespace: Namespace, outcomes: list[Line]) -> None:
    """One Event for each pod, a warning where something was cut."""
    events = {event["message"].split()[1].rstrip(":"): event for event in namespace.events("Drained")}
    assert events.keys() == {row["pod"] for row in outcomes}
    for row in outcomes:
        event = events[row["pod"]]
        assert f"{row['cut']} {'request' if row['cut'] == 1 else 'requests'} cut" in event["message"]
        assert event["type"] == ("Warning" if row["cut"] else "Normal"), event
