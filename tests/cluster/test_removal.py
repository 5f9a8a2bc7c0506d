"""Removing things in every order on a real cluster: all of it goes, streams end by themselves, nothing stays stuck."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster.harness.kube import (
    BUDGETS,
    DEPLOYMENTS,
    LLMSERVICES,
    PODS,
    REPLICASETS,
    SECRETS,
    SERVICES,
    SLICES,
    Kube,
    Object,
    eventually,
)
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord
from cluster.harness.service import Namespace, Service
from tidegate.api.conditions import Outcome

CHILDREN = (DEPLOYMENTS, SERVICES, SECRETS, BUDGETS)
ALL = (*CHILDREN, PODS, REPLICASETS, SLICES)
ALONE = pytest.param(True, marks=pytest.mark.alone)


@contextmanager
def without(operator: Operator, gone: bool) -> Iterator[None]:
    """The operator scaled to 0, if so, for as long as the block lasts."""
    if gone:
        operator.stop()
    try:
        yield
    finally:
        if gone:
            operator.start()


def loaded(service: Service) -> Load:
    """45 streams over all pods, all begun before anything is removed: later there is nothing to connect to."""
    load = lasting(service.namespace, service.name, 45).start().wait_running()
    service.wait_busy()
    return load


def wait_stopped(namespace: Namespace, pods: int) -> None:
    """Wait until the deletion of so many pods has come to their own processes, by preStop."""
    logs = namespace.logs
    eventually("preStop has called the pods", lambda: len({line["pod"] for line in logs.find("prestop")}) == pods)


def left_over(kube: Kube, namespace: str, labels: str) -> list[str]:
    found = [item for path in ALL for item in kube.items(path.format(namespace), labelSelector=labels)]
    return [item["metadata"]["name"] for item in found]


def assert_ended_by_themselves(namespace: Namespace, pods: int) -> None:
    """By the servers' count: preStop found streams in each pod, SIGTERM found none, and each ended whole."""
    logs = namespace.logs
    prestops = [line for line in logs.find("prestop") if len(line["streams"]) >= 3]
    assert len({line["pod"] for line in prestops}) == pods, prestops
    assert not [line for line in logs.find("sigterm") if line["streams"]]
    assert len(logs.find("sigterm")) == pods
    assert all(line["whole"] for line in logs.find("stream-end"))


@pytest.mark.parametrize("gone", [False, ALONE], ids=["operator runs", "operator gone"])
def test_a_deleted_llmservice_takes_everything_with_it(
    operator: Operator, namespace: Namespace, record: MakeRecord, gone: bool
) -> None:
    service = Service(namespace).apply()
    service.wait_settled()
    watched = record(service.labels)
    assert len(left_over(namespace.kube, namespace.name, service.labels)) >= 3 + 2 + 3
    with without(operator, gone):
        load = loaded(service)
        service.kubectl("delete", "llmservice", service.name)
        wait_stopped(namespace, pods=3)
        load.finish().assert_whole()
        eventually("its children go", lambda: not left_over(namespace.kube, namespace.name, service.labels))
        assert namespace.kube.items(LLMSERVICES.format(namespace.name)) == []
    watched.catch_up()
    assert_ended_by_themselves(namespace, pods=3)
    assert watched.creations() == []
    assert namespace.events("FailedPreStopHook") == []


@pytest.mark.parametrize("gone", [False, ALONE], ids=["operator runs", "operator uninstalled"])
def test_a_deleted_namespace_goes_to_the_end(
    operator: Operator, namespace: Namespace, record: MakeRecord, gone: bool
) -> None:
    """Also when the operator was removed first: meanwhile its pods are untouched, and no finalizer waits for it."""
    kube = namespace.kube
    # A namespace looks again only after half the longest grace period in it: for service and client a shorter one.
    grace = {"initialSeconds": 35, "teardownSeconds": 2, "safetySeconds": 2}
    service = Service(namespace, drain={"grace": grace}).apply()
    service.wait_settled()
    watched, asked = record(service.labels), service.generations()
    load = loaded(service)
    try:
        if gone:
            operator.uninstall()
            assert kube.get("api/v1/namespaces/tidegate-system") is None
            watched.catch_up()
            assert watched.events("Pod") == []
            assert service.generations() == asked
            load.finish()
            load = loaded(service)
        assert not [path for path in ALL for item in kube.items(path.format(namespace.name)) if finalizers(item)]
        kube.must("-n", namespace.name, "delete", "pod", load.name, "--grace-period=40", "--wait=false")
        kube.must("delete", "namespace", namespace.name, "--wait=false")
        wait_stopped(namespace, pods=3)
        load.finish().assert_whole()
        eventually("the namespace is gone", lambda: kube.get(f"api/v1/namespaces/{namespace.name}") is None)
    finally:
        if gone:
            operator.install()
    assert_ended_by_themselves(namespace, pods=3)


def finalizers(item: Object) -> list[str]:
    return list(item["metadata"].get("finalizers") or [])


def test_a_service_made_again_right_after_its_deletion_ends_ready(operator: Operator, namespace: Namespace) -> None:
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    old = {pod["metadata"]["uid"] for pod in service.pods()}
    load = loaded(service)
    service.kubectl("delete", "llmservice", service.name)
    service.apply()
    assert old & {pod["metadata"]["uid"] for pod in service.pods()}, "the old pods were gone: the run shows nothing"
    wait_stopped(namespace, pods=2)
    load.finish().assert_whole()
    service.wait_settled()

    # Their SIGTERM follows the end of the last stream, which is all that the client sees.
    eventually("the old pods are gone", lambda: len(service.pods()) == 2)
    assert_ended_by_themselves(namespace, pods=2)
    assert not old & {pod["metadata"]["uid"] for pod in service.pods()}
    assert_owned(service)
    # The drain key is its own too: a key that goes with the old service would leave every pod deaf.
    service.apply(tag="v2")
    service.wait_settled()
    assert [row["outcome"] for row in service.status["outcomes"]] == [Outcome.DRAINED] * 2


def test_orphaned_children_are_adopted_and_no_pod_rolls(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=20).start().wait_running()
    first = service.get()["metadata"]["uid"]
    service.kubectl("delete", "llmservice", service.name, "--cascade=orphan")
    assert namespace.kube.items(LLMSERVICES.format(namespace.name)) == []
    service.apply()
    service.wait_settled()
    assert service.get()["metadata"]["uid"] != first
    eventually("the children are adopted", lambda: owners(service) == {service.get()["metadata"]["uid"]})
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    assert watched.creations() == watched.removals() == []
    assert watched.drained_pods() == []
    assert_owned(service)
    # Adopted, they are rolled as before.
    service.apply(tag="v2")
    service.wait_settled()
    assert {pod["spec"]["containers"][0]["image"] for pod in service.pods()} >= {"tidegate-testapp:v2"}
    watched.catch_up()
    assert len(watched.drained_pods()) == 2


def owners(service: Service) -> set[str]:
    """Controllers of all children; an empty one where a child has none."""
    kube, namespace = service.namespace.kube, service.namespace.name
    children = [item for path in CHILDREN for item in kube.items(path.format(namespace), labelSelector=service.labels)]
    return {controller(item) for item in children}


def controller(item: Object) -> str:
    """Uid of the controller, empty if there is none."""
    references = item["metadata"].get("ownerReferences") or []
    return next((str(reference["uid"]) for reference in references if reference.get("controller")), "")


def assert_owned(service: Service) -> None:
    assert owners(service) == {service.get()["metadata"]["uid"]}
