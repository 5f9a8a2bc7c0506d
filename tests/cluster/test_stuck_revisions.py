"""Rollouts that get stuck on a real cluster: no node, never Ready, Ready for a moment, no room; and the ways out."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.harness.audit import Audit
from cluster.harness.evidence import assert_run_counts
from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load, LoadResult
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_serving, state
from cluster.harness.service import MakeDevices, Namespace, Service
from tidegate.api.conditions import ConditionType, Phase, PodState, Reason

STEADY = {"minReadySeconds": 30, "progressDeadlineSeconds": 31}
"""A flapping pod is Ready for two probes at a time, each a second after the other, or several on a busy machine."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the next revision gets stuck, and what is said of it."""

    reason: Reason
    words: tuple[str, ...]
    broken: dict[str, Any]
    rollout: Object = field(default_factory=dict)
    unavailable: int = 0
    serves: bool = False
    """For a moment, and not for as long as minReadySeconds asks."""


WAYS = {
    "no-node": Way(
        Reason.NO_SPARE_CAPACITY,
        ("cannot be scheduled", "didn't match Pod's node affinity/selector", "correct resources, nodeSelector"),
        {"pod": {"nodeSelector": {"tidegate.test/on": "the-moon"}}},
    ),
    "never-ready": Way(
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        (
            "was not Ready within 13 s (spec.rollout.progressDeadlineSeconds)",
            "kubectl describe pod never-ready-",
            "push a working revision",
        ),
        {"env": {"MISBEHAVE": "never-ready"}},
        {"maxUnavailable": 1, "progressDeadlineSeconds": 13},
        unavailable=1,
    ),
    "flapping": Way(
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        ("was not Ready for 30 s (spec.rollout.minReadySeconds) within 31 s", "push a working revision"),
        {"env": {"MISBEHAVE": "flap"}, "more": {"probes": {"readiness": {"periodSeconds": 1}}}},
        STEADY,
        serves=True,
    ),
    "crashing": Way(
        Reason.NEW_REVISION_FAILED,
        ("does not start", "exited with code 1", "push a working revision"),
        {"env": {"MISBEHAVE": "crash-after=8"}},
        STEADY,
        serves=True,
    ),
}
TOGETHER = [("no-node", "never-ready"), ("flapping", "crashing")]
REPLICAS = 2


@dataclass(slots=True)
class Story:
    """One service, its load and its record."""

    way: Way
    service: Service
    load: Load
    record: Record
    old: set[str]

    def wait_stuck(self) -> None:
        """Wait until it says so: in the condition, in the status' own message, in an Event."""
        name, way = self.service.name, self.way

        def said() -> bool:
            stalled, status = self.service.stalled_by(way.reason), self.service.status
            return bool(
                stalled
                and all(word in stalled["message"] for word in way.words)
                and all(word in status["message"] for word in way.words)
                and status["phase"] == Phase.STALLED
            )

        def announced() -> bool:
            described = self.service.kubectl("describe", "llmservice", name)
            return any(line.split()[:2] == ["Warning", way.reason] for line in described.splitlines())

        eventually(f"{name} is Stalled by {way.reason}: {way.words}", said)
        eventually(f"an Event of {name} says {way.reason}", announced)

    def attempts(self) -> set[str]:
        """Pods that began beside the old ones."""
        return {event.name for event in self.record.creations()}


@pytest.mark.long
@pytest.mark.parametrize("names_of_ways", TOGETHER, ids="-".join)
def test_no_old_pod_pays_for_a_stuck_revision_and_the_next_push_recovers(
    operator: Operator, namespace: Namespace, record: MakeRecord, names_of_ways: tuple[str, ...]
) -> None:
    """Services at once, each stuck in its own way. Where maxUnavailable is 1 one old pod goes, and no second."""
    services = {name: Service(namespace, name, replicas=REPLICAS).apply() for name in names_of_ways}
    stories = [begin(services[name], WAYS[name], record) for name in names_of_ways]
    for story in stories:
        story.service.wait_busy(1)
        story.service.apply(rollout=story.way.rollout, **story.way.broken)
    for story in stories:
        story.wait_stuck()
    # By now the slowest has been stuck for its whole deadline, and the others for longer.
    broken = {story.service.name: assert_stands(story) for story in stories}

    for story in stories:
        story.service.apply(rollout={}, env={}, pod={}, more={}, tag="v2")
    for story in stories:
        story.service.wait_settled()
        assert_recovered(story, story.load.stop(), broken[story.service.name])
    # A process that crashes of itself may do so in the middle of its hook.
    failed = {event["involvedObject"]["name"] for event in namespace.events("FailedPreStopHook")}
    assert failed <= broken.get("crashing", set())


def begin(service: Service, way: Way, record: MakeRecord) -> Story:
    service.wait_settled()
    old = {pod["metadata"]["name"] for pod in service.pods()}
    watched = record(service.labels)
    # Light streams: two loads and as many services share two cores.
    load = Load(service.namespace, service.name, streams=16, seconds="3-6", rate=2).start()
    return Story(way, service, load.wait_running(), watched, old)


def assert_stands(story: Story) -> set[str]:
    """As many pods were withdrawn as may be missing, all of the others serve; returns the pods that did not come up."""
    way, watched = story.way, story.record
    watched.catch_up()
    withdrawn = watched.drained_pods()
    assert len(withdrawn) == way.unavailable, withdrawn
    assert set(withdrawn) <= story.old
    watched.assert_bounds(serving=REPLICAS - way.unavailable, standing=REPLICAS + 1)
    kept = {pod["metadata"]["name"] for pod in story.service.pods() if state(pod) == PodState.SERVING}
    assert story.old - set(withdrawn) <= kept
    broken = story.attempts()
    assert broken
    served = {event.name for event in watched.events("Pod") if is_serving(event.object)}
    assert bool(broken & served) == way.serves, "it was not stuck in the way that is meant"
    return broken


def assert_recovered(story: Story, result: LoadResult, broken: set[str]) -> None:
    """The broken pods are gone, each old one was drained, and no stream was cut but by a crash."""
    way, watched = story.way, story.record
    watched.catch_up()
    assert not broken & {pod["metadata"]["name"] for pod in story.service.pods() if is_serving(pod)}
    assert story.old <= set(watched.drained_pods())
    evidence = [story.service.namespace.logs.drain_evidence(pod) for pod in story.old]
    assert any(each.held for each in evidence), evidence
    watched.assert_bounds(serving=REPLICAS - way.unavailable, standing=REPLICAS + 1)
    if story.way is WAYS["crashing"]:
        # It served for a moment, and what a process takes with it when it crashes nobody can save.
        assert {line["pod"] for line in result.failures} <= broken | {None}
    else:
        result.assert_whole()


@pytest.mark.long
def test_a_rollout_without_room_waits_or_makes_room_as_it_is_told(
    operator: Operator, namespace: Namespace, record: MakeRecord, audit: Audit, devices: MakeDevices
) -> None:
    """As many devices as replicas: no surge pod finds one.

    One service waits until maxSurge 0 is set, one drains first by itself, and one of a single replica does so with
    streams longer than its progress deadline: the pod that waits for their end is not late.
    """
    asked = Service(namespace, "asked", replicas=2, limits=devices(2)).apply()
    first = Service(namespace, "first", replicas=2, limits=devices(2), rollout={"whenNoCapacity": "DrainFirst"}).apply()
    limited = {"whenNoCapacity": "DrainFirst", "progressDeadlineSeconds": 20}
    single = Service(namespace, "single", replicas=1, limits=devices(1), rollout=limited).apply()
    for service in (asked, first, single):
        service.wait_settled()
    watched = {service.name: record(service.labels) for service in (asked, first, single)}
    loads = [Load(namespace, service.name, streams=24, seconds="4-6", rate=2).start() for service in (asked, first)]
    # All begun before: a service of one pod that goes first has nobody to connect to for a while.
    once = Load(namespace, single.name, streams=6, seconds="50", rate=3, options=("--total", "6")).start()
    for load in (*loads, once):
        load.wait_running()
    for service in (asked, first, single):
        service.apply(tag="v2")

    stalled = eventually("NoSpareCapacity", lambda: asked.stalled_by(Reason.NO_SPARE_CAPACITY))
    assert "Insufficient tidegate.test/" in stalled["message"], stalled
    assert "set spec.rollout.maxSurge: 0 and maxUnavailable: 1 to drain a pod first" in stalled["message"], stalled
    for service in (first, single):
        service.wait_settled()
    # While others went all the way, this one has not moved.
    watched["asked"].catch_up()
    assert watched["asked"].drained_pods() == []
    assert asked.stalled_by(Reason.NO_SPARE_CAPACITY)
    asked.apply(rollout={"maxSurge": 0, "maxUnavailable": 1})
    asked.wait_settled()

    for result in (*(load.stop() for load in loads), once.wait_done()):
        result.assert_whole()
    for name, found in watched.items():
        found.catch_up()
        replicas = 1 if name == "single" else 2
        assert len(found.drained_pods()) == replicas
        assert_run_counts(namespace.logs, found.drained_pods())
        found.assert_bounds(serving=replicas - 1, standing=replicas + 1)
    assert never_stalled(audit, first)
    assert never_stalled(audit, single)
    assert single.status["rollout"]["longestDrainSeconds"] > limited["progressDeadlineSeconds"]


def never_stalled(audit: Audit, service: Service) -> bool:
    """In no status of the second revision; at its own first start nobody promised that a pod comes up in time."""
    later = [s for s in audit.statuses(service.namespace.name, service.name) if s["observedGeneration"] > 1]
    assert later
    stalled = [c for s in later for c in s["conditions"] if (c["type"], c["status"]) == (ConditionType.STALLED, "True")]
    assert stalled == []
    return True
