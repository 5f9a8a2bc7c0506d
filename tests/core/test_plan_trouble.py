"""What stands in the way: conflicts, refused templates, silent pods, missing policies; and housekeeping beside it."""

from dataclasses import replace

import pytest

from core.stories import (
    NOW,
    container,
    deployment,
    drained,
    draining,
    homeless,
    record,
    says,
    serving,
    several,
    starting,
    story,
    told,
    unready,
)
from tidegate.api import names
from tidegate.api.conditions import BlockedReason
from tidegate.core.planner.plan import Plan, plan
from tidegate.core.state.snapshot import Conflict, Trouble

OLD = several("v1", 3)
SILENT = {p.name: None for p in (*OLD, serving("v2-1"))}
NAME = Conflict("Service", "chat", "Service chat exists and is not Tidegate's")
BLOCKS = {
    "template": {"spec": {"template": {"spec": {"hostNetwork": True, "containers": [container("v2")]}}}},
    "refused": {"rejected": (("spec.template.spec.containers[0].image", "Required value"),)},
    "name taken": {"conflicts": (NAME,)},
    "predecessor still there": {"conflicts": (replace(NAME, temporary=True),)},
}
block = pytest.mark.parametrize("why", BLOCKS.values(), ids=BLOCKS.keys())


@block
def test_a_blocked_service_makes_nothing_and_begins_nothing(why):
    bare = {"live_service": None, "live_budget": None, "has_secret": False}
    assert told(story("v2", **bare, **why)) == []
    assert told(story("v2", *OLD, serving("v2-1"), **why)) == []
    assert plan(story("v2", *OLD, serving("v2-1"), readings=SILENT, **why)).questions == ()


@block
def test_a_blocked_service_still_ends_the_drains_that_run_and_pays_for_them(why):
    pod = draining("v1-1")
    running = story("v2", pod, *OLD[1:], serving("v2-1"), **why)
    assert [(order.pod, order.undo) for order in plan(running).orders] == [("v1-1", False)]
    sealed = story("v2", pod, *OLD[1:], serving("v2-1"), readings={"v1-1": says(pod, "sealed")}, **why)
    assert told(sealed) == ["drained v1-1: Drained"]
    assert told(story("v2", drained("v1-1"), *OLD[1:], serving("v2-1"), **why)) == ["lower v1 to 2"]


def deaf(name: str) -> Trouble:
    return Trouble(NOW - 1, "timeout", "no answer in time")


def unreachable(**fields):
    pods = [*OLD, serving("v2-1")]
    troubles = {p.uid: deaf(p.name) for p in pods}
    return story("v2", *pods, readings=SILENT, troubles=troubles, **fields)


def unanswered(decided: Plan) -> bool:
    """Whether nothing is drained since no pod can be asked."""
    return decided.blocked_by(BlockedReason.NO_ANSWER) is not None


def test_if_no_pod_answers_none_is_drained_and_they_are_asked_again():
    decided = plan(unreachable())
    assert (told(decided), unanswered(decided), decided.requeue_after) == ([], True, 5)
    later = plan(replace(unreachable(), now=NOW + 10))
    assert {q.uid for q in later.questions} == {p.uid for p in (*OLD, serving("v2-1"))}


def test_one_pod_that_answers_is_enough():
    s = unreachable()
    heard = replace(s, readings={"uid-v2-1": says(serving("v2-1"))}, troubles={p.uid: deaf(p.name) for p in OLD})
    assert (told(heard), unanswered(plan(heard))) == (["withdraw v1-1 (Rollout)"], False)


def test_the_annotation_rolls_although_no_pod_answers():
    decided = plan(unreachable(annotations={names.DRAIN_UNREACHABLE: "mesh is being replaced"}))
    assert (told(decided), unanswered(decided)) == (["withdraw v1-1 (Rollout)"], False)
    assert unanswered(plan(unreachable(annotations={names.DRAIN_UNREACHABLE: ""})))


def test_scale_in_waits_for_an_answer_as_well():
    troubles = {p.uid: deaf(p.name) for p in OLD}
    s = story("v1", *OLD, readings={p.name: None for p in OLD}, troubles=troubles, spec={"replicas": 2})
    assert (told(s), unanswered(plan(s))) == ([], True)


def test_a_pod_that_has_never_answered_is_asked_whatever_the_clock_says():
    pods = [replace(p, created=1.0, ready_since=2.0) for p in (*OLD, serving("v2-1"))]
    s = story("v2", *pods, readings=SILENT, now=3.0)
    assert {q.uid for q in plan(s).questions} == {p.uid for p in pods}


def test_a_pod_without_an_address_is_not_asked_and_does_not_hold_up_the_choice():
    bare = replace(OLD[0], ip="")
    s = story("v2", bare, *OLD[1:], serving("v2-1"), readings={"v1-1": None})
    assert plan(s).questions == ()
    assert told(s) == ["withdraw v1-2 (Rollout)"]


LOCKS = ("tidegate-pod-delete",)


def test_without_locks_one_pod_is_drained_at_a_time():
    two = {"rollout": {"maxSurge": 2}}
    free = story("v2", *OLD, *several("v2", 2), spec=two, locks_missing=LOCKS)
    assert told(free) == ["withdraw v1-1 (Rollout)"]
    busy = story("v2", draining("v1-1"), *OLD[1:], *several("v2", 2), spec=two, locks_missing=LOCKS)
    assert told(busy) == []
    many = story("v1", *several("v1", 5), spec={"replicas": 2}, locks_missing=LOCKS)
    assert told(many) == ["withdraw v1-1 (ScaleIn)"]


def test_without_locks_a_pod_that_is_down_goes_before_one_that_serves():
    s = story(
        "v2", *OLD[:2], unready("v1-3"), *several("v2", 2), spec={"rollout": {"maxSurge": 2}}, locks_missing=LOCKS
    )
    assert told(s) == ["withdraw v1-3 (Rollout)"]


def test_old_revisions_stay_for_undo_and_the_oldest_beyond_the_limit_goes():
    idle = [deployment(tag, 0, created=NOW - age) for tag, age in (("a", 90), ("b", 80), ("c", 70), ("d", 60))]
    s = story("v1", *OLD, deployments=[deployment("v1", 3, created=NOW - 95), *idle])
    assert told(s) == ["remove chat-a"]
    assert told(replace(s, deployments=s.deployments[:-1])) == []


def test_no_history_at_all_removes_every_idle_revision_but_the_wanted_one():
    none = {"rollout": {"revisionHistoryLimit": 0}, "replicas": 0}
    s = story("v1", deployments=[deployment("v1", 0), deployment("a", 0)], spec=none)
    assert told(s) == ["remove chat-a"]


def test_a_revision_with_pods_or_replicas_is_never_removed():
    none = {"rollout": {"revisionHistoryLimit": 0}}
    last = replace(drained("a-1"), terminating=True)
    assert told(story("v1", *OLD, last, counts={"a": 0}, spec=none)) == []
    assert told(story("v1", *OLD, counts={"a": 1}, spec=none)) == []
    gone = [deployment("v1", 3), deployment("a", 0, deleting=True)]
    assert told(story("v1", *OLD, deployments=gone, spec=none)) == []


def test_a_child_without_controller_is_adopted_once():
    orphan = deployment("v1", 3, adopted=False)
    assert told(story("v1", *OLD, deployments=[orphan])) == ["adopt chat-v1"]
    assert told(story("v1", *OLD, deployments=[replace(orphan, deleting=True)])) == ["create v1 with 1"]
    assert told(story("v1", *OLD, deployments=[replace(orphan, adopted=True)])) == []


def test_a_blocked_service_adopts_its_children_all_the_same():
    orphan = deployment("v1", 3, adopted=False)
    assert told(story("v1", *OLD, deployments=[orphan], conflicts=(NAME,))) == ["adopt chat-v1"]


def test_it_looks_again_when_a_deadline_passes():
    s = story("v2", *OLD, starting("v2-1", created=NOW - 2390))
    assert plan(s).requeue_after == pytest.approx(10, abs=0.1)
    assert plan(replace(s, now=NOW + 11)).requeue_after is None
    near = story("v2", draining("v1-1", drain=record("v1-1", since=-599)), *OLD[1:], serving("v2-1"))
    assert plan(near).requeue_after == pytest.approx(3)


def test_nothing_is_asked_of_pods_while_nothing_is_to_be_drained():
    for s in (story("v1", *OLD, readings=SILENT), story("v2", *OLD, homeless("v2-1"), readings=SILENT)):
        assert plan(s).questions == ()


def test_a_flapping_pod_that_does_not_answer_holds_up_no_other():
    """Asked anew each time that it turns Ready, it would keep everybody waiting for an answer that never comes."""
    mute = serving("v1-1", ready_since=NOW - 0.5)
    others = [serving("v1-2"), serving("v1-3"), serving("v2-1")]
    late = Trouble(NOW - 1, "timeout", "no answer in time")
    s = story("v2", mute, *others, readings={"v1-1": None}, troubles={mute.uid: late})
    assert told(s) == ["withdraw v1-2 (Rollout)"]
    assert [q.uid for q in plan(replace(s, now=NOW + 60)).questions if q.uid == mute.uid] == [mute.uid]
