"""The operator killed, restarted and upgraded on a real cluster: the cluster alone tells its successor how to go on."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from cluster.harness.audit import OPERATOR, Audit
from cluster.harness.evidence import LEAST_SECONDS, LEAST_STREAMS
from cluster.harness.kube import PATIENCE_SECONDS, PODS, Object, eventually, kubectl_command
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_serving, is_standing, state
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import PodState, Reason

pytestmark = pytest.mark.alone


def test_an_unchanged_spec_is_left_alone(operator: Operator, namespace: Namespace, record: MakeRecord) -> None:
    """In steady state under load, by a killed operator's successor, and by an upgraded one with its CRD."""
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    eventually("the last thing to say is said", lambda: namespace.events("RolloutComplete"))
    watched, asked = record(service.labels), service.generations()
    (deployment,) = service.deployments()
    silence = Audit(namespace.kube.audit_log)
    Load(namespace, service.name, streams=12, options=("--total", "24")).start().wait_done().assert_whole()
    operator.kill()
    operator.install()
    watched.catch_up()
    assert watched.events("Pod") == []
    assert service.generations() == asked
    assert [str(call) for call in silence.calls(user=OPERATOR)] == []

    # One that would render another template says so once, and rolls nothing either.
    service.kubectl("annotate", "deployment", deployment["metadata"]["name"], f"{names.RENDERED}=older", "--overwrite")
    eventually("it says so", lambda: namespace.events(Reason.RENDERED_BEFORE))
    again = Audit(namespace.kube.audit_log)
    operator.restart()

    # That each looked and had nothing to do, and was not merely deaf, shows in the first thing there is to do.
    service.scale(3)
    service.wait_settled()
    watched.catch_up()
    reports = [call for call in again.calls(user=OPERATOR) if call.resource == "llmservices/status"]
    assert {call.entry["responseObject"]["status"]["observedGeneration"] for call in reports} == {2}
    scaling = {"llmservices/status", "poddisruptionbudgets", "deployments", "events"}
    assert {call.resource for call in again.calls(user=OPERATOR)} <= scaling
    (creation,) = watched.creations()
    assert {event.name for event in watched.events("Pod")} == {creation.name}
    (after,) = service.deployments()
    assert after["spec"] == deployment["spec"] | {"replicas": 3}


def kill_at(operator: Operator, service: Service, moments: Sequence[Callable[[Object], bool]]) -> Future[list[str]]:
    """SIGKILL it within moments of each change of a pod that passes the next test, each time another pod.

    The kubelet starts it again, with its backoff. The result is the pods, in order.
    """
    kube, path = service.namespace.kube, PODS.format(service.namespace.name)
    listed = kube.get(path, labelSelector=service.labels)
    assert listed is not None
    version = listed["metadata"]["resourceVersion"]
    query = f"watch=1&resourceVersion={version}&timeoutSeconds={PATIENCE_SECONDS:.0f}&labelSelector={service.labels}"
    watch = subprocess.Popen(kubectl_command("get", "--raw", f"/{path}?{query}"), stdout=subprocess.PIPE, text=True)

    def follow() -> list[str]:
        assert watch.stdout is not None
        struck: list[str] = []
        try:
            while len(struck) < len(moments):
                pod = json.loads(next(watch.stdout))["object"]
                name = pod["metadata"]["name"]
                if name not in struck and moments[len(struck)](pod):
                    for pid in operator.processes():
                        os.kill(pid, signal.SIGKILL)
                    struck.append(name)
        finally:
            watch.terminate()
            watch.wait()
        return struck

    pool = ThreadPoolExecutor(1)
    following = pool.submit(follow)
    pool.shutdown(wait=False)
    return following


def test_a_successor_carries_on_from_every_moment_of_a_drain(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit
) -> None:
    service = Service(namespace).apply()
    service.wait_settled()
    old = {pod["metadata"]["name"] for pod in service.pods()}
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=45, seconds="4-8").start().wait_running()
    service.wait_busy()
    killed = kill_at(
        operator,
        service,
        [
            lambda pod: state(pod) == PodState.DRAINING,
            lambda pod: state(pod) == PodState.DRAINING and waits(namespace, pod["metadata"]["name"]),
            lambda pod: state(pod) == PodState.DRAINED,
        ],
    )
    service.apply(tag="v2")
    assert set(killed.result(PATIENCE_SECONDS)) == old
    service.wait_settled()
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    assert set(watched.drained_pods()) == old
    for pod in old:
        assert_had_streams_to_lose(namespace, audit, pod)
    assert namespace.logs.interrupted() == []
    assert_each_step_was_taken_once(namespace, watched, audit, old)
    fewest, moment = watched.fewest(is_serving)
    assert fewest >= 3, moment
    most, moment = watched.most(is_standing)
    assert most <= 4, moment


def assert_had_streams_to_lose(namespace: Namespace, audit: Audit, pod: str) -> None:
    """By its own log against the time of its withdrawal: a killed operator may tell it long after that."""
    # Whatever its answer was: of a writer that is killed meanwhile the log has none.
    calls = audit.calls(namespace=namespace.name, user=OPERATOR)
    patch = next(c for c in calls if (c.resource, c.name) == ("pods", pod))
    withdrawn = datetime.fromisoformat(patch.at).timestamp()
    lines = namespace.logs.of(pod)
    begun = {line["id"] for line in lines if line["event"] == "stream-start" and line["at"] < withdrawn}
    ends = [line["at"] for line in lines if line["event"] == "stream-end" and line["id"] in begun]
    outlived = [end - withdrawn for end in ends if end > withdrawn]
    assert len(outlived) >= LEAST_STREAMS, (pod, outlived)
    assert max(outlived) >= LEAST_SECONDS, (pod, outlived)


def waits(namespace: Namespace, pod: str) -> bool:
    """Wait until the pod has been told to drain; whether it has streams then."""
    eventually(f"{pod} is told to drain", lambda: drain_calls(namespace, pod))
    return namespace.logs.running(pod) > 0


def drain_calls(namespace: Namespace, pod: str) -> list[str]:
    """Ids of the drains that the pod was told of; a repeated call with the same id is no new one."""
    return [line["id"] for line in namespace.logs.of(pod) if line["event"] == "drain"]


def assert_each_step_was_taken_once(namespace: Namespace, record: Record, audit: Audit, pods: set[str]) -> None:
    """By what the store holds after each write, the audit log, and the pods' own logs.

    The audit log alone would not do: a write whose writer is killed before the answer may be in the store, and is in
    the log without its answer.
    """
    writes = [c for c in audit.writes(namespace.name, user=OPERATOR) if (c.verb, c.resource) == ("patch", "pods")]
    for pod in pods:
        states = [state(event.object) for event in record.events("Pod") if event.name == pod]
        changes = [value for value in without_repeats(states) if value != PodState.SERVING]
        assert changes == [PodState.DRAINING, PodState.DRAINED], (pod, states)
        labelled = [state(call.entry["responseObject"]) for call in writes if call.name == pod]
        assert len(labelled) == len(set(labelled)), (pod, labelled)
        assert len(drain_calls(namespace, pod)) == 1, drain_calls(namespace, pod)
    counts: dict[str, list[int]] = {}
    for deployment in (*record.first("Deployment"), *(event.object for event in record.events("Deployment"))):
        counts.setdefault(deployment["metadata"]["name"], []).append(deployment["spec"]["replicas"])
    assert sorted(map(without_repeats, counts.values())) == [[1, 2, 3], [3, 2, 1, 0]], counts
    assert not [event for event in record.creations() if event.name in pods]


def without_repeats(values: list[Any]) -> list[Any]:
    """Each value that differs from the one before it."""
    return [value for at, value in enumerate(values) if not at or values[at - 1] != value]
