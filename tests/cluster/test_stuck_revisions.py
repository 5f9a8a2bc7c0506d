"""Rollouts that get stuck on a real cluster: no node for it, never Ready; and the way out."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.harness.kube import Object, eventually
from cluster.harness.load import Load, LoadResult
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord, Record, is_serving, state
from cluster.harness.service import Namespace, Service
from tidegate.api import names
from tidegate.api.conditions import Phase, Reason


@dataclass(frozen=True, slots=True)
class Way:
    """How the next revision gets stuck, and what is said of it."""

    reason: Reason
    words: tuple[str, ...]
    broken: dict[str, Any]
    rollout: Object = field(default_factory=dict)
    unavailable: int = 0


WAYS = {
    "no-node": Way(
        Reason.NO_SPARE_CAPACITY,
        ("finds no node", "didn't match Pod's node affinity/selector", "correct resources, nodeSelector"),
        {"pod": {"nodeSelector": {"tidegate.test/on": "the-moon"}}},
    ),
    "never-ready": Way(
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        (
            "is not Ready after 13 s (spec.rollout.progressDeadlineSeconds)",
            "kubectl describe pod never-ready-",
            "push a working revision",
        ),
        {"env": {"MISBEHAVE": "never-ready"}},
        {"maxUnavailable": 1, "progressDeadlineSeconds": 13},
        unavailable=1,
    ),
}
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
def test_no_old_pod_pays_for_a_stuck_revision_and_the_next_push_recovers(
    operator: Operator, namespace: Namespace, record: MakeRecord
) -> None:
    """Two services at once, each stuck in its own way. Where maxUnavailable is 1 one old pod goes, and no second."""
    services = {name: Service(namespace, name, replicas=REPLICAS).apply() for name in WAYS}
    stories = [begin(services[name], WAYS[name], record) for name in WAYS]
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
    assert namespace.events("FailedPreStopHook") == []


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
    kept = {pod["metadata"]["name"] for pod in story.service.pods() if state(pod) == names.SERVING}
    assert story.old - set(withdrawn) <= kept
    broken = story.attempts()
    assert broken
    return broken


def assert_recovered(story: Story, result: LoadResult, broken: set[str]) -> None:
    """The broken pods are gone, each old one was drained, and no stream was cut."""
    way, watched = story.way, story.record
    watched.catch_up()
    assert not broken & {pod["metadata"]["name"] for pod in story.service.pods() if is_serving(pod)}
    assert story.old <= set(watched.drained_pods())
    evidence = [story.service.namespace.logs.drain_evidence(pod) for pod in story.old]
    assert any(each.held for each in evidence), evidence
    watched.assert_bounds(serving=REPLICAS - way.unavailable, standing=REPLICAS + 1)
    result.assert_whole()
