"""Hundreds of streams behind the gateway through a rollout, beside clients that are unlike the ordinary one.

The clients count: nothing is cut, and no new connection is refused. A connection that is kept, or asked on ahead, stays
with its pod, so there a pod that drains may refuse, in the form that makes every client ask again elsewhere.
"""

import pytest

from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, is_serving
from cluster.harness.service import Namespace
from cluster.harness.unruly import UnrulyClients, assert_served, of_kind
from cluster.test_gateway_pods import EngineService, held_at_withdrawal, reaches
from tidegate.api.conditions import Outcome

STREAMS, REPLICAS = 200, 4
# Slow streams of a patient client: how many there are counts here, not how busy each of them keeps the machine.
RATE, PATIENT = 2.0, ("--idle-timeout", "120")
LATE = {"propagationSeconds": 3}
PATIENCE_SECONDS = 900.0

# Hundreds of streams and 50 MB uploads take the whole machine.
pytestmark = pytest.mark.long


class UnwatchedService(EngineService):
    """Without the liveness probe of its class, which is quick to kill and would judge the machine here."""

    def manifest(self) -> Object:
        manifest = EngineService.manifest(self)
        del manifest["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
        resources = {"requests": {"cpu": "50m", "memory": "64Mi"}}
        manifest["spec"]["gateway"] = {"resources": resources, "timeouts": {"connectSeconds": 30}}
        return manifest

    def wait_settled(self) -> None:
        """As often, with more patience: drains wait here for clients that take their time, on a full machine."""
        eventually(f"{self.name} is Ready and its rollout finished", self.is_settled, PATIENCE_SECONDS)

    def wait_reached(self) -> None:
        """Ready is the pods' word, and the nodes' tables follow it: a new Service refuses until then."""
        self.wait_settled()
        url = f"http://{self.namespace.cluster_ip(self.name)}/health"
        eventually("the Service leads to its pods", lambda: reaches(url))


def test_hundreds_of_streams_beside_unruly_clients_come_whole_through_a_rollout(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    service = UnwatchedService(
        namespace, replicas=REPLICAS, cpu="50m", rollout={"maxSurge": 2}, drain={"propagationSeconds": 3}
    )
    service.apply()
    service.wait_reached()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=STREAMS, seconds="3-10", rate=RATE, options=PATIENT).start()
    unruly = UnrulyClients(namespace, service.name).start().wait_running(5)
    # Between two streams of a client there is a moment without one: all at once is never seen.
    load.wait_running(STREAMS * 9 // 10)
    service.wait_busy(STREAMS // REPLICAS // 2)
    service.apply(tag="v2")
    service.wait_settled()
    result, odd = load.stop(), unruly.stop()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["started"] > STREAMS and result.summary["byVersion"].keys() == {"v1", "v2"}, result.summary
    assert_served(odd)
    assert {line["version"] for line in odd.streams if line["result"] == "complete"} == {"v1", "v2"}
    drained = watched.drained_pods()
    assert len(drained) == REPLICAS
    held = held_at_withdrawal(namespace, watched)
    # All old pods together had most of the streams to lose; one alone may have been the last, and idle.
    assert held.keys() == set(drained) and sum(held.values()) >= STREAMS // 2, held
    outcomes = {row["pod"]: (row["outcome"], row["cut"]) for row in service.status["outcomes"]}
    assert outcomes == dict.fromkeys(drained, (Outcome.DRAINED, 0))
    fewest, moment = watched.fewest(is_serving)
    assert fewest >= REPLICAS, str(moment)
    assert_left_alone_by_those_that_left(namespace, {line["id"] for line in of_kind(odd, "abort")})


def assert_left_alone_by_those_that_left(namespace: Namespace, left: set[str]) -> None:
    """By the engines' own account: those whose clients left ended early and nobody else; then they were stopped."""
    ends = namespace.logs.interrupted()
    assert [line for line in ends if line["event"] != "stream-end"] == []
    assert {line["by"] for line in ends} == {"client-gone"}
    assert {line["id"] for line in ends} <= left
    assert namespace.events("FailedPreStopHook") == []


def test_a_websocket_holds_its_pod_until_the_deadline_and_is_then_closed_with_a_frame(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    service = UnwatchedService(namespace, replicas=2, cpu="50m", drain=LATE | {"budgetSeconds": 60})
    service.apply()
    service.wait_reached()
    watched = record(service.labels)
    sockets = UnrulyClients(namespace, service.name, each=12, kinds=("socket",)).start().wait_running(12)
    load = Load(namespace, service.name, streams=60, seconds="1-4", rate=RATE, options=PATIENT)
    load.start().wait_running(50)
    service.apply(tag="v2")
    service.wait_settled()
    closed = sockets.wait_done()
    load.stop().assert_whole()
    watched.catch_up()

    assert [(line["result"], line["code"]) for line in closed.streams] == [("closed", 1001)] * 12, closed.streams
    assert all(line["tokens"] > 0 for line in closed.streams)
    drained = watched.drained_pods()
    held = {pod: sum(line["pod"] == pod for line in closed.streams) for pod in drained}
    outcomes = {row["pod"]: (row["outcome"], row["cut"]) for row in service.status["outcomes"]}
    assert outcomes == {pod: (Outcome.EXPIRED if held[pod] else Outcome.DRAINED, held[pod]) for pod in drained}
    assert sum(held.values()) == 12
    assert namespace.logs.interrupted() == []
