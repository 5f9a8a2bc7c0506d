"""Revisions that cannot come up, on a real cluster: no old pod pays for them, and the next push recovers."""

from typing import Any

import pytest

from cluster.harness.audit import Audit
from cluster.harness.evidence import Line, assert_run_counts
from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_draining, is_standing, state
from cluster.harness.service import Namespace, Service
from tidegate.api.conditions import ConditionType, Outcome, PodState, Reason

BROKEN: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unpullable image": (
        {"image": "registry.invalid/nobody:1"},
        ("ErrImagePull", "ImagePullBackOff"),
    ),
    "crash loop": ({"env": {"MISBEHAVE": "crash-at-start"}}, ("CrashLoopBackOff", "Crashed")),
}


@pytest.mark.parametrize("way", BROKEN)
def test_no_old_pod_is_drained_for_it_and_the_next_push_recovers(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit, way: str
) -> None:
    broken, reasons = BROKEN[way]
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    old = {pod["metadata"]["name"] for pod in service.pods()}
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=30).start().wait_running()
    service.apply(**broken)
    stalled = eventually("it is Stalled", lambda: service.stalled_by(Reason.NEW_REVISION_FAILED))
    assert any(reason in stalled["message"] for reason in reasons), stalled
    if way == "crash loop":
        assert "exited with code 1" in stalled["message"]
    assert "push a working revision" in stalled["message"]
    # Of one read: the words follow the kubelet's, which go on from ErrImagePull to ImagePullBackOff.
    status = service.status
    told = [row["message"] for row in status["conditions"] if row["type"] == ConditionType.STALLED]
    assert told == [status["message"]]
    watched.catch_up()
    assert watched.drained_pods() == []
    (attempt,) = {event.name for event in watched.creations()}

    eventually("every old pod has streams to lose", lambda: all(namespace.logs.running(pod) >= 5 for pod in old))
    service.apply(image=None, env={}, tag="v2")
    service.wait_settled()
    result = load.stop()
    watched.catch_up()
    result.assert_whole()
    assert set(watched.drained_pods()) == old
    assert_run_counts(namespace.logs, old)
    assert_bounds(watched, attempt)
    assert {state(event.object) for event in watched.removals()} == {PodState.DRAINED}
    assert [row["outcome"] for row in service.status["outcomes"] if row["pod"] == attempt] == [Outcome.NO_WORK]
    assert_always_ready(namespace, audit)


def assert_bounds(record: Record, attempt: str) -> None:
    """Two pods serve at every event, three stand; while the broken pod stands nobody drains.

    Once deleted it does not stand any more, however long its node takes to end it.
    """
    record.assert_bounds(serving=2, standing=3)
    beside = [
        m for m in record.moments() if attempt in m.pods and is_standing(m.pods[attempt]) and m.count(is_draining)
    ]
    assert beside == [], beside[0]


def truth(status: Line) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in status["conditions"]}


def written(audit: Audit, service: Service) -> list[Line]:
    """Every status so far, the present one included: the log has a write a moment after everybody can read it."""

    def all_of_them() -> list[Line] | None:
        found = audit.statuses(service.namespace.name, service.name)
        return found if found[-1:] == [service.status] else None

    return eventually("the audit log has the present status", all_of_them)


def assert_always_ready(namespace: Namespace, audit: Audit) -> None:
    """Once Ready, Ready in every status written since."""
    ready = [truth(status)[ConditionType.READY] for status in audit.statuses(namespace.name, "chat")]
    assert "False" not in ready[ready.index("True") :], ready


CONFLICTS: dict[str, tuple[str, Object, str]] = {
    "preStop": ("containers", {"lifecycle": {"preStop": {"exec": {"command": ["sleep", "9"]}}}}, "SIGTERM handler"),
    "grace": ("spec", {"terminationGracePeriodSeconds": 30}, "spec.drain.grace.initialSeconds"),
}


@pytest.mark.parametrize("conflict", CONFLICTS)
def test_what_tidegate_decides_itself_is_a_template_conflict_until_removed(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit, conflict: str
) -> None:
    """At first, when there is no revision yet, and later, when one serves: it goes on, and no pod rolls."""
    service = Service(namespace, replicas=1)
    good = service.manifest()["spec"]["template"]
    bad = conflicting(good, conflict)
    service.apply(more={"template": bad})
    assert_conflict(service, conflict)
    assert service.deployments() == []
    first = written(audit, service)[0]
    assert first["observedGeneration"] == 1
    assert truth(first) == {"Ready": "False", "Reconciling": "False", "Stalled": "True"}

    service.apply(more={})
    service.wait_settled()
    watched, asked = record(service.labels), service.generations()
    service.apply(more={"template": bad})
    assert_conflict(service, conflict)
    assert truth(service.status)[ConditionType.READY] == "True"
    service.apply(more={})
    service.wait_settled()
    watched.catch_up()
    # A late status of the Deployment controller's own may still come: what was asked for is what counts.
    assert watched.events("Pod") == []
    assert service.generations() == asked
    assert truth(service.status) == {"Ready": "True", "Reconciling": "False", "Stalled": "False"}
    assert_always_ready(namespace, audit)


def conflicting(template: Object, conflict: str) -> Object:
    where, field, _ = CONFLICTS[conflict]
    spec = template["spec"]
    if where == "spec":
        return template | {"spec": spec | field}
    return template | {"spec": spec | {"containers": [spec["containers"][0] | field]}}


def assert_conflict(service: Service, conflict: str) -> None:
    """It names the field as the user wrote it, and what to do instead."""
    _, field, remedy = CONFLICTS[conflict]
    found = eventually("TemplateConflict", lambda: service.stalled_by(Reason.TEMPLATE_CONFLICT))
    assert next(iter(field)) in found["message"]
    assert "remove it" in found["message"]
    assert remedy in found["message"]
    assert service.status["phase"] == "Stalled"


def test_the_first_status_is_complete(operator: Operator, namespace: Namespace, audit: Audit) -> None:
    """A GitOps tool reads health from the moment of creation: a status without these would look healthy or unknown."""
    service = Service(namespace, replicas=1).apply()
    service.wait_settled()
    statuses = written(audit, service)
    assert statuses[0]["observedGeneration"] == 1
    assert truth(statuses[0]) == {"Ready": "False", "Reconciling": "True", "Stalled": "False"}
    assert truth(statuses[-1]) == {"Ready": "True", "Reconciling": "False", "Stalled": "False"}
    kinds = {tuple(sorted(truth(status))) for status in statuses}
    assert kinds == {("Ready", "Reconciling", "Stalled")}
    assert audit.spec_writes(namespace.name) == []
