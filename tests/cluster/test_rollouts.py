"""Rollouts of a streaming service on a real cluster: no stream is cut, and the counts hold at every single event."""

import pytest

from cluster.harness.audit import OPERATOR, Audit
from cluster.harness.evidence import assert_run_counts
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_draining, may_hold_a_device, state
from cluster.harness.service import Namespace, PlainDeployment, Service
from tidegate.api.conditions import PodState

REPLICASET_CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
SHORT = "2-8"
LENGTHS = [SHORT, pytest.param("5-60", marks=pytest.mark.long)]


def assert_only_drained_pods_went(namespace: Namespace, record: Record, audit: Audit) -> None:
    """Each pod was drained when it began to go, was deleted by who may, and no process was stopped with work in it."""
    removals = record.removals()
    assert removals
    early = [str(event) for event in removals if state(event.object) != PodState.DRAINED]
    assert not early, early
    gone = {event.name for event in removals}
    deletes = [call for call in audit.pod_deletes(namespace.name) if call.name in gone and call.code < 300]
    assert {call.name for call in deletes} == gone
    assert {call.user for call in deletes} <= {REPLICASET_CONTROLLER, OPERATOR}, deletes
    assert namespace.logs.interrupted() == []
    assert namespace.events("FailedPreStopHook") == []


@pytest.mark.begins_first
@pytest.mark.parametrize("seconds", LENGTHS)
def test_three_rollouts_in_a_row_lose_no_token(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit, seconds: str
) -> None:
    service = Service(namespace).apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=60, seconds=seconds).start().wait_running()
    for tag in ("v2", "v3", "v4"):
        service.wait_busy()
        service.apply(tag=tag)
        service.wait_settled()
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["byVersion"].keys() == {"v1", "v2", "v3", "v4"}
    drained = watched.drained_pods()
    assert len(drained) == 9
    assert_run_counts(namespace.logs, drained)
    watched.assert_bounds(serving=3, standing=4)
    assert_only_drained_pods_went(namespace, watched, audit)
    assert audit.spec_writes(namespace.name) == []


def test_the_same_load_over_a_plain_deployment_is_cut(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """That the test above can see what it denies: with the same eyes, on the same image, without Tidegate."""
    plain = PlainDeployment(namespace).apply()
    plain.wait_settled()
    watched = record(plain.labels)
    load = Load(namespace, plain.name, streams=60, seconds=SHORT).start().wait_running()
    plain.apply(tag="v2")
    plain.wait_settled()
    result = load.stop()
    watched.catch_up()

    assert len(watched.removals()) == 3
    assert result.summary["cut"] > 0
    with pytest.raises(AssertionError):
        result.assert_whole()
    interrupted = namespace.logs.interrupted()
    assert {line["event"] for line in interrupted} == {"sigterm", "stream-end"}
    assert len([line for line in interrupted if line["event"] == "stream-end"]) >= result.summary["cut"]


def test_without_surge_a_new_pod_starts_when_the_old_one_has_ended(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    service = Service(namespace, rollout={"maxSurge": 0, "maxUnavailable": 1}).apply()
    watched = roll(service, record)

    watched.assert_bounds(serving=2, standing=3)
    most, moment = watched.most(may_hold_a_device)
    assert most == 3, str(moment)
    ends = [event.version for event in watched.ends()]
    starts = [event.version for event in watched.creations()]
    assert len(starts) == 3
    assert all(end < start for end, start in zip(ends, starts, strict=True)), (ends, starts)
    assert_only_drained_pods_went(namespace, watched, audit)


@pytest.mark.parametrize("surge", [2, "34%"])
def test_two_slots_work_at_once(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit, surge: int | str
) -> None:
    """34 % of 3 pods is 1.02, and a surge rounds up, as with a Deployment."""
    watched = roll(Service(namespace, rollout={"maxSurge": surge}).apply(), record)

    watched.assert_bounds(serving=3, standing=5)
    at_once, moment = watched.most(is_draining)
    assert at_once == 2, str(moment)
    assert_only_drained_pods_went(namespace, watched, audit)


def test_a_service_of_one_replica_always_serves(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    watched = roll(Service(namespace, replicas=1).apply(), record, streams=20)

    watched.assert_bounds(serving=1, standing=2)
    assert_only_drained_pods_went(namespace, watched, audit)


def roll(service: Service, record: MakeRecord, streams: int = 60) -> Record:
    """One rollout under load in which every old pod had streams to lose and none was lost."""
    service.wait_settled()
    watched = record(service.labels)
    load = Load(service.namespace, service.name, streams=streams, seconds=SHORT).start().wait_running()
    service.wait_busy()
    service.apply(tag="v2")
    service.wait_settled()
    result = load.stop()
    watched.catch_up()
    result.assert_whole()
    drained = watched.drained_pods()
    assert len(drained) == service.replicas
    assert_run_counts(service.namespace.logs, drained)
    return watched
