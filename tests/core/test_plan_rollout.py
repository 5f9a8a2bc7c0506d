"""A rollout, step by step: each story is one moment and what is done in it."""

from dataclasses import replace
from typing import Any

import pytest

from core.stories import (
    BUDGET,
    NOW,
    crashing,
    deployment,
    drained,
    draining,
    going,
    homeless,
    only,
    record,
    says,
    serving,
    several,
    starting,
    story,
    told,
    unready,
    waiting,
)
from tidegate.core.planner import actions as a
from tidegate.core.planner.plan import plan
from tidegate.core.render import objects

SERIAL = {"rollout": {"maxSurge": 0, "maxUnavailable": 1}}
TWO_SLOTS = {"rollout": {"maxSurge": 2}}


def test_first_creation_makes_every_child_and_all_pods_at_once():
    s = story("v1", live_service=None, live_budget=None, has_secret=False)
    assert told(s) == ["ensure chat-drain", "apply Service chat", "apply PodDisruptionBudget chat", "create v1 with 3"]


def test_first_creation_of_an_empty_service_makes_its_deployment_at_0():
    assert told(story("v1", spec={"replicas": 0})) == ["create v1 with 0"]


def test_once_made_nothing_more_is_done_until_something_changes():
    s = story("v1", *several("v1", 3))
    assert told(s) == []
    assert plan(s).orders == plan(s).questions == ()
    assert plan(s).requeue_after is None


def test_a_new_revision_starts_with_as_many_pods_as_surge_allows():
    old = several("v1", 3)
    assert told(story("v2", *old)) == ["create v2 with 1"]
    assert told(story("v2", *old, spec=TWO_SLOTS)) == ["create v2 with 2"]
    assert told(story("v2", *old, spec={"rollout": {"maxSurge": 10}})) == ["create v2 with 3"]


def test_the_name_of_a_new_revision_follows_from_its_source_and_avoids_one_that_is_taken():
    first = only(story("v2", *several("v1", 3)), a.CreateRevision).revision
    again = only(story("v2", *several("v1", 3)), a.CreateRevision).revision
    assert first == again and len(first) == 10
    other = only(story("v2", deployments=[deployment("v1", 0, revision=first)]), a.CreateRevision).revision
    assert other != first and len(other) == 10


def test_no_old_pod_goes_before_the_surge_pod_serves():
    assert told(story("v2", *several("v1", 3), starting("v2-1"))) == []
    assert told(story("v2", *several("v1", 3), unready("v2-1"))) == []


def test_a_surge_pod_that_serves_frees_one_old_pod_and_no_more():
    s = story("v2", *several("v1", 3), serving("v2-1"))
    assert told(s) == ["withdraw v1-1 (Rollout)"]


def test_two_surge_pods_that_serve_free_two_old_pods_at_once():
    s = story("v2", *several("v1", 3), *several("v2", 2), spec=TWO_SLOTS)
    assert told(s) == ["withdraw v1-1 (Rollout)", "withdraw v1-2 (Rollout)"]


def test_slots_pipeline_the_second_goes_when_its_surge_pod_serves_though_the_first_still_drains():
    s = story("v2", draining("v1-1"), serving("v1-2"), serving("v1-3"), *several("v2", 2), spec=TWO_SLOTS)
    assert told(s) == ["withdraw v1-2 (Rollout)"]


def test_a_draining_pod_holds_its_place_so_no_next_surge_pod_starts():
    s = story("v2", draining("v1-1"), *several("v1", 3)[1:], serving("v2-1"))
    assert told(s) == []
    assert [order.pod for order in plan(s).orders] == ["v1-1"]


def test_a_drained_pod_is_paid_for_and_only_then_the_next_new_one_starts():
    pods = [drained("v1-1"), *several("v1", 3)[1:], serving("v2-1")]
    assert told(story("v2", *pods)) == ["lower v1 to 2"]
    paid = [deployment("v1", 2, released=frozenset({"uid-v1-1"})), deployment("v2", 1)]
    assert told(story("v2", *pods, deployments=paid)) == ["delete v1-1"]
    assert told(story("v2", *pods[1:], deployments=paid)) == ["raise v2 to 2"]


def test_while_a_drained_pod_is_paid_for_no_other_one_is_withdrawn():
    s = story("v2", drained("v1-1"), serving("v1-2"), serving("v1-3"), *several("v2", 2), spec=TWO_SLOTS)
    assert told(s) == ["lower v1 to 2"]


def test_with_surge_a_terminating_pod_no_longer_counts():
    s = story("v2", going(drained("v1-1")), *several("v1", 3)[1:], serving("v2-1"))
    assert told(s) == ["raise v2 to 2"]


def test_without_surge_the_old_pod_goes_first_and_the_new_one_waits_until_it_is_really_gone():
    old, new = several("v1", 3), deployment("v2", 0)
    assert told(story("v2", *old, spec=SERIAL)) == ["create v2 with 0"]
    assert told(story("v2", *old, deployments=[deployment("v1", 3), new], spec=SERIAL)) == ["withdraw v1-1 (Rollout)"]
    two = [deployment("v1", 2, released=frozenset({"uid-v1-1"})), new]
    assert told(story("v2", going(drained("v1-1")), *old[1:], deployments=two, spec=SERIAL)) == []
    assert told(story("v2", *old[1:], deployments=two, spec=SERIAL)) == ["raise v2 to 1"]


def test_without_surge_the_next_old_pod_waits_for_the_new_one():
    s = story("v2", *several("v1", 3)[1:], starting("v2-1"), spec=SERIAL)
    assert told(s) == []
    assert told(story("v2", *several("v1", 3)[1:], serving("v2-1"), spec=SERIAL)) == ["withdraw v1-2 (Rollout)"]


def test_both_amounts_0_resolve_to_one_unavailable():
    both = {"rollout": {"maxSurge": 0, "maxUnavailable": 0}}
    s = story("v2", *several("v1", 3), counts={"v2": 0}, spec=both)
    assert told(s) == ["withdraw v1-1 (Rollout)"]


@pytest.mark.parametrize(("percent", "created"), [("34%", 2), ("33%", 1), ("1%", 1), ("100%", 3)])
def test_a_percentage_of_surge_rounds_up(percent: str, created: int):
    s = story("v2", *several("v1", 3), spec={"rollout": {"maxSurge": percent}})
    assert told(s) == [f"create v2 with {created}"]


@pytest.mark.parametrize(("percent", "gone"), [("33%", 0), ("34%", 1), ("67%", 2), ("100%", 3)])
def test_a_percentage_of_unavailable_rounds_down(percent: str, gone: int):
    s = story("v2", *several("v1", 3), counts={"v2": 1}, spec={"rollout": {"maxUnavailable": percent}})
    assert len(told(s)) == gone


def test_one_replica_is_never_without_a_serving_pod():
    one = {"replicas": 1}
    assert told(story("v2", serving("v1-1"), spec=one)) == ["create v2 with 1"]
    assert told(story("v2", serving("v1-1"), starting("v2-1"), spec=one)) == []
    assert told(story("v2", serving("v1-1"), serving("v2-1"), spec=one)) == ["withdraw v1-1 (Rollout)"]


def test_a_new_pod_counts_only_after_it_was_ready_for_min_ready_seconds():
    slow = {"rollout": {"minReadySeconds": 30}}
    fresh = story("v2", *several("v1", 3), serving("v2-1", ready_since=NOW - 20), spec=slow)
    assert told(fresh) == []
    assert plan(fresh).requeue_after == pytest.approx(10, abs=0.1)
    assert told(story("v2", *several("v1", 3), serving("v2-1", ready_since=NOW - 30), spec=slow)) == [
        "withdraw v1-1 (Rollout)"
    ]


SLOW = {"replicas": 2, "rollout": {"minReadySeconds": 30}}


def test_a_flapping_pod_of_an_abandoned_revision_counts_for_nobody():
    """It goes itself, since it holds the place of the new one, and no other goes on its account."""
    flapping = serving("v2-1", ready_since=NOW - 3)
    s = story("v3", *several("v1", 2), flapping, counts={"v3": 0}, spec=SLOW)
    assert told(s) == ["withdraw v2-1 (Rollout)"]
    steady = story("v3", *several("v1", 2), serving("v2-1"), counts={"v3": 0}, spec=SLOW)
    assert told(steady) == ["withdraw v1-1 (Rollout)"], "one that counts has no less to say than the others"


def test_a_flapping_pod_goes_too_once_the_new_revision_stands():
    flapping = serving("v2-1", ready_since=NOW - 3)
    assert told(story("v3", serving("v1-1"), flapping, serving("v3-1"), spec=SLOW)) == ["withdraw v2-1 (Rollout)"]


def test_a_flapping_pod_stays_where_it_is_one_of_those_that_serve():
    flapping = serving("v2-1", ready_since=NOW - 3)
    down = unready("v1-2", unready_since=NOW - 3)
    assert told(story("v3", serving("v1-1"), down, flapping, counts={"v3": 0}, spec=SLOW)) == []


@pytest.mark.parametrize("wanted", [{"maxSurge": 0, "maxUnavailable": 1}, {"whenNoCapacity": "DrainFirst"}])
def test_a_flapping_pod_is_the_one_that_may_be_missing_where_nobody_can_stand_beside_it(wanted):
    flapping = serving("v1-2", ready_since=NOW - 3)
    spec = {"replicas": 2, "rollout": {"minReadySeconds": 30} | wanted}
    beside = [] if "maxSurge" in wanted else [homeless("v2-1")]
    s = story("v2", serving("v1-1"), flapping, *beside, counts={"v2": len(beside)}, spec=spec)
    assert "withdraw v1-2 (Rollout)" in told(s)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_one_replica_that_flaps_does_not_hold_its_own_successor(replicas):
    spec = {"replicas": replicas, "rollout": {"minReadySeconds": 30, "maxSurge": 0, "maxUnavailable": 1}}
    flapping = several("v1", replicas, ready_since=NOW - 3)
    assert told(story("v2", *flapping, counts={"v2": 0}, spec=spec)) == ["withdraw v1-1 (Rollout)"]


def test_after_a_loss_one_that_has_just_recovered_stays():
    spec = {"rollout": {"minReadySeconds": 30, "maxSurge": 1, "maxUnavailable": 1}}
    lost, recovered = unready("v1-1", unready_since=NOW - 5), serving("v1-2", ready_since=NOW - 5)
    assert told(story("v2", lost, recovered, serving("v1-3"), serving("v2-1"), spec=spec)) == []


def test_old_pods_that_have_just_recovered_are_waited_for():
    """A new one that has not proven itself either is no reason to let one of them go."""
    blinked = several("v1", 2, ready_since=NOW - 20)
    fresh = story("v2", *blinked, serving("v2-1", ready_since=NOW - 10), spec=SLOW)
    assert told(fresh) == []
    assert plan(fresh).requeue_after == pytest.approx(10, abs=0.1)
    # One that has proven itself is: two serve beside it, and two are wanted.
    assert told(story("v2", *blinked, serving("v2-1"), spec=SLOW)) == ["withdraw v1-1 (Rollout)"]


@pytest.mark.parametrize(
    "broken", [crashing("v2-1"), waiting("v2-1"), homeless("v2-1"), starting("v2-1"), unready("v2-1")],
    ids=["crash loop", "no image", "no node", "starting", "not ready"],
)  # fmt: skip
def test_when_the_new_revision_does_not_come_up_no_old_pod_is_drained(broken):
    assert told(story("v2", *several("v1", 3), broken)) == []


def test_a_broken_old_pod_is_kept_too_while_the_new_revision_fails():
    assert told(story("v2", *several("v1", 2), crashing("v1-3"), crashing("v2-1"))) == []


def test_the_next_push_after_a_broken_revision_takes_its_place_at_once():
    s = story("v3", *several("v1", 3), crashing("v2-1"), counts={"v3": 0})
    assert told(s) == ["drained v2-1: NoWork"]
    paid = story("v3", *several("v1", 3), counts={"v2": 0, "v3": 0})
    assert told(paid) == ["raise v3 to 1"]


def test_pushing_the_old_revision_back_drains_nothing_of_it():
    s = story("v1", *several("v1", 3), crashing("v2-1"))
    assert told(s) == ["drained v2-1: NoWork"]


def test_with_an_old_pod_lost_the_rollout_takes_no_serving_pod_until_that_is_mended():
    lost = story("v2", *several("v1", 2), starting("v1-3"), serving("v2-1"))
    assert told(lost) == ["drained v1-3: NoWork"]
    assert told(story("v2", *several("v1", 2), unready("v1-3"), serving("v2-1"))) == ["withdraw v1-3 (Rollout)"]
    assert told(story("v2", *several("v1", 2), serving("v2-1"), counts={"v1": 3})) == []


def test_a_third_revision_drains_both_others_and_running_drains_go_on():
    s = story("v3", draining("v1-1"), serving("v1-2"), serving("v1-3"), serving("v2-1"), counts={"v3": 0})
    assert told(s) == []
    assert [order.pod for order in plan(s).orders] == ["v1-1"]


def test_no_capacity_waits_unless_the_user_lets_a_pod_be_drained_first():
    pods = [*several("v1", 3), homeless("v2-1")]
    assert told(story("v2", *pods)) == []
    assert told(story("v2", *pods, spec={"rollout": {"whenNoCapacity": "DrainFirst"}})) == ["withdraw v1-1 (Rollout)"]


def test_nobody_is_drained_first_for_a_pod_that_waits_for_one_that_goes():
    """With replicas + maxSurge devices: the terminating pod keeps its own for a moment, no other one has to go."""
    pods = [going(serving("v1-1")), *several("v1", 3)[1:], serving("v2-1"), homeless("v2-2")]
    first = {"rollout": {"whenNoCapacity": "DrainFirst"}}
    assert told(story("v2", *pods, spec=first)) == []
    assert told(story("v2", *pods[1:], spec=first)) == ["withdraw v1-2 (Rollout)"]


def test_while_a_pod_is_held_the_rollout_takes_no_other_one():
    """Two slots, and one held: the other one waits too. A scale-in is not a rollout and goes on."""
    held = draining("v1-1", drain=record("v1-1", since=-BUDGET - 9, budget=None))
    pods = [held, *several("v1", 3)[1:], *several("v2", 2)]
    hold: dict[str, Any] = {"rollout": {"maxSurge": 2}, "drain": {"onExpiry": "Hold"}}
    assert told(story("v2", *pods, spec=hold)) == []
    raised = {"rollout": {"maxSurge": 2}, "drain": {"onExpiry": "Hold", "budgetSeconds": BUDGET + 60}}
    assert told(story("v2", *pods, spec=raised)) == ["withdraw v1-2 (Rollout)"]


def test_setting_surge_to_0_in_the_middle_recovers_a_rollout_without_capacity():
    # The homeless pod stays: it will find its node when the drained one is gone.
    assert told(story("v2", *several("v1", 3), homeless("v2-1"), spec=SERIAL)) == ["withdraw v1-1 (Rollout)"]


PAUSED = {"rollout": {"paused": True}}


def test_paused_keeps_old_pods_and_starts_no_new_ones_while_running_drains_go_on():
    assert told(story("v2", *several("v1", 3), spec=PAUSED)) == ["create v2 with 0"]
    assert told(story("v2", *several("v1", 3), counts={"v2": 0}, spec=PAUSED)) == []
    assert told(story("v2", *several("v1", 3), serving("v2-1"), spec=PAUSED)) == []
    running = story("v2", draining("v1-1"), serving("v1-2"), serving("v1-3"), serving("v2-1"), spec=PAUSED)
    assert [order.pod for order in plan(running).orders] == ["v1-1"]


def test_paused_does_not_stop_the_first_creation_nor_a_scale_of_a_whole_service():
    assert told(story("v1", spec=PAUSED)) == ["create v1 with 3"]
    assert told(story("v1", *several("v1", 2), spec=PAUSED)) == ["raise v1 to 3"]
    assert told(story("v1", *several("v1", 4), spec=PAUSED)) == ["withdraw v1-1 (ScaleIn)"]


def test_paused_before_it_began_a_scale_out_takes_the_old_revision():
    s = story("v2", *several("v1", 3), counts={"v2": 0}, spec={**PAUSED, "replicas": 5})
    assert told(s) == ["raise v1 to 5"]


def test_paused_in_its_middle_a_scale_out_takes_the_new_revision():
    s = story("v2", *several("v1", 2), serving("v2-1"), spec={**PAUSED, "replicas": 5})
    assert told(s) == ["raise v2 to 3"]


def test_paused_a_scale_in_takes_old_pods_first():
    s = story("v2", *several("v1", 4), serving("v2-1"), spec={**PAUSED, "replicas": 3})
    assert told(s) == ["withdraw v1-1 (ScaleIn)", "withdraw v1-2 (ScaleIn)"]


def test_paused_before_it_began_a_scale_in_of_less_than_the_surge_is_a_scale_in():
    s = story("v2", *several("v1", 3), counts={"v2": 0}, spec={**PAUSED, "replicas": 2})
    assert told(s) == ["withdraw v1-1 (ScaleIn)"]
    finished = story("v2", *several("v2", 3), spec={**PAUSED, "replicas": 2})
    assert told(finished) == ["withdraw v2-1 (ScaleIn)"]


def test_paused_in_its_middle_the_surge_stays():
    assert told(story("v2", *several("v1", 3), serving("v2-1"), spec=PAUSED)) == []


def test_paused_a_lost_pod_is_made_up_for():
    assert told(story("v2", *several("v1", 2), counts={"v2": 0}, spec=PAUSED)) == ["raise v1 to 3"]


def test_a_revision_at_0_is_written_anew_before_it_is_raised():
    for stale in (deployment("v1", 0, rendered="by an older operator"), deployment("v1", 0, grace_seconds=77)):
        s = story("v1", *several("v2", 3), deployments=[stale, deployment("v2", 3)])
        assert told(s) == ["refresh v1"]
    assert told(story("v1", *several("v2", 3), counts={"v1": 0})) == ["raise v1 to 1"]


def test_a_revision_with_pods_is_never_written_anew():
    stale = deployment("v1", 3, rendered="by an older operator", grace_seconds=77)
    assert told(story("v1", *several("v1", 3), deployments=[stale])) == []


def test_a_service_without_create_is_taken_away_and_comes_back():
    made = story("v1", *several("v1", 3))
    service = {**made.live_service, "metadata": {"name": "chat", "uid": "uid-service"}}
    assert told(story("v1", *several("v1", 3), spec={"service": {"create": False}}, live_service=service)) == [
        "delete Service chat"
    ]
    assert told(story("v1", *several("v1", 3), live_service=None)) == ["apply Service chat"]


def test_a_budget_that_somebody_changed_is_corrected_and_one_with_defaults_added_is_left():
    made = story("v1", *several("v1", 3))
    budget = made.live_budget
    assert budget is not None
    richer = {**budget, "spec": {**budget["spec"], "maxUnavailable": None}}
    lower = {**budget, "spec": {**budget["spec"], "minAvailable": 0}}
    assert told(story("v1", *several("v1", 3), live_budget=richer)) == []
    assert told(story("v1", *several("v1", 3), live_budget=lower)) == ["apply PodDisruptionBudget chat"]


def test_a_child_that_has_to_be_mended_holds_up_no_step():
    s = story("v2", *several("v1", 3), serving("v2-1"), live_budget=None)
    assert told(s) == ["apply PodDisruptionBudget chat", "withdraw v1-1 (Rollout)"]


def test_counts_are_not_acted_on_in_the_same_pass_that_changes_them():
    s = story("v2", *several("v1", 3), drained("v1-4"), serving("v2-1"))
    assert [x for x in told(s) if x.startswith("withdraw")] == []


def test_an_answer_is_asked_for_before_a_victim_is_chosen():
    s = story("v2", *several("v1", 3), serving("v2-1"), readings={"v1-2": None})
    assert told(s) == []
    assert [q.uid for q in plan(s).questions] == ["uid-v1-2"]
    assert plan(s).requeue_after == 5


def test_an_answer_older_than_ten_seconds_is_asked_again():
    pods = several("v1", 3)
    old = {p.name: says(p, at=NOW - 6) for p in pods}
    s = story("v2", *pods, serving("v2-1"), readings=old)
    assert {q.uid for q in plan(s).questions} == {p.uid for p in pods}
    assert told(story("v2", *pods, serving("v2-1"), readings={p.name: says(p, at=NOW - 5) for p in pods})) != []


def test_the_digest_in_the_stories_is_the_operator_s():
    s = story("v1", *several("v1", 3))
    assert s.deployments[0].rendered == objects.digest(objects.Owner("shop", "chat", "uid-chat"), s.spec, "v1")


@pytest.mark.parametrize("since", [NOW - 100, NOW - 3])
def test_old_pods_that_said_that_they_start_are_asked_at_once_and_go_before_a_new_one_serves(since: float):
    """Loading a model takes minutes, and their places may be the ones that the new pods need."""
    pods = [unready(f"v1-{n}", unready_since=since) for n in (1, 2, 3)]
    said = {p.name: says(p, "starting", at=NOW - 90, in_flight=0) for p in pods}
    s = story("v2", *pods, homeless("v2-1"), readings=said)
    assert (told(s), {q.uid for q in plan(s).questions}) == ([], {p.uid for p in pods})
    now = {p.name: replace(said[p.name], at=NOW) for p in pods}
    assert told(story("v2", *pods, homeless("v2-1"), readings=now)) == [f"drained v1-{n}: NoWork" for n in (1, 2, 3)]
    begun = {p.name: says(p, "serving", at=NOW) for p in pods}
    assert told(story("v2", *pods, homeless("v2-1"), readings=begun)) == []
