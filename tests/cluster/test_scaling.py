"""Scaling a streaming service on a real cluster: a pod that is no longer wanted ends its streams before it goes."""

import json

from cluster.harness.audit import Audit
from cluster.harness.evidence import assert_run_counts
from cluster.harness.kube import eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_serving, is_standing, state
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import DrainReason, PodState


def assert_scaled_in(namespace: Namespace, record: Record, pods: int) -> None:
    """So many pods were drained for scale-in, each with streams to lose, and only drained ones went."""
    drained = record.drained_pods()
    assert len(drained) == pods
    assert_run_counts(namespace.logs, drained)
    removals = record.removals()
    assert {event.name for event in removals} == set(drained)
    assert {state(event.object) for event in removals} == {PodState.DRAINED}
    reasons = {json.loads(event.object["metadata"]["annotations"][names.DRAIN])["reason"] for event in removals}
    assert reasons == {DrainReason.SCALE_IN}
    assert namespace.logs.interrupted() == []
    assert namespace.events("FailedPreStopHook") == []


def test_scaling_in_and_out_cuts_nothing(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    service = Service(namespace).apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=45).start().wait_running()
    service.wait_busy()
    service.scale(2)
    service.wait_settled()
    service.scale(3)
    service.wait_settled()
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    assert_scaled_in(namespace, watched, pods=1)
    assert len(watched.creations()) == 1
    fewest, moment = watched.fewest(is_serving)
    assert fewest == 2, str(moment)
    most, moment = watched.most(is_standing)
    assert most == 3, str(moment)
    assert len(service.deployments()) == 1
    assert audit.spec_writes(namespace.name) == []


def test_scaling_to_zero_and_back_lets_every_stream_end(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """The streams are all begun before: to a service without pods there is nothing to connect to."""
    service = Service(namespace).apply()
    service.wait_settled()
    watched = record(service.labels)
    once = lasting(namespace, service.name, 45).start().wait_running()
    service.wait_busy()
    pods = [pod["metadata"]["name"] for pod in service.pods()]
    service.scale(0)
    eventually("all have been withdrawn for a while", lambda: all(map(namespace.logs.has_held, pods)))
    result = once.finish()
    service.wait_settled()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["started"] == 45
    assert_scaled_in(namespace, watched, pods=3)
    assert service.status["serving"] == 0

    service.scale(3)
    service.wait_settled()
    again = Load(namespace, service.name, streams=12, seconds="1-2", options=("--total", "24")).start().wait_done()
    again.assert_whole()
    assert len(again.summary["byPod"]) == 3
    assert len(service.deployments()) == 1
