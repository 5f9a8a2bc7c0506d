"""Whole rollouts of the real plan, played against an ideal cluster: limits kept throughout, and no time wasted."""

from dataclasses import replace
from typing import Any

import pytest

from core.stories import NOW, OWNER, draining, homeless, raw_spec, record, several, starting, story, told, waiting
from tidegate.api.resource import LLMServiceSpec
from tidegate.core.planner.forecast import Assumptions, Forecast, Stuck, play
from tidegate.core.planner.observe import observe
from tidegate.core.state import limits
from tidegate.core.state.snapshot import Snapshot

ASSUME = Assumptions(start=60.0, drain=120.0, teardown=10.0)


def changed(s: Snapshot, image: str, **changes: Any) -> Snapshot:
    """The same world with another spec."""
    raw = raw_spec(image, **changes)
    return replace(s, raw_spec=raw, spec=LLMServiceSpec.parse(raw), generation=s.generation + 1)


def created(**changes: Any) -> Forecast:
    raw = raw_spec("v1", **changes)
    empty = Snapshot(
        now=NOW, namespace=OWNER.namespace, name=OWNER.name, uid=OWNER.uid, generation=1, raw_spec=raw,
        spec=LLMServiceSpec.parse(raw), has_secret=False,
    )  # fmt: skip
    return play(empty, ASSUME)


def rolled(**changes: Any) -> Forecast:
    return play(changed(created(**changes).snapshot, "v2", **changes), ASSUME)


SHAPES = [
    (1, 1, 0), (1, 0, 1), (1, 0, 0), (3, 1, 0), (3, 0, 1), (3, 2, 0), (3, 1, 1), (3, "34%", 0), (5, "25%", "25%"),
    (10, 3, 2), (10, "100%", 0), (7, 0, 3), (4, 9, 9), (0, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize(("replicas", "surge", "unavailable"), SHAPES)
def test_a_rollout_replaces_every_pod_within_its_limits(replicas: int, surge: Any, unavailable: Any):
    resolved = limits.resolve(replicas, surge, unavailable)
    done = rolled(replicas=replicas, rollout={"maxSurge": surge, "maxUnavailable": unavailable})
    assert done.drained == replicas
    assert done.least_serving >= resolved.least_serving
    assert done.most_pods <= resolved.most_pods
    view = observe(done.snapshot)
    assert len(view.target_pods) == len(done.snapshot.pods) == replicas
    assert told(done.snapshot) == []


@pytest.mark.parametrize(("replicas", "surge", "unavailable"), [s for s in SHAPES if s[0]])
def test_a_rollout_uses_all_the_room_it_has(replicas: int, surge: Any, unavailable: Any):
    resolved = limits.resolve(replicas, surge, unavailable)
    done = rolled(replicas=replicas, rollout={"maxSurge": surge, "maxUnavailable": unavailable})
    slots = min(resolved.slots, replicas + resolved.unavailable)
    # Each slot carries its share of start + propagation + drain; without surge the old one's exit comes on top.
    each = 60 + 5 + 120 + (10 if resolved.surge == 0 else 0)
    assert done.seconds <= each * -(-replicas // min(slots, replicas)) + 1


def test_the_bound_is_reached_where_the_slots_divide_the_pods():
    done = rolled()
    assert done.seconds == pytest.approx(done.bound_seconds) == pytest.approx(3 * (60 + 5 + 120))


def test_a_first_creation_starts_everything_at_once():
    done = created(replicas=5)
    assert (done.seconds, done.drained, done.most_pods) == (60, 0, 5)


def test_a_rollback_in_the_middle_keeps_the_pods_that_still_serve():
    done = play(story("v1", draining("v1-1"), *several("v1", 3)[1:], starting("v2-1")), ASSUME)
    # No pod of a forecast answers an undo, so the draining one is replaced; no other goes.
    assert {p.name for p in done.snapshot.pods} >= {"v1-2", "v1-3"}
    assert done.least_serving >= 2


@pytest.mark.parametrize("replicas", [0, 1, 2, 5, 9])
def test_scaling_gets_there_and_drains_the_difference(replicas: int):
    whole = created(replicas=4).snapshot
    done = play(changed(whole, "v1", replicas=replicas), ASSUME)
    assert len(done.snapshot.pods) == replicas
    assert done.drained == max(4 - replicas, 0)
    assert done.least_serving >= min(replicas, 4)


def test_changing_what_makes_no_revision_moves_no_pod():
    whole = created().snapshot
    for part in ({"drain": {"budgetSeconds": 900}}, {"rollout": {"maxSurge": 2}}, {"drain": {"quietSeconds": 9}}):
        done = play(changed(whole, "v1", **part), ASSUME)
        assert done.steps == () and done.snapshot.pods == whole.pods


def test_a_third_revision_in_the_middle_reaches_the_end():
    pods = [draining("v1-1"), *several("v1", 3)[1:], *several("v2", 1)]
    done = play(story("v3", *pods), ASSUME)
    assert done.drained == 4
    assert done.least_serving == 3 and done.most_pods == 4


def test_a_service_that_lost_a_pod_in_a_rollout_mends_it_before_it_goes_on():
    pods = [*several("v1", 2), *several("v2", 1)]
    done = play(story("v2", *pods), ASSUME)
    assert done.least_serving == 3 and done.most_pods == 4


def test_history_is_kept_to_its_limit_over_many_rollouts():
    s = created().snapshot
    for tag in ("v2", "v3", "v4", "v5", "v6"):
        s = play(changed(s, tag), ASSUME).snapshot
    assert len(s.deployments) == 1 + 3
    assert [d.replicas for d in s.deployments if d.replicas] == [3]


def test_undo_raises_the_deployment_that_was_kept():
    s = play(changed(created().snapshot, "v2"), ASSUME).snapshot
    back = play(changed(s, "v1"), ASSUME)
    assert len(back.snapshot.deployments) == 2
    assert not any(step.text.startswith("create") for step in back.steps)


def test_a_template_that_conflicts_is_stuck_and_says_why():
    bad = {"template": {"spec": {**raw_spec()["template"]["spec"], "hostNetwork": True}}}
    with pytest.raises(Stuck, match=r"hostNetwork.*remove hostNetwork"):
        play(changed(created().snapshot, "v2", **bad), ASSUME)


def test_pods_that_an_ideal_cluster_starts_are_not_stuck():
    for pod in (waiting("v2-1"), homeless("v2-1")):
        assert play(story("v2", *several("v1", 3), pod), ASSUME).least_serving == 3


def test_a_held_drain_has_no_deadline_and_still_ends():
    hold = {"drain": {"onExpiry": "Hold"}}
    held = draining("v1-1", drain=record("v1-1", budget=None))
    done = play(story("v2", held, *several("v1", 3)[1:], *several("v2", 1), spec=hold), ASSUME)
    assert done.drained == 3
