"""Pods that do not drain as they should, on a real cluster: bounded by the budget, named, never taken for empty."""

import json
import re
from dataclasses import dataclass

import pytest

from cluster.harness import inside
from cluster.harness.audit import Audit
from cluster.harness.evidence import Line
from cluster.harness.kube import PODS, eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, state
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import ConditionType, Outcome, PodState, Reason

BUDGET, FLUSH = 20, 1
"""Seconds. So long before the end of its budget a pod that obeys sends its tokens, and may be sealed."""
PROPAGATION = 15
"""Of the pod that seals itself too early: what only moves is written every five seconds, and has to be in between."""
GRACE = {"initialSeconds": 2, "teardownSeconds": 2, "safetySeconds": 1}
DROPPED, HONEST = "dropped", "honest"
WAYS = {
    "ignore-drain": "it does not drain although it was asked to",
    "lie-sealed": "it reports sealed with 2 requests in flight",
    "lie-negative": "inFlight is negative",
    "lie-id": "it drains under another id",
    "sequence-falls": "its sequence decreases",
    "hang": "connected, but no answer in time",
    "status-500": "HTTP 500 instead of 2xx",
    "status-404": "HTTP 404 instead of 2xx",
    "redirect": "HTTP 302 instead of 2xx",
    "rubbish": "the answer is not JSON",
    "endless": "the answer is larger than 64 KiB",
    DROPPED: "connection timed out after 3 s: packets may be dropped",
}
"""What a pod does when it is told to drain, and what status has to say of it."""
STREAMS = 2 * len(WAYS)


@dataclass(slots=True)
class Small(Service):
    """Light enough for many pods, with a budget that is soon spent."""

    replicas: int = 1
    cpu: str = "10m"

    def manifest(self) -> Line:
        self.drain = {"budgetSeconds": BUDGET, "grace": GRACE} | self.drain
        return Service.manifest(self)


def misbehave(namespace: Namespace, pod: str, ways: str) -> None:
    """Turn a running pod's conduct."""
    namespace.kube.post_text(f"{PODS.format(namespace.name)}/{pod}:9901/proxy/misbehave", ways)


@pytest.mark.begins_first
def test_a_pod_that_misbehaves_holds_its_drain_until_the_budget_is_spent_and_not_longer(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    """One pod for each way and an honest one, all told to drain at once. Two streams in each outlast the budget; those
    of the honest one do not. Beside them, for whom it takes no time of their own: a pod that seals itself before the
    propagation time, and one that somebody else drains."""
    every = len(WAYS) + 1
    slow = {"propagationSeconds": PROPAGATION, "budgetSeconds": 60}
    service = Small(namespace, replicas=every, rollout={"maxSurge": 0, "maxUnavailable": every}).apply()
    early = Small(namespace, "early", env={"MISBEHAVE": "lie-early"}, drain=slow).apply()
    stray = Small(namespace, "stray").apply()
    for item in (service, early, stray):
        item.wait_settled()
    strayed = Strayed.begin(stray, record)
    sealed = early.serving_pod()
    early.apply(tag="v2", env={})
    pods = dict(zip((*WAYS, HONEST), service.pods(), strict=True))
    named = {way: pod["metadata"]["name"] for way, pod in pods.items()}
    addresses = {way: pod["status"]["podIP"] for way, pod in pods.items()}
    bad = tuple(addresses[way] for way in WAYS)
    held = Load(namespace, "", streams=STREAMS, seconds="900", options=("--total", str(STREAMS)), pod_ips=bad).start()
    held.wait_running()
    for way in WAYS.keys() - {DROPPED}:
        misbehave(namespace, named[way], way)
    watched = record(service.labels)
    short = Load(namespace, "", streams=4, seconds="8", options=("--total", "4"), pod_ips=(addresses[HONEST],)).start()
    eventually("the honest one has streams", lambda: namespace.logs.find("stream-start", pod=named[HONEST]))
    with inside.dropped(operator.processes(), "--source", addresses[DROPPED], "--sport", "9901"):
        service.apply(tag="v2")
        eventually("all are let go", lambda: set(named.values()) <= {event.name for event in watched.removals()})
    for item in (service, early):
        item.wait_settled()
    watched.catch_up()

    outcomes = {e.name: outcome(e.object) for e in watched.events("Pod") if state(e.object) == PodState.DRAINED}
    assert outcomes.keys() == set(named.values())
    assert_whom_it_cost(held, short, outcomes[named[HONEST]], {named[way] for way in WAYS})
    written = audit.statuses(namespace.name, service.name)
    for way, trouble in WAYS.items():
        found = outcomes[named[way]]
        assert found["outcome"] == Outcome.EXPIRED, (way, found)
        assert found["seconds"] > BUDGET - FLUSH, f"{way}: taken for empty"
        assert_named(written, named[way], trouble)
        assert_told(namespace, named[way], found["cut"])
    until = r"released by \d\d:\d\d:\d\d UTC at the latest"
    sentence = re.compile(rf"Draining pod (\S+) for \d+ s: requests in flight unknown \([^)]+\), {until}")
    assert any(sentence.search(status["message"]) for status in written), {s["message"] for s in written}
    assert_not_believed(early, sealed, audit)
    strayed.assert_serves_again()


def outcome(pod: Line) -> Line:
    found: Line = json.loads(pod["metadata"]["annotations"][names.OUTCOME])
    return found


def assert_whom_it_cost(held: Load, short: Load, honest: Line, pods: set[str]) -> None:
    """By the client: two streams of each such pod, none of which ended before the budget did; none of the honest."""
    result = held.wait_done()
    assert result.summary["byPod"] == dict.fromkeys(pods, 2)
    assert result.summary["cut"] == STREAMS, result.summary
    early = [line for line in result.streams if line["seconds"] < BUDGET - FLUSH]
    assert early == [], "they were cut before the budget was spent"
    short.wait_done().assert_whole()
    assert (honest["outcome"], honest["cut"]) == (Outcome.DRAINED, 0)


def assert_named(written: list[Line], pod: str, trouble: str) -> None:
    """While it drained its row said what is wrong."""
    rows = [row for status in written for row in status.get("pods") or [] if row["name"] == pod]
    assert any(row.get("trouble", "").startswith(trouble) for row in rows), (trouble, rows)


def assert_told(namespace: Namespace, pod: str, cut: int | None) -> None:
    """The Event tells it afterwards, unless the pod came round and counted its own cuts."""

    def told() -> list[Line]:
        return [event for event in namespace.events("Drained") if f"Pod {pod}:" in event["message"]]

    (event,) = eventually(f"an Event tells of {pod}", told)
    assert event["type"] == "Warning"
    assert "because its drain budget was spent" in event["message"]
    if cut is None:
        unknown = "an unknown number of requests cut, because its drain budget was spent; the pod did not answer ("
        assert unknown in event["message"], event["message"]
    else:
        assert cut == 2


def assert_not_believed(service: Service, pod: str, audit: Audit) -> None:
    """It said that it was sealed at once; it was let go when the propagation time was over."""
    (row,) = service.status["outcomes"]
    assert (row["pod"], row["outcome"], row["cut"]) == (pod, Outcome.DRAINED, 0)
    assert row["seconds"] >= PROPAGATION
    assert service.namespace.logs.find("sealed", pod=pod)
    written = audit.statuses(service.namespace.name, service.name)
    assert_named(written, pod, "it reports sealed before the propagation time is over")


@dataclass(slots=True)
class Strayed:
    """A pod that its own framework drains, or a person with the key: no rollout of ours, so the pod is wanted."""

    service: Service
    watched: Record
    load: Load
    pod: str

    @classmethod
    def begin(cls, service: Service, record: MakeRecord) -> "Strayed":
        """Its streams go on while it is asked to serve again: idle it would be sealed, which nobody can take back."""
        (pod,) = service.pods()
        name = pod["metadata"]["name"]
        load = lasting(service.namespace, "", 2, [pod]).start()
        watched = record(service.labels)
        # By the pod's own word: the client counts a stream before it has connected.
        eventually("both run in it", lambda: service.namespace.logs.running(name) == 2)
        misbehave(service.namespace, name, "foreign-id")
        return cls(service, watched, load, name)

    def assert_serves_again(self) -> None:
        logs = self.service.namespace.logs
        eventually("it is undrained", lambda: logs.find("undrain", pod=self.pod))
        eventually("it is routed to", lambda: self.watched.routed() == {self.pod})
        self.service.wait_settled()
        self.load.finish().assert_whole()
        self.watched.catch_up()
        assert logs.find("drain", pod=self.pod)[0]["id"].startswith("foreign-")
        assert self.watched.drained_pods() == []
        assert self.watched.creations() == self.watched.removals() == []
        (event, *_) = eventually("it is reported", lambda: self.service.namespace.events("DrainedByOthers"))
        assert event["type"] == "Warning"
        said = "a third party is draining it, so Tidegate asks it to serve again"
        assert event["message"] == f"Pod {self.pod}: {said}."


DEAD_PORT, DROPPED_PORT = 9911, 9912
"""Where the services below are asked. The kubelet goes on probing the port that answers."""
PROBES = {name: {"port": 9901} for name in ("startup", "readiness", "liveness")}


def refused(service: Service) -> Line | None:
    """DrainEndpointUnreachable, once the rollout is stopped for it."""
    stopped = service.stalled_by(Reason.NO_ANSWER)
    return service.condition(ConditionType.DRAIN_ENDPOINT_UNREACHABLE) if stopped else None


def test_where_no_pod_can_be_asked_none_is_drained(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """A typing error in spec.drain.native.port: with it every drain would only wait for its budget, one pod after the
    other. And a NetworkPolicy that lets the kubelet in and nobody else: the streams do not notice, and when it is
    mended the rollout goes on by itself."""
    budget, there = {"budgetSeconds": 4}, {"ADMIN_PORT": str(DROPPED_PORT)}
    dead = Small(namespace, "dead", drain=budget | {"native": {"port": DEAD_PORT}}, more={"probes": PROBES}).apply()
    mute = Small(namespace, "mute", env=there, drain={"budgetSeconds": 300, "native": {"port": DROPPED_PORT}}).apply()
    for service in (dead, mute):
        service.wait_settled()
    load = Load(namespace, mute.name, streams=12, seconds="1-4").start().wait_running()
    watched = {service.name: record(service.labels) for service in (dead, mute)}
    old = dead.serving_pod()
    with inside.dropped(operator.processes(), "--sport", str(DROPPED_PORT)):
        for service in (dead, mute):
            service.apply(tag="v2")
        assert_stopped(dead, f":{DEAD_PORT}: connection refused: nothing listens on that port. Check ")
        assert_stopped(mute, f":{DROPPED_PORT}: connection timed out after 3 s: packets may be dropped. ")
        for found in watched.values():
            found.catch_up()
            assert found.drained_pods() == []

    word = f"{names.DRAIN_UNREACHABLE}=the port is wrong and the pods are idle"
    dead.kubectl("annotate", f"llmservice/{dead.name}", word)
    for service in (dead, mute):
        service.wait_settled()
        assert service.condition(ConditionType.DRAIN_ENDPOINT_UNREACHABLE) is None
    load.stop().assert_whole()
    for found in watched.values():
        found.catch_up()
        assert len(found.drained_pods()) == 1
        assert {state(event.object) for event in found.removals()} == {PodState.DRAINED}
    assert [(row["pod"], row["outcome"]) for row in dead.status["outcomes"]] == [(old, Outcome.EXPIRED)]
    assert [row["outcome"] for row in mute.status["outcomes"]] == [Outcome.DRAINED]


def assert_stopped(service: Service, why: str) -> None:
    """It names pod, address and port, the likely causes, and the remedies, one of which the test then takes."""

    def said() -> Line | None:
        found = refused(service)
        ips = {pod["metadata"]["name"]: pod["status"].get("podIP") for pod in service.pods()}
        asked = (f"{pod} at {ip}{why}" for pod, ip in ips.items())
        return found if found and any(text in found["message"] for text in asked) else None

    condition = eventually(f"{service.name} is stopped: {service.status.get('message')}", said)
    text = condition["message"]
    assert text.startswith("No pod is drained, because none answers GET /drain. Pod ")
    for words in ("Check spec.drain.native.port", "NetworkPolicies and strict mTLS", names.DRAIN_UNREACHABLE):
        assert words in text, text
    assert service.status["message"] == text
    events = service.namespace.events
    (event, *_) = eventually("an Event says so", lambda: [e for e in events("NoAnswer") if is_of(e, service)])
    assert event["type"] == "Warning"


def is_of(event: Line, service: Service) -> bool:
    return str(event["involvedObject"]["name"]) == service.name
