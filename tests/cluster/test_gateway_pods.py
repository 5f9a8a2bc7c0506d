"""Engines that know nothing of drains, behind the gateway on a real cluster: nothing they stream is cut unawares.

The engine is `apps.plain`: SIGTERM cuts what it streams. What came whole is counted by the clients.
"""

import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from cluster.harness.evidence import LEAST_STREAMS
from cluster.harness.kube import PODS, Object, eventually
from cluster.harness.load import Load, lasting
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_going, is_ready, is_serving, is_standing, state
from cluster.harness.service import Namespace, Service
from cluster.test_evictions import evict_allowed, outcome
from tidegate.api import names
from tidegate.api.conditions import DrainReason, Outcome, PodState
from tidegate.core.state import times

HEALTH = {"httpGet": {"path": "/health", "port": "http"}}


@dataclass(slots=True)
class EngineService(Service):
    """The plain engine; with mode Native the same image speaks the contract itself."""

    mode: str = "Gateway"

    def manifest(self) -> Object:
        body = Service.manifest(self)
        if self.mode == "Native":
            return body
        spec = body["spec"]
        container = spec["template"]["spec"]["containers"][0]
        container["command"] = ["python", "-m", "apps.plain"]
        container["ports"] = [{"name": "http", "containerPort": 8000}]
        # By name: the engine's own port is meant, although that name leads everybody else to the gateway.
        container["livenessProbe"] = HEALTH | {
            "periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 5, "terminationGracePeriodSeconds": 4,
        }  # fmt: skip
        del spec["drain"]["native"]
        spec["drain"]["mode"] = self.mode
        spec["probes"] = {"startup": {"path": "/health"}, "readiness": {"path": "/health"}}
        return body


def reaches(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False


def status_of(pod: Object, container: str) -> Object:
    """What the kubelet says of one container of a pod."""
    status = pod["status"]
    rows = status.get("containerStatuses", []) + status.get("initContainerStatuses", [])
    return dict(next(row for row in rows if row["name"] == container))


def assert_no_stop_with_work(namespace: Namespace) -> None:
    """By the engines' own account: each was stopped when it had nothing left, and nothing of it ended otherwise."""
    assert namespace.logs.interrupted() == []
    assert namespace.logs.find("sigterm"), "no engine was ever stopped"
    assert namespace.events("FailedPreStopHook") == []


def held_at_withdrawal(namespace: Namespace, watched: Record) -> dict[str, int]:
    """Streams of each drained pod when it was withdrawn, by its engine's own log."""
    held = {}
    for event in watched.events("Pod"):
        if state(event.object) == PodState.DRAINING and event.name not in held:
            record = json.loads(event.object["metadata"]["annotations"][names.DRAIN])
            lines = [line for line in namespace.logs.of(event.name) if line["at"] <= times.parse(record["since"])]
            kinds = [line["event"] for line in lines]
            held[event.name] = kinds.count("stream-start") - kinds.count("stream-end")
    return held


@pytest.mark.begins_first
def test_a_service_moves_behind_the_gateway_rolls_and_shrinks_without_a_cut(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    service = EngineService(namespace, replicas=2, mode="Native")
    service.apply()
    service.wait_settled()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=30).start().wait_running()
    service.wait_busy()
    service.apply(mode="Gateway", tag="v2")
    service.wait_settled()
    service.wait_busy()
    service.apply(tag="v3")
    service.wait_settled()
    service.wait_busy()
    service.scale(1)
    service.wait_settled()
    result = load.stop()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["byVersion"].keys() == {"v1", "v2", "v3"}
    drained = watched.drained_pods()
    assert len(drained) == 5
    held = held_at_withdrawal(namespace, watched)
    assert held.keys() == set(drained) and min(held.values()) >= LEAST_STREAMS, held
    outcomes = {row["pod"]: (row["outcome"], row["cut"]) for row in service.status["outcomes"]}
    assert outcomes == dict.fromkeys(drained, (Outcome.DRAINED, 0))
    assert {state(event.object) for event in watched.removals()} == {PodState.DRAINED}
    assert_no_stop_with_work(namespace)
    fewest, moment = watched.fewest(is_serving)
    assert fewest >= 1, str(moment)
    most, moment = watched.most(is_standing)
    assert most <= 3, str(moment)
    assert status_of(service.pods()[0], names.GATEWAY)["restartCount"] == 0


def test_evicted_and_deleted_with_its_service_a_pod_ends_its_streams_first(
    operator: Operator, namespace: Namespace
) -> None:
    service = EngineService(namespace, replicas=2)
    service.apply()
    service.wait_settled()
    load = Load(namespace, service.name, streams=24).start().wait_running()
    evicted = service.serving_pod()
    eventually("the pod has streams to lose", lambda: namespace.logs.running(evicted) >= 5)
    evict_allowed(namespace, evicted)
    eventually("the evicted pod is gone", lambda: evicted not in {p["metadata"]["name"] for p in service.pods()})
    service.wait_settled()
    # The node's routes lead to the new pod: those that are begun next go to both.
    service.wait_busy()
    load.stop().assert_whole()

    # To a deleted service there is nothing to connect to: all streams are begun before.
    last = lasting(namespace, service.name, 24).start().wait_running()
    service.wait_busy(3)
    service.kubectl("delete", "llmservice", service.name)
    eventually("its pods are about to go", lambda: all(map(is_going, service.pods())))
    last.finish().assert_whole()
    eventually("its pods go", lambda: not service.pods())
    assert len(namespace.logs.find("sigterm")) == 3
    assert_no_stop_with_work(namespace)


def test_what_outlasts_its_budget_gets_a_token_from_the_gateway_and_is_counted(
    operator: Operator, namespace: Namespace
) -> None:
    # Far beyond the short ones, so that a node whose routes follow late, or a slow pod, cuts none of those.
    service = EngineService(namespace, replicas=1, drain={"budgetSeconds": 10})
    service.apply()
    service.wait_settled()
    endless = Load(namespace, service.name, streams=3, seconds="600", options=("--total", "3")).start().wait_running()
    short = Load(namespace, service.name, streams=8, seconds="1-2").start().wait_running()
    service.apply(tag="v2")
    service.wait_settled()
    seen = endless.wait_done()
    short.stop().assert_whole()

    assert seen.summary["cutBy"] == {"token": 3}, seen.summary
    (row,) = service.status["outcomes"]
    assert (row["outcome"], row["cut"]) == (Outcome.EXPIRED, 3)
    assert [line["by"] for line in namespace.logs.find("stream-end") if not line["whole"]] == ["client-gone"] * 3
    assert not [line for line in namespace.logs.find("sigterm") if line["streams"]]


def test_what_outlasts_the_grace_period_of_an_evicted_pod_is_counted_by_its_gateway(
    operator: Operator, namespace: Namespace
) -> None:
    grace = {"initialSeconds": 6, "teardownSeconds": 2, "safetySeconds": 2}
    service = EngineService(namespace, replicas=1, drain={"grace": grace})
    service.apply()
    service.wait_settled()
    pod = service.serving_pod()
    # By the Service: the engine's own port is not the gateway's, and nobody counts what goes there.
    load = Load(namespace, service.name, streams=3, seconds="600", options=("--total", "3")).start().wait_running()
    evict_allowed(namespace, pod)
    seen = load.wait_done().summary
    row = outcome(service, pod)
    assert seen["cutBy"] == {"token": 3}, seen
    assert (row["outcome"], row["reason"], row["cut"]) == (Outcome.EXPIRED, DrainReason.NODE_DRAIN, 3)


def test_an_engine_killed_by_its_liveness_probe_serves_again_in_the_same_pod(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    service = EngineService(namespace, replicas=1)
    service.apply()
    service.wait_settled()
    (pod,) = service.pods()
    name = pod["metadata"]["name"]
    watched = record(service.labels)
    endless = Load(namespace, service.name, streams=6, seconds="600", options=("--total", "6")).start().wait_running()
    answer = namespace.kube.call("POST", f"{PODS.format(namespace.name)}/{name}:8000/proxy/sicken")
    assert answer.is_success, answer.text
    cut = endless.wait_done().summary
    assert cut["cutBy"] == {"token": 6}, cut

    def again() -> Any:
        (now,) = service.pods()
        return status_of(now, "server")["restartCount"] == 1 and is_ready(now) and now

    now = eventually("the engine is back and the pod is Ready", again)
    service.wait_settled()
    # Ready is the pod's word; the node's tables follow it.
    eventually("the Service leads to it again", lambda: reaches(f"http://{namespace.cluster_ip(service.name)}/health"))
    again_served = Load(namespace, service.name, streams=6, seconds="1-2", options=("--total", "12")).start()
    result = again_served.wait_done()
    watched.catch_up()

    result.assert_whole()
    assert result.summary["byPod"].keys() == {name}
    assert status_of(now, names.GATEWAY)["restartCount"] == 0
    assert (watched.creations(), watched.removals(), watched.drained_pods()) == ([], [], [])
    assert service.status.get("outcomes", []) == []

    # The drain that follows is told of its own cuts alone.
    service.apply(tag="v2")
    service.wait_settled()
    assert [(row["outcome"], row["cut"]) for row in service.status["outcomes"]] == [(Outcome.DRAINED, 0)]


HELPER = "import signal, time\nsignal.signal(signal.SIGTERM, lambda *_: exit())\nwhile True: time.sleep(1)"
"""A container of the user's beside the engine: it ends at SIGTERM, and on a word it is sick."""
SICK = "import os, sys\nsys.exit(os.path.exists('/logs/sick'))"


@dataclass(slots=True)
class HelpedService(EngineService):
    def manifest(self) -> Object:
        body = EngineService.manifest(self)
        containers = body["spec"]["template"]["spec"]["containers"]
        engine = containers[0]
        helper = {
            "name": "helper",
            "image": engine["image"],
            "imagePullPolicy": engine["imagePullPolicy"],
            "command": ["python", "-c", HELPER],
            "volumeMounts": engine["volumeMounts"],
            "livenessProbe": {
                "exec": {"command": ["python", "-c", SICK]}, "periodSeconds": 2, "failureThreshold": 1,
                "timeoutSeconds": 20,
            },
        }  # fmt: skip
        containers.append(helper)
        return body


def test_a_container_beside_the_engine_restarts_and_takes_no_stream(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """Its preStop hook is called then too, and the pod goes on; in a pod that is deleted it outlasts the streams."""
    service = HelpedService(namespace, replicas=1)
    service.apply()
    service.wait_settled()
    (pod,) = service.pods()
    watched = record(service.labels)
    load = Load(namespace, service.name, streams=6, seconds="3-6").start().wait_running()
    sick = namespace.directory / "sick"
    sick.touch()

    def restarts(of: Object, container: str) -> int:
        return int(status_of(of, container)["restartCount"])

    eventually("the helper was restarted", lambda: restarts(service.pods()[0], "helper") >= 1)
    sick.unlink()
    service.wait_busy()
    (now,) = service.pods()
    assert now["metadata"]["uid"] == pod["metadata"]["uid"]
    assert (restarts(now, "server"), restarts(now, names.GATEWAY)) == (0, 0)
    watched.catch_up()
    assert watched.drained_pods() == []
    # NotReady for as long as the helper does not run, and withdrawn by nobody.
    assert {state(e.object) for e in watched.events("Pod")} == {PodState.SERVING}

    service.apply(tag="v2")
    service.wait_settled()
    result = load.stop()
    result.assert_whole()
    assert result.summary["byVersion"].keys() == {"v1", "v2"}
    assert_no_stop_with_work(namespace)
