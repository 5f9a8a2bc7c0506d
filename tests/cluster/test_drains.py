"""One drain, looked at closely on a real cluster: what comes before what, what counts as work, what one reads of it."""

import itertools
import re
from datetime import datetime

from cluster.harness.audit import OPERATOR, Audit, Call
from cluster.harness.evidence import Line, assert_run_counts
from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, state
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import Outcome, PodState

LIVENESS = {
    "httpGet": {"path": names.LIVE_PATH, "port": "admin"},
    "periodSeconds": 1,
    "failureThreshold": 2,
    "timeoutSeconds": 10,
}
"""Two refusals a second apart would restart the pod in the middle of any drain that counts."""


def apply_impatient(service: Service, tag: str) -> None:
    """With a liveness probe of its own, which wins over the rendered one."""
    service.tag, service.more = tag, {}
    template = service.manifest()["spec"]["template"]
    template["spec"]["containers"][0]["livenessProbe"] = LIVENESS
    service.apply(more={"template": template})


def test_the_steps_of_a_drain_come_in_their_order(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    service = Service(namespace, replicas=2)
    apply_impatient(service, "v1")
    service.wait_settled()
    watched = record(service.labels)
    streams = Load(namespace, service.name, streams=24, options=("--probe-rate", "10")).start().wait_running()
    clients = Load(
        namespace, service.name, streams=10, seconds="0.1-0.8", options=("--keep-alive", "--think", "0-0.4")
    ).start()
    clients.wait_running(1)
    apply_impatient(service, "v2")
    service.wait_settled()
    result, kept = streams.stop(), clients.stop()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["probes"]["complete"] > 0
    for summary in (result.summary["probesBy"], kept.summary["refusedBy"]):
        assert summary.keys() <= {"status-503"}, summary
    assert kept.summary["cut"] == kept.summary["abandoned"] == 0, kept.summary
    drained = watched.drained_pods()
    assert len(drained) == 2
    assert_run_counts(namespace.logs, drained)
    uids = {event.name: event.object["metadata"]["uid"] for event in watched.removals()}
    for pod in drained:
        assert steps(namespace, audit, pod, uids[pod]) == STEPS
    restarts = {
        status["restartCount"]
        for event in watched.events("Pod")
        for status in event.object["status"].get("containerStatuses") or []
    }
    assert restarts == {0}
    assert all(len({line["instance"] for line in namespace.logs.of(pod)}) == 1 for pod in namespace.logs.pods())
    assert liveness_failures(namespace) == []
    assert namespace.events("FailedPreStopHook") == []


def liveness_failures(namespace: Namespace) -> list[Object]:
    return [event for event in namespace.events("Unhealthy") if event["message"].startswith("Liveness")]


STEPS = ["withdrawn", "out of every slice", "told", "sealed", "drained", "lowered", "deleted"]


def steps(namespace: Namespace, audit: Audit, pod: str, uid: str) -> list[str]:
    """What happened to one pod, in the order of the one clock that API server and pod share."""
    writes = audit.writes(namespace.name)
    found: list[tuple[float, str]] = []
    found += [(at(c), "withdrawn") for c in writes if labelled(c, pod, PodState.DRAINING)]
    found += [(at(c), "drained") for c in writes if labelled(c, pod, PodState.DRAINED)]
    found += [(line["at"], "told") for line in namespace.logs.of(pod) if line["event"] == "drain"]
    found += [(line["at"], "sealed") for line in namespace.logs.of(pod) if line["event"] == "sealed"]
    found += [(at(c), "deleted") for c in writes if (c.verb, c.resource, c.name) == ("delete", "pods", pod)][:1]
    found += [(at(c), "lowered") for c in writes if pays_for(c, uid)][:1]
    # Slices that list the pod no more after one that did: the last such change counts.
    listed = [(at(c), lists(c, uid)) for c in writes if c.resource == "endpointslices"]
    gone = [now for (_, before), (now, after) in itertools.pairwise(listed) if before and not after]
    found += [(moment, "out of every slice") for moment in gone[-1:]]
    return [step for _, step in sorted(found)]


def at(call: Call) -> float:
    return datetime.fromisoformat(call.at).timestamp()


def labelled(call: Call, pod: str, wanted: str) -> bool:
    ours = call.user == OPERATOR and (call.verb, call.resource, call.name) == ("patch", "pods", pod)
    return ours and state(call.entry["responseObject"]) == wanted


def pays_for(call: Call, uid: str) -> bool:
    if call.user != OPERATOR or (call.verb, call.resource) != ("patch", "deployments"):
        return False
    annotations: Line = call.entry["responseObject"]["metadata"].get("annotations") or {}
    return uid in annotations.get(names.RELEASED, "")


def lists(call: Call, uid: str) -> bool:
    endpoints = (call.entry.get("requestObject") or {}).get("endpoints") or []
    return any((endpoint.get("targetRef") or {}).get("uid") == uid for endpoint in endpoints)


def test_drain_calls_and_probes_are_neither_work_nor_arrivals(operator: Operator, namespace: Namespace) -> None:
    """An idle pod is sealed when the propagation time is over: if a call counted, the quiet time would run from it."""
    quiet = 60
    service = Service(namespace, replicas=1, drain={"quietSeconds": quiet}).apply()
    service.wait_settled()
    (old,) = (pod["metadata"]["name"] for pod in service.pods())
    service.apply(tag="v2")
    service.wait_settled()
    lines = {line["event"]: line for line in namespace.logs.of(old)}
    assert not lines.keys() & {"stream-start", "late", "refused"}
    assert lines["drain"]["streams"] == []
    assert lines["sealed"]["at"] - lines["drain"]["at"] < quiet
    assert (lines["sealed"]["inFlight"], lines["sealed"]["cut"]) == (0, 0)
    assert lines["sealed"]["drainId"] == lines["drain"]["id"]
    (row,) = service.status["outcomes"]
    assert (row["pod"], row["outcome"], row["cut"]) == (old, Outcome.DRAINED, 0)
    assert row["seconds"] < quiet


DRAINING_FIELDS = ("In Flight", "Oldest Seconds", "Deadline", "Since")


def test_describe_says_what_is_waited_for(operator: Operator, namespace: Namespace) -> None:
    """In the middle of a drain: the pod, its requests, the oldest, the deadline, and what follows."""
    service = Service(namespace, replicas=1).apply()
    service.wait_settled()
    (old,) = (pod["metadata"]["name"] for pod in service.pods())
    load = lasting(namespace, service.name, 8).start().wait_running()
    service.apply(tag="v2")
    waiting = re.compile(
        rf"Draining pod {old} for \d+ s: [1-8] requests? in flight \(oldest \d+ s\), "
        r"released by \d\d:\d\d:\d\d UTC at the latest\."
    )
    shown = [re.compile(rf"^\s+{field}:\s+\S", re.MULTILINE) for field in DRAINING_FIELDS]
    shown += [waiting, re.compile(r"^\s+Reason:\s+RollingOut$", re.MULTILINE)]
    # Events come on their own way, so they may be a moment later than the status that they belong to.
    shown.append(re.compile(rf"Draining pod {old}, reason Rollout"))

    def described() -> str | None:
        text = service.kubectl("describe", "llmservice", service.name)
        return text if all(sight.search(text) for sight in shown) else None

    eventually("describe says what is waited for", described)
    load.finish().assert_whole()
    service.wait_settled()

    def over() -> str | None:
        text = service.kubectl("describe", "llmservice", service.name)
        return text if "RolloutComplete" in text else None

    assert not waiting.search(eventually("describe says that it is over", over))
