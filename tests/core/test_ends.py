"""Pods that others evict or delete: who is still asked, when the end is told, and what is known of it then."""

from dataclasses import replace
from typing import Any

import pytest

from core.stories import NOW, PROPAGATION, drained, draining, record, says, serving, several, starting, story, waiting
from tidegate.api.conditions import BlockedReason, Reason
from tidegate.core.planner import ends
from tidegate.core.planner.plan import Plan, plan
from tidegate.core.report import events
from tidegate.core.report.status import status
from tidegate.core.state import times
from tidegate.core.state.snapshot import ContainerStatus, Pod, Reading, Snapshot, Trouble

GRACE = 140.0


def taken(pod: Pod, *, ago: float = 60.0, **fields: Any) -> Pod:
    """Deleted so many seconds ago, and it runs on."""
    at = NOW - ago
    known = {"terminating": True, "ready_since": None, "deleted_at": at, "terminates_by": at + GRACE}
    return replace(pod, **(known | fields))


def over(pod: Pod, **fields: Any) -> Pod:
    """Its last container has ended a second ago."""
    ended = ContainerStatus(exit_code=0, exited_at=NOW - 1)
    return replace(pod, **({"any_running": False, "container": ended} | fields))


OLD = taken(draining("v1-1"))
SERVED = taken(serving("v1-1"))
EVICTED = replace(SERVED, disruption="EvictionByEvictionAPI")


def middle(pod: Pod | None, said: Reading | None = None, *, seen: Pod | None = None, **fields: Any) -> Snapshot:
    """This pod, and two that serve; `seen` is what was there when the operator last looked."""
    last = seen or pod
    pods = [serving("v1-2"), serving("v1-3")] if pod is None else [pod, serving("v1-2"), serving("v1-3")]
    made = story("v1", *pods, **({"counts": {"v1": 3}} | fields))
    heard = {} if said is None or last is None else {last.uid: said}
    return replace(made, readings=heard, last_seen={} if last is None else {last.uid: last})


def the_end(s: Snapshot) -> ends.End:
    (end,) = plan(s).ends
    return end


def found(s: Snapshot) -> tuple[str, str, int | None, int | None]:
    o = the_end(s).outcome
    return o.outcome, o.reason, o.cut, o.in_flight


@pytest.mark.parametrize("pod", [OLD, SERVED, EVICTED], ids=["draining", "deleted", "evicted"])
def test_a_pod_that_goes_is_asked_and_listed_until_its_last_container_has_ended(pod: Pod):
    said = says(pod, "draining", in_flight=2)
    decided = plan(middle(pod, said))
    assert decided.ends == ()
    (order,) = decided.orders
    assert (order.pod, order.watch) == ("v1-1", pod is not OLD)
    (row,) = status(decided).document()["pods"]
    assert (row["name"], row["inFlight"], row["state"]) == ("v1-1", 2, pod.state)
    assert row["deadline"] == times.short(NOW - 60 + GRACE)
    ended = plan(middle(over(pod), said))
    assert ended.orders == () and len(ended.ends) == 1
    assert "pods" not in status(ended).document() or status(ended).document()["pods"] == []


def test_another_container_that_runs_is_waited_for_since_it_may_be_the_one_that_counts():
    sidecar = over(SERVED, any_running=True)
    assert plan(middle(sidecar, says(SERVED, "draining"))).ends == ()
    assert len(plan(middle(sidecar, says(SERVED, "draining"))).orders) == 1


@pytest.mark.parametrize(
    ("pod", "reason"),
    [(EVICTED, "NodeDrain"), (SERVED, "Deleted"), (replace(SERVED, terminating=False, phase="Failed"), "NodeDrain")],
    ids=["evicted", "deleted", "failed"],
)
def test_why_a_pod_goes_is_told_by_its_condition_and_its_phase(pod: Pod, reason: str):
    assert found(middle(over(pod), says(pod, "sealed")))[:2] == ("Drained", reason)


def test_a_drain_keeps_the_reason_for_which_it_began():
    evicted = replace(over(OLD), disruption="EvictionByEvictionAPI")
    assert found(middle(evicted, says(OLD, "sealed")))[:2] == ("Drained", "Rollout")


LATE = {"at": NOW - 2}
KNOWN: dict[str, tuple[dict[str, Any], int | None, int | None]] = {
    "sealed": ({"state": "sealed", "cut": 2}, 2, None),
    "sealed, none cut": ({"state": "sealed"}, 0, None),
    "sealed long before it ended": ({"state": "sealed", "cut": 1, "at": NOW - 50}, 1, None),
    "empty after the propagation time": ({"state": "draining", "in_flight": 0}, 0, None),
    "empty, tokens sent": ({"state": "draining", "in_flight": 0, "cut": 3}, 3, None),
    "busy": ({"state": "draining", "in_flight": 2, "cut": 1}, None, 2),
    "empty long before it ended": ({"state": "draining", "in_flight": 0, "at": NOW - 20}, None, 0),
    "empty, and it took more": ({"state": "serving", "in_flight": 0}, None, 0),
    "said before it was deleted": ({"state": "sealed", "at": NOW - 90}, None, None),
    "it does not say what it cut": ({"state": "sealed", "cut": None}, None, 0),
    "it cannot count": ({"state": "draining", "in_flight": None}, None, None),
}


@pytest.mark.parametrize(("fields", "cut", "in_flight"), KNOWN.values(), ids=KNOWN.keys())
def test_what_was_cut_is_known_by_the_pod_s_last_word_alone(fields: dict[str, Any], cut: int | None, in_flight: Any):
    said = says(SERVED, **fields)
    got = found(middle(over(SERVED, terminates_by=NOW), said))
    assert got[2:] == (cut, in_flight)
    assert (got[0] == "Vanished") == (cut is None)


@pytest.mark.parametrize(("after", "cut"), [(PROPAGATION - 1, None), (PROPAGATION, 0)], ids=["may", "cannot"])
def test_an_empty_pod_to_which_requests_may_still_come_is_not_known_to_have_ended_empty(after: int, cut: int | None):
    pod = over(taken(serving("v1-1"), ago=9))
    assert found(middle(pod, says(pod, "draining", in_flight=0, at=NOW - 9 + after)))[2] == cut


def test_nothing_heard_is_not_nothing_cut():
    assert found(middle(over(SERVED))) == ("Vanished", "Deleted", None, None)


def test_what_a_process_says_that_restarted_is_not_about_the_requests_of_the_one_before():
    said = says(OLD, "sealed", instance="another run")
    assert found(middle(over(OLD), said))[0] == "Vanished"


@pytest.mark.parametrize(("at", "outcome"), [(NOW - 2, "Expired"), (NOW - 50, "Drained")], ids=["at its end", "before"])
def test_what_is_cut_at_the_end_of_the_grace_period_is_expired(at: float, outcome: str):
    pod = over(SERVED, terminates_by=NOW)
    assert found(middle(pod, says(SERVED, "sealed", cut=1, at=at)))[:3] == (outcome, "Deleted", 1)


def test_a_pod_that_is_gone_before_anybody_saw_it_go_is_told_too():
    seen = serving("v1-1")
    assert found(middle(None, seen=seen)) == ("Vanished", "Deleted", None, None)
    sealed = says(OLD, "sealed", cut=0)
    assert found(middle(None, sealed, seen=OLD)) == ("Drained", "Rollout", 0, None)


@pytest.mark.parametrize(
    "pod",
    [starting("v1-1"), waiting("v1-1"), drained("v1-1"), replace(serving("v1-1"), release="on my own head")],
    ids=["starting", "not running", "drained", "released"],
)
def test_who_is_not_remembered_since_nothing_is_to_be_told(pod: Pod):
    decided = plan(story("v1", pod, *several("v1", 3)[1:]))
    assert pod.uid not in decided.remembered
    assert set(decided.remembered) == {"uid-v1-2", "uid-v1-3"}


def test_a_pod_that_was_never_ready_got_no_requests_and_one_that_was_may_hold_them_still():
    unready = replace(serving("v1-1"), ready_since=None)
    s = story("v1", unready, *several("v1", 3)[1:])
    assert unready.uid not in plan(s).remembered
    assert unready.uid in plan(replace(s, last_seen={unready.uid: serving("v1-1")})).remembered


def after(s: Snapshot, decided: Plan, **changes: Any) -> Snapshot:
    """The next pass of the same operator, when this one has reported."""
    return replace(s, now=s.now + 1, status=status(decided), last_seen=decided.remembered, **changes)


def test_an_end_is_told_once_while_its_pod_stands_and_when_it_is_gone():
    first = middle(over(SERVED), says(SERVED, "sealed"))
    decided = plan(first)
    second = after(first, decided)
    third = after(second, plan(second), pods=second.pods[1:])
    assert [len(plan(s).ends) for s in (first, second, third)] == [1, 0, 0]
    assert [row.pod for row in status(plan(third)).outcomes] == ["v1-1"]
    # Another operator has told it meanwhile.
    assert plan(replace(second, last_seen=first.last_seen)).ends == ()


def test_one_that_is_remembered_and_listed_is_told_once():
    going = middle(SERVED, says(SERVED, "draining"))
    listed = after(going, plan(going))
    assert [row.name for row in listed.status.pods] == ["v1-1"]
    assert len(plan(replace(listed, pods=(over(SERVED), *listed.pods[1:]))).ends) == 1


def test_an_end_that_was_not_reported_is_told_by_the_successor_and_then_as_unknown():
    going = middle(SERVED, says(SERVED, "draining", in_flight=4))
    listed = after(going, plan(going))
    ended = replace(listed, pods=(over(SERVED), *listed.pods[1:]), last_seen={}, readings={})
    assert found(ended) == ("Vanished", "Deleted", None, 4)
    gone = replace(ended, pods=ended.pods[1:])
    assert found(gone) == ("Vanished", "Deleted", None, 4)
    told = after(gone, plan(gone))
    assert plan(told).ends == () and [row.reason for row in told.status.outcomes] == ["Deleted"]


def test_a_successor_asks_a_pod_that_its_predecessor_has_listed():
    going = middle(SERVED, says(SERVED, "draining", in_flight=4))
    engine_gone = replace(SERVED, container=ContainerStatus(exit_code=0))
    listed = replace(after(going, plan(going)), pods=(engine_gone, *going.pods[1:]), last_seen={}, readings={})
    assert [order.pod for order in plan(listed).orders] == ["v1-1"]


DONE = {"targetRevision": "chat-v2", "rollout": {"startedAt": times.text(NOW - 300)}}


@pytest.mark.parametrize("pod", [OLD, SERVED], ids=["draining", "serving"])
def test_a_rollout_is_complete_when_no_old_pod_streams_any_more(pod: Pod):
    whole = story("v2", pod, *several("v2", 3), counts={"v1": 0}, status=DONE, readings={"v1-1": says(pod, "draining")})
    decided = plan(replace(whole, last_seen={pod.uid: pod}))
    assert decided.remaining is Reason.ROLLING_OUT
    assert status(decided).document()["rollout"].get("finishedAt") is None
    draining_ = decided.blocked_by(BlockedReason.DRAINING)
    assert draining_ is not None and [p.name for p in draining_.pods] == ["v1-1"]
    ended = plan(replace(whole, pods=(over(pod), *whole.pods[1:]), last_seen={pod.uid: pod}))
    assert status(ended).document()["rollout"]["finishedAt"]


def test_a_pod_of_a_dead_node_holds_no_rollout_for_ever_and_is_not_asked_for_ever():
    stuck = taken(draining("v1-1"), ago=GRACE + 31)
    whole = story("v2", stuck, *several("v2", 3), counts={"v1": 0}, status=DONE)
    lost = replace(whole, readings={}, troubles={stuck.uid: Trouble(NOW - 1, "timeout", "no answer")})
    assert status(plan(lost)).document()["rollout"]["finishedAt"]
    assert plan(lost).orders == () and plan(lost).ends == ()
    within = taken(draining("v1-1"), ago=GRACE + 29)
    waited = replace(lost, pods=(within, *lost.pods[1:]))
    assert plan(waited).remaining is Reason.ROLLING_OUT and len(plan(waited).orders) == 1


def test_a_pod_that_is_evicted_while_the_service_stands_holds_up_nothing():
    decided = plan(middle(EVICTED, says(EVICTED, "draining")))
    assert decided.blocked_by(BlockedReason.DRAINING) is None


def test_the_drain_of_an_evicted_pod_is_a_sample_and_its_cut_is_not_the_budget_s():
    pod = over(OLD, terminates_by=NOW)
    cut = plan(middle(pod, says(OLD, "sealed", cut=2, busy_at=NOW - 2)))
    learnt = cut.learnt
    assert learnt is not None and (learnt.drains.n, learnt.expired_share) == (1, 0)
    assert the_end(middle(pod, says(OLD, "sealed", cut=2, busy_at=NOW - 2))).outcome.censored
    whole = the_end(middle(pod, says(OLD, "sealed", busy_at=NOW - 5, idle_since=NOW - 4))).outcome
    assert (whole.drain_seconds, whole.censored) == (60 - 4 - PROPAGATION, False)
    assert plan(middle(over(SERVED), says(SERVED, "sealed"))).learnt is None


def test_a_label_set_by_hand_and_deleted_before_it_had_a_record():
    by_hand = replace(draining("v1-1"), drain=None)
    pod = over(taken(by_hand))
    assert found(middle(pod, says(by_hand, "sealed", drain_id=None)))[:3] == ("Drained", "Manual", 0)


WORDS = {
    "evicted, none cut": (EVICTED, {"state": "sealed"}, "NodeDrain", False,
        "Pod v1-1: Drained after 60 s, 0 requests cut; it was evicted (EvictionByEvictionAPI) while it served."),
    "deleted, cut": (SERVED, {"state": "sealed", "cut": 2}, "Deleted", True,
        "Pod v1-1: Expired after 60 s, 2 requests cut; it was deleted while it served and its grace period was over."),
    "unknown": (SERVED, {"state": "draining", "in_flight": 3, "at": NOW - 12}, "Deleted", True,
        "Pod v1-1: Vanished, deleted while it served; the number of cut requests is unknown; by its last answer 12 s "
        "ago, 3 in flight."),
    "its drain": (OLD, {"state": "sealed", "cut": 1}, "Drained", True,
        "Pod v1-1: Expired after 60 s, 1 request cut, because its grace period was over; it was deleted during its "
        "drain."),
    "its drain, unknown": (OLD, {"state": "draining", "in_flight": None}, "Vanished", True,
        "Pod v1-1: Vanished during its drain; the number of cut requests is unknown."),
}  # fmt: skip


@pytest.mark.parametrize(("pod", "fields", "reason", "warning", "words"), WORDS.values(), ids=WORDS.keys())
def test_the_end_is_an_event(pod: Pod, fields: dict[str, Any], reason: str, warning: bool, words: str):
    event = events.ended(the_end(middle(over(pod, terminates_by=NOW), says(pod, **fields))))
    assert (event.reason, event.warning, event.message) == (reason, warning, words)


def test_the_record_of_a_drain_that_was_never_answered_is_kept():
    never = taken(draining("v1-1", drain=replace(record("v1-1"), instance=None)))
    assert found(middle(over(never)))[:3] == ("Vanished", "Rollout", None)
