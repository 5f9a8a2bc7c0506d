"""From the API server's JSON to the core's data classes, and the annotations there and back."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.api import names
from tidegate.api.conditions import DrainReason, Outcome
from tidegate.cluster import project
from tidegate.cluster.port import PODS
from tidegate.core.state.snapshot import DrainRecord, OutcomeRecord

DAY = "2026-11-29T20:00:00Z"
MOMENTS = st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000)
TEXTS = st.text(max_size=20)


def raw(**annotations: str) -> dict[str, Any]:
    """A pod as the API server has it, and as the store keeps it."""
    hook = {"preStop": {"httpGet": {"path": "/drain/prestop", "port": 9901}}}
    held = {f"tidegate.dev/{key}": value for key, value in annotations.items()}
    return {
        "metadata": {
            "name": "p", "uid": "u", "creationTimestamp": DAY,
            "labels": {names.STATE: "serving", names.REVISION: "v1"},
            "annotations": {names.CONTAINER: "server"} | held,
        },
        "spec": {"containers": [{"name": "logs"}, {"name": "server", "lifecycle": hook}]},
        "status": {
            "phase": "Running",
            "podIP": "192.0.2.7",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": DAY}],
            "containerStatuses": [
                {"name": "logs", "state": {"running": {}}, "started": True, "restartCount": 9},
                {"name": "server", "state": {"running": {}}, "started": True, "restartCount": 2},
            ],
        },
    }  # fmt: skip


@given(st.builds(
    DrainRecord, id=TEXTS.filter(bool), instance=st.none() | TEXTS, reason=st.sampled_from(DrainReason), since=MOMENTS,
    deadline=st.none() | MOMENTS, budget=st.none() | st.integers(1, 10**6).map(float),
))  # fmt: skip
def test_a_drain_record_is_read_as_it_was_written(record: DrainRecord):
    assert project.pod(raw(drain=project.drain_text(record))).drain == record


@given(st.builds(
    OutcomeRecord, outcome=st.sampled_from(Outcome), seconds=MOMENTS, cut=st.none() | st.integers(0, 99),
    oldest_cut_seconds=st.none() | MOMENTS, at=MOMENTS,
    reason=st.sampled_from(DrainReason),
))  # fmt: skip
def test_an_outcome_is_read_as_it_was_written(record: OutcomeRecord):
    assert project.pod(raw(outcome=project.outcome_text(record))).outcome == record


SOUND = {"id": "a", "instance": "i", "reason": "Rollout", "since": DAY, "deadline": None, "budgetSeconds": 5}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", json.dumps(SOUND | {"id": ""}), json.dumps(SOUND | {"since": "yesterday"}),
        json.dumps(SOUND | {"since": "2026-11-29T20:00:00"}), json.dumps(SOUND | {"since": None}),
        json.dumps({"outcome": "Drained"}), json.dumps({"outcome": "", "at": DAY}),
        json.dumps({"outcome": "Levitated", "at": DAY}), json.dumps({"outcome": ["Drained"], "at": DAY})],
)  # fmt: skip
def test_an_annotation_that_cannot_be_read_is_absent(text: str):
    pod = project.pod(raw(drain=text, outcome=text))
    assert (pod.drain, pod.outcome) == (None, None)


@pytest.mark.parametrize("reason", ["Whim", 7, ["Rollout"], {}, None])
def test_a_reason_that_is_not_ours_is_somebody_s_own(reason: object):
    drain = project.pod(raw(drain=json.dumps(SOUND | {"reason": reason}))).drain
    assert drain is not None and drain.reason is DrainReason.MANUAL


def test_a_drain_with_rubbish_beside_what_is_needed_is_read():
    pod = project.pod(raw(drain=json.dumps(SOUND | {"deadline": "soon", "budgetSeconds": "long"})))
    assert pod.drain is not None and (pod.drain.deadline, pod.drain.budget) == (None, None)


@pytest.mark.parametrize("number", ["1", True, -1, 1e13, [], None])
def test_numbers_that_are_none_are_absent(number: object):
    drain = project.pod(raw(drain=json.dumps(SOUND | {"budgetSeconds": number, "instance": 5}))).drain
    assert drain is not None and (drain.budget, drain.instance) == (None, None)
    text = json.dumps({"outcome": "Drained", "at": DAY, "cut": number, "oldestCutSeconds": number, "seconds": number})
    outcome = project.pod(raw(outcome=text)).outcome
    assert outcome is not None
    assert (outcome.cut, outcome.oldest_cut_seconds, outcome.seconds) == (None, None, 0)


def test_times_are_written_to_the_millisecond_in_utc():
    text = json.loads(project.drain_text(DrainRecord("a", None, "Rollout", 1_800_000_000.1234, None)))
    assert text["since"] == "2027-01-15T08:00:00.123Z"


def test_a_pod_is_projected_whole_and_the_same_after_trimming():
    pod = project.pod(raw(release="fire"))
    assert (pod.name, pod.uid, pod.revision, pod.state, pod.phase) == ("p", "u", "v1", "serving", "Running")
    assert (pod.ip, pod.contract_port, pod.release, pod.terminating) == ("192.0.2.7", 9901, "fire", False)
    assert pod.ready_since == pod.created == datetime(2026, 11, 29, 20, tzinfo=UTC).timestamp()
    assert (pod.container.running, pod.container.started, pod.container.restarts) == (True, True, 2)
    kept = project.trim(PODS, raw(release="fire"))
    assert project.pod(kept) == pod


def test_a_pod_that_terminates_says_until_when_and_whether_it_was_evicted():
    pod = raw()
    pod["metadata"] |= {"deletionTimestamp": "2026-11-29T20:02:00Z", "deletionGracePeriodSeconds": 90}
    target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    pod["status"]["conditions"].append(target)
    found = project.pod(pod)
    assert found.deleted_at is not None and found.terminates_by == found.deleted_at + 90
    assert (found.terminating, found.disruption) == (True, "EvictionByEvictionAPI")
    target["status"] = "False"
    assert project.pod(pod).disruption == ""
    assert (project.pod(raw()).terminates_by, project.pod(raw()).disruption) == (None, "")
    target["status"] = "True"
    assert project.pod(project.trim(PODS, pod)) == found


def test_not_ready_unknown_and_unschedulable():
    pod = raw()
    pod["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "lastTransitionTime": DAY},
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"},
    ]
    found = project.pod(pod)
    assert (found.ready, found.unschedulable) == (False, "no node") and found.unready_since is not None
    assert found.scheduled is None
    pod["status"]["conditions"][1] = {"type": "PodScheduled", "status": "True", "lastTransitionTime": DAY}
    assert project.pod(pod).scheduled == project.pod(pod).created
    pod["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": DAY}]
    assert (project.pod(pod).ready_since, project.pod(pod).unready_since) == (None, None)


def test_a_pod_that_has_just_been_made_has_nothing_yet():
    bare = {"metadata": {"name": "p", "uid": "u"}}
    found = project.pod(bare)
    assert (found.phase, found.ip, found.ready, found.any_running, found.contract_port) == (
        "Pending",
        "",
        False,
        False,
        None,
    )
    assert project.pod(project.trim(PODS, {"metadata": {"name": "p", "uid": "u"}})) == found


def test_why_a_container_does_not_run_is_taken_from_its_last_end():
    pod = raw()
    pod["status"]["containerStatuses"] = [
        {
            "name": "server", "started": False, "restartCount": 4,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off " + "x" * 1000}},
            "lastState": {"terminated": {"exitCode": 7, "reason": "Error"}},
        }
    ]  # fmt: skip
    found = project.pod(pod)
    assert not found.any_running
    c = found.container
    assert (c.running, c.started, c.restarts, c.exit_code, c.exit_reason) == (False, False, 4, 7, "Error")
    assert c.waiting_reason == "CrashLoopBackOff" and len(c.waiting_message) == 300


def test_a_native_sidecar_that_runs_counts_as_running():
    pod = raw()
    pod["status"]["initContainerStatuses"] = [{"name": "gateway", "state": {"running": {}}, "started": True}]
    pod["status"]["containerStatuses"] = [{"name": "server", "state": {"waiting": {}}, "started": False}]
    assert project.pod(pod).any_running and not project.pod(pod).container.running


def test_a_lost_container_annotation_makes_no_empty_pod():
    pod = raw()
    del pod["metadata"]["annotations"][names.CONTAINER]
    found = project.pod(pod)
    assert (found.container.running, found.container.started, found.contract_port) == (True, True, 9901)
    pod["status"]["containerStatuses"][0] |= {"state": {"waiting": {}}, "started": False}
    assert project.pod(pod).container.started, "any that has started may hold work"


def test_a_pod_on_the_host_s_network_has_no_address_to_call():
    pod = raw()
    pod["spec"]["hostNetwork"] = True
    assert project.pod(pod).ip == ""


def test_the_port_is_that_of_the_pod_s_own_hook_and_of_no_other_container():
    pod = raw()
    pod["spec"]["containers"][0]["lifecycle"] = {"preStop": {"httpGet": {"path": "/quit", "port": 1}}}
    assert (project.pod(pod).contract_port, project.pod(pod).hooked) == (9901, True)
    pod["spec"]["containers"][1]["lifecycle"] = {"preStop": {"exec": {"command": ["x"]}}}
    assert (project.pod(pod).contract_port, project.pod(pod).hooked) == (None, False)


def test_a_hook_in_another_container_does_not_hold_the_serving_one():
    """Both have it as rendered; a webhook that takes the serving container's leaves its SIGTERM to come at once."""
    pod = raw()
    sidecar, serving = pod["spec"]["containers"]
    sidecar["lifecycle"] = serving.pop("lifecycle")
    assert (project.pod(pod).contract_port, project.pod(pod).hooked) == (9901, False)
    del pod["metadata"]["annotations"][names.CONTAINER]
    assert project.pod(pod).hooked, "which one serves is not known, so nothing is claimed"


def proxied(**container: Any) -> dict[str, Any]:
    """As the API server shows a pod to which a mesh has added its proxy."""
    pod = raw()
    sidecar, serving = pod["spec"]["containers"]
    hook = {"preStop": {"httpGet": {"path": names.PRESTOP_PATH, "port": 9901}}}
    added = {"name": "istio-proxy", "image": "p", **container}
    pod["spec"]["containers"] = [sidecar | {"lifecycle": hook}, serving, added]
    return pod


def unhooked(pod: dict[str, Any]) -> list[tuple[str, float]]:
    """As it comes out of the store."""
    return [(c.name, c.lasts) for c in project.pod(project.trim(PODS, pod)).unhooked]


def env(name: str, value: Any) -> dict[str, Any]:
    return {"env": [{"name": "A", "valueFrom": {}}, {"name": name, "value": value}]}


@pytest.mark.parametrize(
    ("container", "lasts"),
    [
        ({}, 0.0),
        ({"lifecycle": None, "env": None}, 0.0),
        ({"lifecycle": {"postStart": {"exec": {"command": ["wait"]}}}}, 0.0),
        (env("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true"), float("inf")),
        (env("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "false"), 0.0),
        (env("PROXY_CONFIG", '{"terminationDrainDuration":"300s"}'), 300.0),
        (env("PROXY_CONFIG", '{"terminationDrainDuration":"1.5s"}'), 1.5),
        (env("PROXY_CONFIG", '{"terminationDrainDuration":5}'), 0.0),
        (env("PROXY_CONFIG", '["300s"]'), 0.0),
        (env("PROXY_CONFIG", "not JSON"), 0.0),
    ],
)
def test_a_container_that_was_added_without_a_hook_is_known_with_how_long_it_goes_on(container: Any, lasts: float):
    assert unhooked(proxied(**container)) == [("istio-proxy", lasts)]


def test_containers_with_a_hook_of_any_kind_and_native_sidecars_need_none():
    kinds = [
        {"exec": {"command": ["sleep", "9"]}},
        {"sleep": {"seconds": 9}},
        {"httpGet": {"path": "/quit", "port": 1}},
    ]
    assert [unhooked(proxied(lifecycle={"preStop": kind})) for kind in kinds] == [[], [], []]
    native = proxied()
    native["spec"]["initContainers"] = [native["spec"]["containers"].pop() | {"restartPolicy": "Always"}]
    assert unhooked(native) == []


def test_the_serving_container_is_judged_by_its_own_hook_alone():
    pod = proxied(lifecycle={"preStop": {"sleep": {"seconds": 60}}})
    del pod["spec"]["containers"][1]["lifecycle"]
    assert (unhooked(pod), project.pod(project.trim(PODS, pod)).hooked) == ([], False)
    del pod["metadata"]["annotations"][names.CONTAINER]
    assert unhooked(pod) == [], "which one serves is not known, so nothing is claimed"


def deployment(**meta: Any) -> dict[str, Any]:
    annotations = {names.SOURCE: "{}", names.RELEASED: "a,b", names.RENDERED: "d"}
    owner = [{"uid": "helm"}, {"uid": "me", "controller": True}]
    known = {"name": "d", "uid": "u", "labels": {names.REVISION: "v1"}, "annotations": annotations}
    return {"metadata": known | {"ownerReferences": owner} | meta, "spec": {"replicas": 3}}


def test_a_deployment_knows_its_controller_and_what_it_has_paid_for():
    found = project.deployment(deployment(), "me")
    assert (found.revision, found.replicas, found.source, found.rendered) == ("v1", 3, "{}", "d")
    assert (found.released, found.adopted, found.deleting, found.failure) == ({"a", "b"}, True, False, "")
    assert not project.deployment(deployment(), "helm").adopted
    assert not project.deployment(deployment(ownerReferences=[]), "me").adopted
    assert project.deployment(deployment(deletionTimestamp=DAY), "me").deleting
    assert project.deployment(deployment(annotations={}), "me").released == frozenset()


def test_refused_pods_are_a_failure_and_failed_deletions_are_none():
    raw_one = deployment()
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
    raw_one["status"] = {"conditions": [condition]}
    assert project.deployment(raw_one, "me").failure == "quota"
    for change in ({"reason": "FailedDelete"}, {"status": "False"}):
        raw_one["status"] = {"conditions": [condition | change]}
        assert project.deployment(raw_one, "me").failure == ""


@pytest.mark.parametrize(("observed", "generation", "seen"), [(2, 2, True), (1, 2, False), (None, 1, False)])
def test_a_replica_set_has_observed_its_spec_when_the_generations_say_so(observed, generation, seen):
    status = {} if observed is None else {"observedGeneration": observed}
    made = {
        "metadata": {"name": "r", "uid": "u", "generation": generation,
            "ownerReferences": [{"uid": "d", "controller": True}]},
        "spec": {"replicas": 2}, "status": status,
    }  # fmt: skip
    found = project.replica_set(made)
    assert (found.observed, found.replicas, found.deployment_uid) == (seen, 2, "d")
