"""Scale in, out, to 0 and back: which pods go, in which order, and which may stay after all."""

from core.stories import (
    NOW,
    crashing,
    deployment,
    drained,
    draining,
    going,
    only,
    record,
    says,
    serving,
    several,
    starting,
    story,
    told,
    unready,
)
from tidegate.core.planner import actions as a
from tidegate.core.planner.plan import plan
from tidegate.core.state.snapshot import Trouble


def to(replicas: int, **rollout: object) -> dict[str, object]:
    return {"replicas": replicas, "rollout": rollout}


def busy(*pods, **in_flight: int):
    """Readings by pod name, the keys written v1_1 for v1-1."""
    by_name = {p.name: p for p in pods}
    return {n.replace("_", "-"): says(by_name[n.replace("_", "-")], in_flight=c) for n, c in in_flight.items()}


def test_scale_out_raises_the_count_by_all_that_are_missing():
    assert told(story("v1", *several("v1", 2), spec=to(5))) == ["raise v1 to 5"]


def test_scale_in_withdraws_the_surplus_and_the_count_falls_only_when_it_is_drained():
    assert told(story("v1", *several("v1", 3), spec=to(2))) == ["withdraw v1-1 (ScaleIn)"]
    assert told(story("v1", draining("v1-1"), *several("v1", 3)[1:], spec=to(2))) == []
    done = drained("v1-1", reason="ScaleIn")
    assert told(story("v1", done, *several("v1", 3)[1:], spec=to(2))) == ["lower v1 to 2"]


def test_a_surplus_pod_that_flaps_goes_first_since_nobody_counts_on_it():
    """It is never Ready for long enough to be to spare, and a broken service could not be switched off."""
    flapping = serving("v1-3", ready_since=NOW - 5)
    steady = to(2, minReadySeconds=30)
    assert told(story("v1", *several("v1", 2), flapping, spec=steady)) == ["withdraw v1-3 (ScaleIn)"]
    assert told(story("v1", flapping, spec=to(0, minReadySeconds=30))) == ["withdraw v1-3 (ScaleIn)"]
    blinked = several("v1", 3, ready_since=NOW - 5)
    assert told(story("v1", *blinked, spec=steady)) == ["withdraw v1-1 (ScaleIn)"]


def test_scale_in_by_several_starts_all_at_once():
    s = story("v1", *several("v1", 5), spec=to(2))
    assert told(s) == [f"withdraw v1-{n} (ScaleIn)" for n in (1, 2, 3)]


def test_scale_to_0_drains_all_and_back_starts_them_anew():
    assert told(story("v1", *several("v1", 2), spec=to(0))) == ["withdraw v1-1 (ScaleIn)", "withdraw v1-2 (ScaleIn)"]
    paid = deployment("v1", 0, released=frozenset({"uid-v1-1"}))
    assert told(story("v1", drained("v1-1"), deployments=[paid], spec=to(0))) == ["delete v1-1"]
    assert told(story("v1", counts={"v1": 0}, spec=to(0))) == []
    assert told(story("v1", counts={"v1": 0}, spec=to(2))) == ["raise v1 to 2"]


def test_what_a_pod_said_before_it_was_ready_does_not_choose_it():
    fresh = serving("v1-3", ready_since=NOW - 1)
    early = says(fresh, "starting", at=NOW - 3, in_flight=0)
    s = story("v1", *several("v1", 2), fresh, spec=to(2), readings={"v1-3": early})
    assert told(s) == []
    assert [q.uid for q in plan(s).questions] == ["uid-v1-3"]


def test_the_pod_with_the_least_work_goes_first():
    pods = several("v1", 3)
    s = story("v1", *pods, spec=to(2), readings=busy(*pods, v1_1=9, v1_2=2, v1_3=5))
    assert told(s) == ["withdraw v1-2 (ScaleIn)"]


def test_equal_counts_are_told_apart_by_the_age_of_the_oldest_request():
    pods = several("v1", 3)
    ages = {p.name: says(p, in_flight=4, oldest_seconds=age) for p, age in zip(pods, (50.0, 20.0, 9.0), strict=True)}
    assert told(story("v1", *pods, spec=to(2), readings=ages)) == ["withdraw v1-3 (ScaleIn)"]


def test_a_pod_whose_count_is_unknown_goes_last():
    pods = several("v1", 3)
    failed = {"uid-v1-1": Trouble(NOW - 1, "timeout", "no answer in time")}
    known = busy(*pods, v1_2=90, v1_3=80) | {"v1-1": None}
    s = story("v1", *pods, spec=to(2), readings=known, troubles=failed)
    assert told(s) == ["withdraw v1-3 (ScaleIn)"]


def test_a_pod_whose_last_try_failed_is_unknown_whatever_it_said_before():
    pods = several("v1", 3)
    failed = {"uid-v1-1": Trouble(NOW - 1, "timeout", "no answer in time")}
    s = story("v1", *pods, spec=to(2), readings=busy(*pods, v1_1=0, v1_2=90, v1_3=80), troubles=failed)
    assert told(s) == ["withdraw v1-3 (ScaleIn)"]


def test_of_several_chosen_the_longest_starts_first():
    pods = several("v1", 5)
    s = story("v1", *pods, spec=to(3), readings=busy(*pods, v1_1=9, v1_2=2, v1_3=5, v1_4=8, v1_5=7))
    assert told(s) == ["withdraw v1-3 (ScaleIn)", "withdraw v1-2 (ScaleIn)"]


def test_pods_that_hold_no_work_make_up_the_surplus_before_any_that_serves():
    s = story("v1", *several("v1", 3), starting("v1-4"), spec=to(3))
    assert told(s) == ["drained v1-4: NoWork"]
    both = story("v1", *several("v1", 3), starting("v1-4"), crashing("v1-5"), spec=to(3))
    assert told(both) == ["drained v1-5: NoWork", "drained v1-4: NoWork"]


def test_only_as_many_empty_pods_go_as_are_too_many_the_youngest_first():
    s = story("v1", *several("v1", 2), starting("v1-3", created=NOW - 50), starting("v1-4"), spec=to(3))
    assert told(s) == ["drained v1-4: NoWork"]


def test_a_not_ready_pod_that_may_still_work_is_drained_like_any_other():
    s = story("v1", *several("v1", 3), unready("v1-4"), spec=to(3))
    assert told(s) == ["withdraw v1-4 (ScaleIn)"]


def test_scale_in_keeps_to_what_serves_when_a_wanted_pod_is_down():
    # Two are wanted and two serve: the surplus is the one that is down, not one of those.
    assert told(story("v1", *several("v1", 2), unready("v1-3"), spec=to(2))) == ["withdraw v1-3 (ScaleIn)"]


def test_scale_3_2_3_undoes_the_drain_and_starts_no_pod_beside_it():
    back = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    s = story("v1", *several("v1", 2), back, spec=to(3))
    assert told(s) == []
    (order,) = plan(s).orders
    assert (order.pod, order.undo) == ("v1-3", True)


def test_the_undone_pod_serves_again_only_when_it_says_so():
    back = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    heard = story("v1", *several("v1", 2), back, spec=to(3), readings={"v1-3": says(back, "serving")})
    assert told(heard) == ["restore v1-3"]


def test_an_answer_from_before_the_drain_is_no_proof_that_it_serves_again():
    back = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    old = {"v1-3": says(back, "serving", at=NOW - 61)}
    assert told(story("v1", *several("v1", 2), back, spec=to(3), readings=old)) == []


def test_a_sealed_pod_cannot_come_back_so_it_is_drained_and_replaced():
    late = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    s = story("v1", *several("v1", 2), late, spec=to(3), readings={"v1-3": says(late, "sealed")})
    assert told(s) == ["drained v1-3: Drained"]
    assert told(story("v1", *several("v1", 2), drained("v1-3"), spec=to(3))) == ["lower v1 to 2"]
    assert told(story("v1", *several("v1", 2), counts={"v1": 2}, spec=to(3))) == ["raise v1 to 3"]


def test_a_pod_that_somebody_else_drains_too_is_replaced_and_not_waited_for():
    """It refuses to serve again for as long as the other drain stands, which may be for ever."""
    back = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    other = {"v1-3": says(back, "draining", drain_id="a stranger's")}
    assert told(story("v1", *several("v1", 2), back, spec=to(3), readings=other)) == ["raise v1 to 4"]


def test_of_two_draining_the_latest_comes_back_when_one_is_missed():
    first, last = draining("v1-2", drain=record("v1-2", since=-90)), draining("v1-3", drain=record("v1-3", since=-20))
    s = story("v1", serving("v1-1"), first, last, spec=to(2))
    assert {order.pod: order.undo for order in plan(s).orders} == {"v1-2": False, "v1-3": True}


def test_a_rollback_undoes_the_drains_of_the_revision_that_is_wanted_again():
    s = story("v1", draining("v1-1"), *several("v1", 3)[1:], serving("v2-1"))
    assert told(s) == []
    assert [(order.pod, order.undo) for order in plan(s).orders] == [("v1-1", True)]


def test_what_a_person_drained_by_hand_is_replaced_and_not_undone():
    by_hand = draining("v1-3", drain=record("v1-3", reason="Manual"))
    s = story("v1", *several("v1", 2), by_hand)
    assert told(s) == ["raise v1 to 4"]
    assert [(order.pod, order.undo) for order in plan(s).orders] == [("v1-3", False)]


def test_a_label_set_by_hand_gets_a_record_like_any_other_drain():
    by_hand = unready("v1-3", state="draining")
    assert told(story("v1", *several("v1", 2), by_hand))[0] == "update drain of v1-3"
    fresh = only(story("v1", *several("v1", 2), by_hand), a.UpdateDrain).record
    assert (fresh.reason, fresh.since, fresh.deadline) == ("Manual", NOW, NOW + 600)


def test_nothing_is_undone_while_the_spec_cannot_be_rolled_out():
    back = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    s = story("v1", *several("v1", 2), back, rejected=(("spec.template", "no"),))
    assert [(order.pod, order.undo) for order in plan(s).orders] == [("v1-3", False)]


def test_scale_in_in_the_middle_of_a_rollout_takes_old_pods_first():
    s = story("v2", *several("v1", 3), serving("v2-1"), spec=to(2))
    assert told(s) == ["withdraw v1-1 (Rollout)", "withdraw v1-2 (Rollout)"]


def test_a_terminating_pod_of_the_wanted_revision_is_replaced_by_its_replica_set_not_by_us():
    assert told(story("v1", *several("v1", 2), going(serving("v1-3")), counts={"v1": 3})) == []
