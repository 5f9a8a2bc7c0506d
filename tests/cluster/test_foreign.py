"""Applications with a drain endpoint of their own, on a real cluster: rollouts under load, the hook, LiteLLM's trap."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.harness.audit import Audit
from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, is_serving, is_standing, state
from cluster.harness.service import Namespace, Service
from cluster.test_evictions import evict_allowed
from tidegate.api.conditions import ConditionType, Outcome, PodState, Reason

TOKEN = "a-token-that-no-log-may-hold"
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "drain-token"}, "stringData": {"token": TOKEN}}
HEADER = {"name": "X-Drain-Token", "secretKeyRef": {"name": "drain-token", "key": "token"}}
BLOCKING_GET = {"method": "GET", "path": "/internal/drain", "answersWhenOver": True}
BLOCKING_POST = {"method": "POST", "path": "/internal/drain", "answersWhenOver": True, "header": HEADER}
COUNT = {"path": "/internal/stats", "pointer": "/requests/active", "offset": 1}
COUNTING = {"method": "POST", "path": "/internal/drain", "count": COUNT}
BACKLOG = {"path": "/health/backlog", "pointer": "/in_flight_requests", "offset": 1}
LITELLM = {"method": "GET", "path": "/health/drain", "answersWhenOver": True, "header": HEADER, "count": BACKLOG}
READINESS = {"readiness": {"path": "/health/readiness"}}


@dataclass(slots=True)
class ForeignService(Service):
    """`apps.foreign` of the test application's image, which speaks no contract."""

    kind: str = "blocking-get"
    foreign: Object = field(default_factory=lambda: dict(BLOCKING_GET))
    probes: Object = field(default_factory=dict)

    def manifest(self) -> Object:
        body = Service.manifest(self)
        spec = body["spec"]
        container = spec["template"]["spec"]["containers"][0]
        container["command"] = ["python", "-m", "apps.foreign"]
        container["ports"] = [{"name": "http", "containerPort": 8000}]
        container["env"].append({"name": "KIND", "value": self.kind})
        if "header" in self.foreign:
            container["env"].append({"name": "DRAIN_ENDPOINT_TOKEN", "value": TOKEN})
        # From the call on these refuse what comes: a busy node's routes have to have followed by then.
        spec["drain"]["propagationSeconds"] = 2
        spec["drain"]["native"] = {"port": "http", "foreign": self.foreign}
        if self.foreign != BLOCKING_GET:
            # The hook sleeps as long as propagation and this together, whenever a pod goes.
            spec["drain"]["grace"] = {"initialSeconds": 3, "teardownSeconds": 2, "safetySeconds": 2}
        spec["probes"] = self.probes
        return body


def made(namespace: Namespace, kind: str, foreign: Object, **changes: Any) -> ForeignService:
    namespace.kube.apply(namespace.name, SECRET)
    return ForeignService(namespace, kind=kind, foreign=foreign, **changes)


@pytest.mark.parametrize(
    ("kind", "foreign", "env"),
    [
        ("blocking-get", BLOCKING_GET, {}),
        ("blocking-post", BLOCKING_POST, {}),
        ("counting", COUNTING, {}),
        # It gives up after a second, with 200 and streams in flight: its count is what is believed.
        ("litellm", LITELLM, {"GRACEFUL_SHUTDOWN_TIMEOUT": "1"}),
    ],
)
def test_a_rollout_loses_no_token(
    operator: Operator,
    namespace: Namespace,
    record: MakeRecord,
    audit: Audit,
    kind: str,
    foreign: Object,
    env: dict[str, str],
) -> None:
    probes = READINESS if kind == "litellm" else {}
    service = made(namespace, kind, foreign, env=env, probes=probes)
    service.apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=30).start().wait_running()
    service.wait_busy()
    service.apply(tag="v2")
    service.wait_settled()
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["byVersion"].keys() == {"v1", "v2"}
    drained = watched.drained_pods()
    assert len(drained) == 3
    # These log what they hold when they are called, and not when they are withdrawn: on a slow machine all may be over.
    assert any(namespace.logs.drain_evidence(pod).counts for pod in drained)
    assert {state(event.object) for event in watched.removals()} == {PodState.DRAINED}
    outcomes = {row["pod"]: (row["outcome"], row["cut"]) for row in service.status["outcomes"]}
    assert outcomes == dict.fromkeys(drained, (Outcome.DRAINED, 0))
    fewest, moment = watched.fewest(is_serving)
    assert fewest >= 3, str(moment)
    most, moment = watched.most(is_standing)
    assert most <= 4, str(moment)
    assert_asked_well(namespace, drained, kind)
    assert_conditions(service, kind)
    assert audit.spec_writes(namespace.name) == []
    assert TOKEN not in operator.log()


def assert_asked_well(namespace: Namespace, drained: list[str], kind: str) -> None:
    """Each drained pod was called when its traffic had ended, nobody was refused, and no process stopped at work."""
    logs = namespace.logs
    assert logs.find("refused") == [] and logs.find("unauthorized") == []
    assert logs.interrupted() == []
    assert namespace.events("FailedPreStopHook") == []
    for pod in drained:
        lines = logs.of(pod)
        first = next(index for index, line in enumerate(lines) if line["event"] == "drain-call")
        late = [line for line in lines[first:] if line["event"] == "stream-start"]
        assert late == [], "a stream began after the endpoint was called"
        assert len([line for line in lines if line["event"] == "start"]) == 1, "the container was restarted"
    if kind == "litellm":
        gave_up = [line for line in logs.find("drain-answer") if line["inFlight"]]
        assert gave_up, "it never answered too early, so nothing was shown"
        assert {line["path"] for line in logs.find("probed")} == {"/health/readiness"}


def assert_conditions(service: Service, kind: str) -> None:
    partial = service.condition(ConditionType.IN_POD_LOCK_PARTIAL)
    if kind == "blocking-get":
        assert partial is None
    else:
        assert partial is not None
        assert partial["reason"] == Reason.PRE_STOP_SLEEPS
    readiness = service.condition(ConditionType.READINESS_NOT_DRAIN_AWARE)
    assert (readiness is None) == (kind == "litellm"), readiness


def test_an_evicted_pod_is_drained_by_its_hook(operator: Operator, namespace: Namespace) -> None:
    """The kubelet itself makes the call. New requests may meet a refusal until the endpoints have followed."""
    service = made(namespace, "blocking-get", BLOCKING_GET, replicas=2)
    service.apply()
    service.wait_settled()
    load = Load(namespace, service.name, streams=20).start().wait_running()
    pod = service.pods()[0]
    evicted = pod["metadata"]["name"]
    # The hook finds these, however late the kubelet comes to it.
    held = lasting(namespace, service.name, 5, [pod]).start().wait_running()
    eventually("the pod has streams to lose", lambda: namespace.logs.running(evicted) >= 5)
    evict_allowed(namespace, evicted)
    eventually("the hook has called the pod", lambda: namespace.logs.find("drain-call", pod=evicted))
    held.finish().assert_whole()
    eventually("the evicted pod is gone", lambda: evicted not in {p["metadata"]["name"] for p in service.pods()})
    service.wait_settled()
    result = load.stop()

    assert result.summary["cut"] == 0, result.summary
    lines = namespace.logs.of(evicted)
    call, stop = (next(line for line in lines if line["event"] == event) for event in ("drain-call", "sigterm"))
    assert len(call["streams"]) >= 3 and stop["streams"] == []
    assert namespace.events("FailedPreStopHook") == []


def test_a_liveness_that_fails_while_draining_is_refused(operator: Operator, namespace: Namespace) -> None:
    """LiteLLM's, which would have the kubelet kill each pod in the middle of its drain; the remedy it names works."""
    service = made(namespace, "litellm", LITELLM, probes=READINESS | {"liveness": {"path": "/health/liveliness"}})
    service.apply()

    def refused() -> bool:
        stalled = service.condition(ConditionType.STALLED)
        return stalled is not None and stalled["reason"] == Reason.TEMPLATE_CONFLICT

    eventually("the template is refused", refused)
    stalled = service.condition(ConditionType.STALLED)
    assert stalled is not None
    assert "spec.probes.liveness.path: LiteLLM answers it with 503 after /health/drain" in stalled["message"]
    assert "remove the path" in stalled["message"]
    assert service.deployments() == []

    service.apply(probes=READINESS | {"liveness": {"port": "http"}})
    service.wait_settled()
    assert namespace.logs.find("probed", path="/health/liveliness") == []
