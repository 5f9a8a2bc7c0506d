"""What Tidegate cannot withdraw a pod from, on a real cluster: said in status while nothing is hurt yet, with a remedy
that works."""

from cluster.harness.audit import Audit
from cluster.harness.evidence import Line
from cluster.harness.kube import eventually
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import ConditionType, PodState, Reason


def own_service(name: str, selector: dict[str, str]) -> Line:
    """A Service as a user has it, who selects by the application's label."""
    spec = {"selector": selector, "ports": [{"port": 80, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def test_a_service_of_the_users_own_is_named_before_any_pod_drains(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """It keeps a draining pod until that fails its readiness. The selector that the condition names ends that."""
    service = Service(namespace, replicas=1).apply()
    service.wait_settled()
    watched = record(service.labels)
    assert service.condition(ConditionType.SERVICE_NOT_WITHDRAWN) is None
    namespace.kube.apply(namespace.name, own_service("front", {"app": "chat"}), own_service("other", {"app": "else"}))
    found = eventually("it is named", lambda: service.condition(ConditionType.SERVICE_NOT_WITHDRAWN))
    assert (found["status"], found["reason"]) == ("True", Reason.SELECTOR_WITHOUT_STATE)
    assert found["message"].startswith("Service front selects these pods")
    assert f"Add {names.STATE}: {PodState.SERVING} to the selector" in found["message"]
    assert service.status["message"] == found["message"]
    (event, *_) = eventually("an Event says so", lambda: namespace.events(Reason.SELECTOR_WITHOUT_STATE))
    assert event["type"] == "Warning"
    watched.catch_up()
    assert watched.drained_pods() == []
    assert watched.creations() == []

    namespace.kube.apply(namespace.name, own_service("front", {"app": "chat", names.STATE: PodState.SERVING.value}))
    eventually("it is not named any more", lambda: service.condition(ConditionType.SERVICE_NOT_WITHDRAWN) is None)
    load = Load(namespace, "front", streams=12, seconds="1-3", options=("--probe-rate", "10")).start().wait_running()
    service.apply(tag="v2")
    service.wait_settled()
    result = load.stop()
    watched.catch_up()
    assert len(watched.drained_pods()) == 1
    result.assert_whole()
    assert result.summary["probes"]["cut"] == 0, result.summary


OWN_PROBE = {"tcpSocket": {"port": "http"}, "periodSeconds": 1}


def with_own_probe(service: Service) -> Line:
    template: Line = service.manifest()["spec"]["template"]
    template["spec"]["containers"][0]["readinessProbe"] = OWN_PROBE
    return template


def test_a_readiness_probe_that_knows_nothing_of_drains_is_named_with_the_push_that_brings_it(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    """Whoever routes by readiness goes on sending to a draining pod. It is in status from the first write on, when no
    pod of that revision can drain yet, and gone with the push that removes the probe."""
    service = Service(namespace, replicas=1)
    service.apply(more={"template": with_own_probe(service)})
    found = eventually("it is named", lambda: service.condition(ConditionType.READINESS_NOT_DRAIN_AWARE))
    assert (found["status"], found["reason"]) == ("True", Reason.OWN_READINESS_PROBE)
    assert found["message"].startswith("Container server has its own readiness probe")
    assert f"Probe {names.READY_PATH} on the contract's port, or remove the probe" in found["message"]
    service.wait_settled()
    assert service.status["message"] == found["message"]
    first = audit.statuses(namespace.name, service.name)[0]
    assert ConditionType.READINESS_NOT_DRAIN_AWARE in {condition["type"] for condition in first["conditions"]}
    (event, *_) = eventually("an Event says so", lambda: namespace.events(Reason.OWN_READINESS_PROBE))
    assert event["type"] == "Warning"

    watched = record(service.labels)
    service.apply(more={})
    service.wait_settled()
    watched.catch_up()
    assert len(watched.drained_pods()) == 1
    assert service.condition(ConditionType.READINESS_NOT_DRAIN_AWARE) is None
