"""A drain that runs: when it is over, how it ended, and how the drained pod is paid for."""

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
    only,
    record,
    says,
    seen,
    serving,
    several,
    starting,
    story,
    told,
    unready,
    waiting,
)
from tidegate.api.conditions import PodState
from tidegate.core.planner import actions as a
from tidegate.core.planner.plan import plan
from tidegate.core.report import sentences
from tidegate.core.state.snapshot import ContainerStatus, Pod, Reading, Snapshot, Trouble

HOLD = {"drain": {"onExpiry": "Hold"}}


def middle(pod: Pod, reading: Reading | None = None, **fields: object) -> Snapshot:
    """The middle of a rollout: one old pod drains, two serve, the new one serves."""
    said = {pod.name: reading} if reading is not None else {}
    return story("v2", pod, serving("v1-2"), serving("v1-3"), serving("v2-1"), readings=said, **fields)


def ended(s: Snapshot) -> tuple[str, int | None, float]:
    outcome = only(s, a.MarkDrained).outcome
    return outcome.outcome, outcome.cut, outcome.seconds


def test_the_record_of_a_drain_says_who_why_since_and_until_when():
    s = story("v2", *several("v1", 3), serving("v2-1"))
    begun = only(s, a.Withdraw).record
    assert (begun.instance, begun.reason, begun.since) == ("run-v1-1", "Rollout", NOW)
    assert (begun.deadline, begun.budget) == (NOW + BUDGET, BUDGET)


def test_the_id_of_a_drain_follows_from_pod_and_time():
    s = story("v1", *several("v1", 3), spec={"replicas": 1})
    first, second = (action.record.id for action in plan(s).actions if isinstance(action, a.Withdraw))
    assert first != second
    again = [action.record.id for action in plan(s).actions if isinstance(action, a.Withdraw)]
    assert again == [first, second]
    assert plan(replace(s, now=NOW + 1)).actions[0].record.id not in again


def test_the_order_to_the_session_carries_every_number_of_the_contract():
    pod = draining("v1-1")
    numbers = {"propagationSeconds": 6, "quietSeconds": 3, "flushSeconds": 4, "stalledAfterSeconds": 90}
    (order,) = plan(middle(pod, spec={"drain": numbers})).orders
    assert (order.uid, order.ip, order.port, order.record) == (pod.uid, pod.ip, 9901, pod.drain)
    assert (order.propagation_seconds, order.quiet_seconds) == (6, 3)
    assert (order.flush_seconds, order.stalled_after_seconds, order.undo) == (4, 90, False)


def test_a_drain_is_over_when_the_pod_says_sealed_under_our_id():
    pod = draining("v1-1")
    assert ended(middle(pod, says(pod, "sealed"))) == ("Drained", 0, 60)


@pytest.mark.parametrize(
    "answer",
    [
        {"state": "draining", "in_flight": 0},
        {"state": "serving", "in_flight": 0},
        {"state": "sealed", "drain_id": "somebody else's"},
        {"state": "sealed", "drain_id": None},
    ],
    ids=["draining and empty", "serving and empty", "sealed under another id", "sealed under no id"],
)
def test_nothing_else_is_a_finished_drain(answer: dict[str, object]):
    pod = draining("v1-1")
    assert told(middle(pod, replace(says(pod), **answer))) == []


@pytest.mark.parametrize(("since", "over"), [(-4, False), (-5.9, False), (-6, True)])
def test_sealed_before_the_propagation_time_is_not_believed(since: float, over: bool):
    pod = draining("v1-1", drain=record("v1-1", since=since))  # the answer is a second old
    assert bool(told(middle(pod, says(pod, "sealed")))) is over


def test_sealed_by_another_process_means_that_the_first_one_vanished_with_what_it_had():
    pod = draining("v1-1")
    assert ended(middle(pod, says(pod, "sealed", instance="run-2"))) == ("Vanished", None, 60)


def test_a_drain_begun_with_an_unknown_instance_takes_the_first_that_answers():
    pod = draining("v1-1", drain=replace(record("v1-1"), instance=None))
    assert ended(middle(pod, says(pod, "sealed", instance="run-2")))[0] == "Drained"


RESTARTED = starting("v1-1", container=ContainerStatus(running=True, restarts=1, exit_code=137))
EXITED = waiting("v1-1", container=ContainerStatus(exit_code=0))


@pytest.mark.parametrize(
    "pod", [crashing("v1-1"), RESTARTED, EXITED, waiting("v1-1"), starting("v1-1")],
    ids=["crash", "restart", "exit", "image", "start"],
)  # fmt: skip
def test_a_container_that_died_in_its_drain_vanished_with_what_it_had(pod: Pod):
    dead = replace(pod, state="draining", drain=record("v1-1"))
    assert ended(middle(dead)) == ("Vanished", None, 60)
    # Hung when it was withdrawn, it could not say who it was, and may have held forty streams.
    never_asked = replace(dead, drain=replace(record("v1-1"), instance=None))
    ran = pod.container.exit_code is not None
    assert ended(middle(never_asked)) == (("Vanished", None, 60) if ran else ("NoWork", 0, 60))


def test_one_other_container_that_still_runs_proves_nothing_about_the_serving_one():
    sidecar_only = replace(crashing("v1-1"), any_running=True, state="draining", drain=record("v1-1"))
    assert ended(middle(sidecar_only))[0] == "Vanished"


def test_silence_is_not_an_empty_pod():
    pod = draining("v1-1")
    silent = story("v2", pod, *several("v1", 3)[1:], serving("v2-1"), readings={"v1-1": None})
    assert told(silent) == []
    troubled = replace(silent, troubles={pod.uid: Trouble(NOW - 1, "timeout", "no answer in time")})
    assert told(troubled) == [] and len(plan(troubled).orders) == 1


def test_a_pod_that_answers_starting_and_is_not_ready_holds_nothing_but_only_for_a_second():
    fresh = starting("v1-4", container=serving("x-1").container)
    empty = says(fresh, "starting", in_flight=0)
    s = story("v1", *several("v1", 3), fresh, readings={"v1-4": empty})
    assert told(s) == ["drained v1-4: NoWork"]
    older = story("v1", *several("v1", 3), fresh, readings={"v1-4": replace(empty, at=NOW - 1.1)})
    assert told(older) == ["withdraw v1-4 (ScaleIn)"]
    for held in (1, None):
        # Its engine has closed its port, and generates still.
        busy = story("v1", *several("v1", 3), fresh, readings={"v1-4": replace(empty, in_flight=held)})
        assert told(busy) == ["withdraw v1-4 (ScaleIn)"]
    ready = serving("v1-4")
    lies = story("v1", *several("v1", 3), ready, readings={"v1-4": says(ready, "starting", in_flight=0)})
    assert told(lies) == ["withdraw v1-4 (ScaleIn)"]


def spent(seconds_over: float) -> Pod:
    """Its deadline was so long ago."""
    return draining("v1-1", drain=record("v1-1", since=-BUDGET - seconds_over))


def test_release_waits_for_the_deadline_and_two_seconds_more_for_the_last_word():
    assert told(middle(spent(1.9))) == []
    assert plan(middle(spent(1.5))).requeue_after == pytest.approx(0.5)
    assert told(middle(spent(2)))[0] == "drained v1-1: Expired"


def test_an_expired_drain_counts_what_was_cut_and_what_was_still_there():
    pod = spent(3)
    said = says(pod, in_flight=2, cut=1, oldest_seconds=590.04, at=NOW - 4)
    outcome = only(middle(pod, said), a.MarkDrained).outcome
    assert (outcome.outcome, outcome.cut, outcome.oldest_cut_seconds, outcome.seconds) == ("Expired", 3, 590.0, 603)


def test_an_expired_drain_of_a_pod_that_has_long_been_silent_counts_nobody():
    pod = spent(3)
    assert ended(middle(pod, says(pod, in_flight=2, at=NOW - 60))) == ("Expired", None, BUDGET + 3)


def test_what_a_new_process_says_at_the_deadline_is_not_about_the_requests_of_the_one_before():
    pod = spent(3)
    assert ended(middle(pod, says(pod, in_flight=0, instance="another run")))[:2] == ("Expired", None)


@pytest.mark.parametrize("state", ["draining", "sealed"])
def test_a_pod_that_does_not_say_what_it_cut_is_not_one_that_cut_nothing(state: str):
    pod = spent(3)
    assert ended(middle(pod, says(pod, state, cut=None)))[1] is None


def test_sealed_at_the_deadline_with_requests_cut_is_expired_and_with_none_cut_drained():
    pod = spent(1)
    cut = says(pod, "sealed", cut=2, oldest_cut_seconds=601.0)
    outcome = only(middle(pod, cut), a.MarkDrained).outcome
    assert (outcome.outcome, outcome.cut, outcome.oldest_cut_seconds) == ("Expired", 2, 601.0)
    assert ended(middle(pod, says(pod, "sealed"))) == ("Drained", 0, BUDGET + 1)


def test_a_request_cut_long_before_the_deadline_does_not_make_it_expired():
    pod = draining("v1-1")
    assert ended(middle(pod, says(pod, "sealed", cut=1))) == ("Drained", 1, 60)


def test_hold_never_lets_go_by_itself():
    pod = draining("v1-1", drain=record("v1-1", since=-100 * BUDGET, budget=None))
    assert told(middle(pod, spec=HOLD)) == []
    assert ended(middle(pod, says(pod, "sealed"), spec=HOLD))[0] == "Drained"


def test_a_changed_budget_moves_running_deadlines():
    s = middle(draining("v1-1"), spec={"drain": {"budgetSeconds": 900}})
    moved = only(s, a.UpdateDrain)
    assert (moved.record.id, moved.record.since) == (moved.old.id, moved.old.since)
    assert (moved.record.deadline, moved.record.budget) == (NOW - 60 + 900, 900)
    assert plan(s).orders[0].record == moved.record


def test_hold_takes_the_deadline_away_and_release_gives_one_back():
    assert only(middle(draining("v1-1"), spec=HOLD), a.UpdateDrain).record.deadline is None
    held = draining("v1-1", drain=record("v1-1", budget=None))
    assert only(middle(held), a.UpdateDrain).record.deadline == NOW - 60 + BUDGET


def test_a_budget_that_is_already_spent_leaves_time_to_deliver_the_tokens():
    held = draining("v1-1", drain=record("v1-1", since=-5000, budget=None))
    assert only(middle(held), a.UpdateDrain).record.deadline == NOW + 5 + 1


def test_once_tokens_were_sent_the_deadline_stays():
    longer = {"drain": {"budgetSeconds": 900}}
    assert told(middle(spent(-5), spec=longer)) == []
    assert told(middle(spent(-5.1), spec=longer)) == ["update drain of v1-1"]
    pod = draining("v1-1")
    assert told(middle(pod, says(pod, cut=1), spec=longer)) == []


def test_breaking_the_glass_lets_a_draining_pod_go_with_what_it_has():
    """Which may still end in place, within the grace period: nothing is said to be cut that nobody saw cut."""
    pod = draining("v1-1", release="node is on fire")
    outcome = only(middle(pod, says(pod, in_flight=4, oldest_seconds=12.0)), a.MarkDrained).outcome
    assert (outcome.outcome, outcome.cut, outcome.oldest_cut_seconds) == ("Released", None, None)
    silent = story("v2", pod, *several("v1", 3)[1:], serving("v2-1"), readings={"v1-1": None})
    assert ended(silent) == ("Released", None, 60)


def stray(since: float = -30, **answer: object) -> Snapshot:
    """A pod labelled serving that turned NotReady half a minute ago, and what it says."""
    pod = unready("v1-3", unready_since=NOW + since)
    said = says(pod, **answer) if answer else None
    return story("v1", *several("v1", 2), pod, readings={"v1-3": said})


def test_a_serving_pod_that_turned_not_ready_is_asked_once():
    assert [q.uid for q in plan(stray()).questions] == ["uid-v1-3"]
    assert plan(stray(state="serving")).questions == ()
    before = plan(stray(state="serving", at=NOW - 31))
    assert [q.uid for q in before.questions] == ["uid-v1-3"]


def test_a_pod_that_somebody_else_drains_is_undrained_under_that_id():
    decided = plan(stray(state="draining", drain_id="a stranger's"))
    assert told(decided) == []
    (order,) = decided.orders
    assert (order.pod, order.record.id, order.undo) == ("v1-3", "a stranger's", True)


def test_one_that_is_sealed_is_drained_properly_and_so_replaced():
    assert told(stray(state="sealed", drain_id=None)) == ["withdraw v1-3 (Manual)"]


def test_one_whose_container_a_probe_has_killed_is_left_to_the_kubelet_for_as_long_as_its_hook_may_run():
    """It serves again by itself; only what drains beyond the grace period was drained by somebody."""
    grace = deployment("v1", 3).grace_seconds
    early = plan(stray(state="draining", drain_id=None))
    assert (told(early), early.questions) == ([], ())
    assert early.requeue_after == pytest.approx(grace + 2 - 30)
    late = stray(-grace - 30, state="draining", drain_id=None)
    assert told(late) == ["withdraw v1-3 (Manual)"]
    unheard = plan(stray(-grace - 30, state="draining", drain_id=None, at=NOW - 60))
    assert (told(unheard), [q.uid for q in unheard.questions]) == ([], ["uid-v1-3"])


def paid(count: int, *uids: str) -> list:
    return [deployment("v1", count, released=frozenset(uids)), deployment("v2", 1)]


def test_two_drained_pods_are_paid_for_in_one_write():
    s = story("v2", drained("v1-1"), drained("v1-2"), serving("v1-3"), *several("v2", 2), spec={"replicas": 2})
    scale = only(s, a.Scale)
    assert (scale.replicas, scale.released) == (1, {"uid-v1-1", "uid-v1-2"})


def test_a_drained_pod_is_paid_for_once_and_a_pod_lost_beside_it_is_not():
    # From counts alone a successor could not tell "lowered" from "lowered and one pod lost".
    s = story("v2", drained("v1-1"), serving("v1-2"), serving("v2-1"), deployments=paid(2, "uid-v1-1"))
    assert "lower" not in " ".join(told(s))
    second = story(
        "v2", drained("v1-1"), drained("v1-2"), serving("v1-3"), serving("v2-1"), deployments=paid(2, "uid-v1-1")
    )
    scale = only(second, a.Scale)
    assert (scale.replicas, scale.released) == (1, {"uid-v1-1", "uid-v1-2"})


def test_a_drain_past_its_deadline_that_nobody_has_asked_yet_is_looked_at_in_seconds_not_at_once():
    late = draining("v1-1", drain=record("v1-1", since=-BUDGET - 30))
    decided = plan(story("v2", late, *several("v1", 3)[1:], serving("v2-1"), readings={"v1-1": None}))
    assert told(decided) == []
    assert decided.requeue_after is not None and decided.requeue_after >= 1


def test_of_two_drained_at_once_the_one_that_went_unpaid_is_paid_for_while_the_paid_one_stands():
    # The ReplicaSet took v1-2 for the lowering that paid for v1-1: deleting v1-1 too would start a pod.
    mistaken = story("v2", drained("v1-1"), going(drained("v1-2")), serving("v2-1"), deployments=paid(1, "uid-v1-1"))
    scale = only(mistaken, a.Scale)
    assert (scale.replicas, scale.released) == (0, {"uid-v1-1", "uid-v1-2"})


def test_one_that_went_unpaid_is_paid_for_together_with_those_that_stand():
    """In the next pass v1-2 would be gone, and v1-1 would be deleted: its ReplicaSet would start a pod in its place."""
    pods = (drained("v1-1"), going(drained("v1-2")), drained("v1-3"), drained("v1-4"), serving("v2-1"))
    scale = only(story("v2", *pods, deployments=paid(3, "uid-v1-1")), a.Scale)
    assert (scale.replicas, scale.released) == (0, {f"uid-v1-{n}" for n in range(1, 5)})
    # Its ReplicaSet has not taken anybody for v1-1 yet: v1-2 was deleted by somebody else, and is replaced.
    still = story("v2", *pods, deployments=paid(2, "uid-v1-1"))
    assert only(still, a.Scale).released == {f"uid-v1-{n}" for n in (1, 3, 4)}


def test_a_drained_pod_that_was_evicted_and_replaced_is_not_paid_for():
    replaced = [drained("v1-1"), going(drained("v1-2")), serving("v1-3"), serving("v2-1")]
    assert told(story("v2", *replaced, deployments=paid(1, "uid-v1-1")))[0] == "delete v1-1"
    assert "lower" not in " ".join(told(story("v2", *replaced[1:], deployments=paid(1))))


def test_uids_of_pods_that_are_gone_are_dropped_from_what_is_paid():
    s = story("v2", drained("v1-1"), *several("v1", 3)[1:], serving("v2-1"), deployments=paid(3, "uid-long-gone"))
    assert only(s, a.Scale).released == {"uid-v1-1"}


def test_a_count_never_falls_below_0():
    s = story("v2", drained("v1-1"), *several("v2", 3), deployments=[deployment("v1", 0), deployment("v2", 3)])
    scale = only(s, a.Scale)
    assert (scale.replicas, scale.released) == (0, {"uid-v1-1"})


def standing(*sets) -> Snapshot:
    pods = [drained("v1-1"), *several("v1", 3)[1:], serving("v2-1")]
    held = paid(2, "uid-v1-1")
    return story("v2", *pods, deployments=held, replica_sets=tuple(sets))


def test_a_paid_pod_is_deleted_only_when_its_replica_set_has_seen_the_lower_count():
    rs = seen(paid(2)[0])
    assert told(standing(rs)) == ["delete v1-1"]
    assert told(standing(replace(rs, observed=False))) == []
    assert told(standing(replace(rs, replicas=3))) == []
    assert told(standing()) == []
    assert told(standing(replace(rs, deployment_uid="somebody else's"))) == []


def test_while_a_template_changes_the_counts_of_all_replica_sets_decide():
    rs = seen(paid(2)[0])
    assert told(standing(rs, replace(rs, uid="second", replicas=1))) == []
    assert told(standing(rs, replace(rs, uid="second", replicas=0))) == ["delete v1-1"]


NO_WORK = "its container is not running (CrashLoopBackOff)"
RESTARTED = "its process restarted during the drain"


def why_drained(s: Snapshot) -> str:
    """What is told of the end of the one drain that ends."""
    action = only(s, a.MarkDrained)
    return sentences.cause(action.outcome.outcome, action.cause)


@pytest.mark.parametrize(
    ("pod", "fields", "why"),
    [
        (crashing("v1-1"), {}, f"because {NO_WORK}"),
        (starting("v1-1"), {}, "because its container has not started yet"),
        (unready("v1-1"), {"state": "starting", "in_flight": 0}, "because it reports that it is still starting"),
        (replace(crashing("v1-1"), state=PodState.DRAINING, drain=record("v1-1")), {}, f"because {NO_WORK}"),
        (draining("v1-1"), {"state": "sealed", "instance": "another"}, f"because {RESTARTED}"),
        (draining("v1-1"), {"state": "sealed"}, ""),
    ],
    ids=["crash loop", "starting", "says that it starts", "crashed in its drain", "restarted", "drained"],
)
def test_what_ended_a_drain_is_told_where_it_was_not_its_requests(pod: Pod, fields: dict[str, Any], why: str):
    assert why_drained(middle(pod, says(pod, **{"at": NOW} | fields))) == why


def test_a_spent_budget_is_told_with_what_kept_the_pod_from_answering():
    pod = draining("v1-1", drain=record("v1-1", since=-BUDGET - 60))
    s = middle(pod, says(pod))
    assert why_drained(s) == "because its drain budget was spent"
    deaf = replace(s, troubles={"uid-v1-1": Trouble(NOW - 1, "timeout", "connected, but no answer in time")})
    told_ = "because its drain budget was spent; the pod did not answer (connected, but no answer in time)"
    assert why_drained(deaf) == told_
