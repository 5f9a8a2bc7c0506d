"""The state machine's rules, each told with times of our own choice."""

import dataclasses

import pytest

from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Admission, DrainConflictError, DrainRequest, Settings, State

NUMBERS = Settings(grace=30, propagation=5, quiet=2, flush=5, stalled_after=20)


def starting(instance: str = "i") -> DrainContract:
    return DrainContract(NUMBERS, instance)


def serving(*, serves_late: bool = False) -> DrainContract:
    contract = DrainContract(NUMBERS, "instance", serves_late=serves_late)
    contract.started()
    return contract


def arrive(contract: DrainContract, work_id: str, now: float, *, begun: bool = True) -> Admission:
    admission = contract.arrive(work_id, now, streaming=True)
    if begun and admission is not Admission.REFUSE:
        contract.progress(work_id, now)
    return admission


def test_a_pod_starts_then_serves() -> None:
    contract = starting()
    assert contract.state is State.STARTING
    contract.started()
    assert contract.snapshot(0) == {
        "contract": "v1", "instance": "i", "drainId": None, "state": "serving", "inFlight": 0, "streams": 0,
        "queued": 0,
        "stalled": 0, "oldestSeconds": 0.0, "lastArrivalSeconds": None, "cut": 0, "agesSeconds": [], "sequence": 2,
    }  # fmt: skip


def test_counts_and_ages_are_of_what_is_in_flight() -> None:
    contract = serving()
    contract.arrive("stream", 1, streaming=True)
    contract.arrive("whole", 3, streaming=False)
    contract.arrive("waiting", 4, streaming=True, queued=True)
    told = contract.snapshot(10)
    assert (told["inFlight"], told["streams"], told["queued"]) == (3, 1, 1)
    assert (told["agesSeconds"], told["oldestSeconds"], told["lastArrivalSeconds"]) == ([9, 7, 6], 9, 6)
    contract.dequeue("waiting")
    contract.finish("stream")
    told = contract.snapshot(10)
    assert (told["inFlight"], told["streams"], told["queued"], told["oldestSeconds"]) == (2, 1, 0, 7)


def test_at_most_64_ages_are_told_the_oldest_of_them() -> None:
    contract = serving()
    for number in range(70):
        contract.arrive(str(number), number, streaming=True)
    told = contract.snapshot(100)
    ages = told["agesSeconds"]
    assert isinstance(ages, list)
    assert (told["inFlight"], len(ages), ages[0], ages[-1]) == (70, 64, 100, 37)


def test_the_sequence_rises_on_changes_of_state_and_when_in_flight_leaves_or_reaches_zero() -> None:
    contract, seen = serving(), []

    def step(*_: object) -> None:
        seen.append(contract.sequence)

    step()
    step(arrive(contract, "a", 0))
    step(arrive(contract, "b", 0))
    step(contract.finish("a"))
    step(contract.finish("b"))
    step(contract.post(DrainRequest("d", since_withdrawal=0), 1))
    step(contract.post(DrainRequest("d", remaining=9), 1))
    step(contract.undrain("d"))
    step(contract.post(DrainRequest("d"), 2))
    step(contract.advance(7))
    assert seen == [2, 3, 3, 3, 4, 5, 5, 6, 7, 8]


@pytest.mark.parametrize(("now", "state"), [(4.9, "draining"), (5.0, "sealed")])
def test_an_idle_pod_is_sealed_as_soon_as_the_propagation_time_is_over(now: float, state: str) -> None:
    contract = serving()
    contract.post(DrainRequest("d"), 0)
    assert contract.next_at(0) == 5
    contract.advance(now)
    assert contract.state.value == state


def test_the_time_since_withdrawal_counts_from_the_withdrawal() -> None:
    contract = serving()
    contract.post(DrainRequest("d", since_withdrawal=4), 10)
    assert not contract.advance(10.9).sealed
    assert contract.advance(11).sealed


def test_an_arrival_puts_the_seal_off_by_the_quiet_time() -> None:
    contract = serving()
    contract.post(DrainRequest("d"), 0)
    assert arrive(contract, "late", 4.5) is Admission.SERVE_AND_CLOSE
    contract.finish("late")
    assert not contract.advance(6.4).sealed
    assert contract.next_at(6.4) == 6.5
    assert contract.advance(6.5).sealed


def test_arrivals_that_do_not_cease_put_the_seal_off_by_one_more_propagation_time() -> None:
    contract = serving()
    contract.post(DrainRequest("d"), 0)
    for now in range(1, 12):
        if arrive(contract, "a", now) is not Admission.REFUSE:
            contract.finish("a")
        assert not contract.advance(now + 0.9).sealed
    assert contract.snapshot(12)["lastArrivalSeconds"] == 1
    assert contract.advance(12).sealed


def test_work_in_flight_holds_the_seal_and_its_end_lets_go() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.post(DrainRequest("d", remaining=1000), 1)
    for now in range(2, 60):
        contract.progress("a", now)
        assert not contract.advance(now).sealed
    contract.finish("a")
    assert contract.advance(60).sealed
    assert contract.cut == 0


def test_sealed_refuses_for_good() -> None:
    contract = serving()
    contract.post(DrainRequest("d", propagation=0, quiet=0), 0)
    assert contract.advance(0).sealed
    assert not contract.advance(1).sealed  # told once
    assert arrive(contract, "a", 2) is Admission.REFUSE
    assert contract.in_flight == 0
    assert contract.snapshot(3)["lastArrivalSeconds"] == 1
    with pytest.raises(DrainConflictError, match="sealed"):
        contract.undrain("d")


def test_post_numbers_override_the_environments_and_the_same_id_updates_them() -> None:
    contract = serving()
    contract.post(DrainRequest("d", remaining=100, propagation=50), 0)
    assert contract.deadline == 100
    contract.post(DrainRequest("d", remaining=300, propagation=60), 1)
    assert contract.deadline == 301
    assert not contract.advance(59).sealed
    assert contract.advance(61).sealed


def test_hold_has_no_deadline_and_release_brings_one() -> None:
    contract = serving()
    arrive(contract, "a", 0, begun=False)
    contract.post(DrainRequest("d"), 0)
    assert contract.deadline is None
    assert contract.advance(1e6).tokens == ()
    contract.post(DrainRequest("d", remaining=5, flush=1), 1e6)
    assert contract.advance(1e6 + 3.9).tokens == ()
    assert contract.advance(1e6 + 4).tokens == ("a",)


@pytest.mark.parametrize("by", ["post", "prestop", "sigterm"])
def test_the_earliest_deadline_rules(by: str) -> None:
    contract = serving()
    arrive(contract, "a", 0, begun=False)
    contract.prestop(0 if by == "prestop" else 10)
    contract.sigterm(0 if by == "sigterm" else 10)
    contract.post(DrainRequest("d", remaining=20 if by == "post" else 100), 10)
    assert contract.deadline == 30


def test_the_flush_time_before_the_deadline_every_running_request_gets_one_token_and_counts_as_cut() -> None:
    contract = serving()
    for work_id in "abc":
        arrive(contract, work_id, 0, begun=False)
    assert contract.generated("c")
    contract.post(DrainRequest("d", remaining=10, flush=3), 0)
    assert contract.next_at(6) == 7
    assert contract.advance(6.9).tokens == ()
    assert contract.advance(7).tokens == ("a", "b")
    assert contract.cut == 2
    assert not contract.generated("a")
    assert contract.advance(7.1).tokens == ()
    assert arrive(contract, "late", 7.2) is Admission.REFUSE
    for work_id in "abc":
        contract.finish(work_id)
    assert contract.advance(9.2).sealed
    assert contract.cut == 2


def test_at_the_deadline_the_pod_is_sealed_whatever_holds_it() -> None:
    contract = serving()
    arrive(contract, "a", 0, begun=False)
    arrive(contract, "unread", 0, begun=False)
    contract.generated("unread")
    contract.post(DrainRequest("d", remaining=10, flush=3), 0)
    assert contract.advance(7).tokens == ("a",)
    end = contract.advance(10)
    assert (end.sealed, end.tokens, set(end.abort)) == (True, (), {"a", "unread"})
    assert contract.cut == 2


def test_a_deadline_no_longer_moves_once_tokens_are_sent() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.post(DrainRequest("d", remaining=3), 0)
    assert contract.advance(0).tokens == ("a",)
    contract.post(DrainRequest("d", remaining=500), 1)
    assert contract.deadline == 3


def test_a_stalled_stream_does_not_hold_a_drain_and_ends_with_a_token() -> None:
    contract = serving()
    arrive(contract, "stalled", 0)
    arrive(contract, "unbegun", 0, begun=False)
    contract.arrive("whole", 0, streaming=False)
    contract.post(DrainRequest("d", stalled_after=8), 1)
    assert contract.snapshot(7.9)["stalled"] == 0
    assert contract.snapshot(8)["stalled"] == 1
    assert not contract.advance(100).sealed  # the other two are silent by nature
    contract.finish("unbegun")
    contract.finish("whole")
    end = contract.advance(100)
    assert (end.sealed, end.tokens, end.abort, contract.cut) == (True, ("stalled",), (), 1)


def test_a_queued_request_is_not_stalled_whatever_signs_of_life_it_has_shown() -> None:
    contract = serving()
    contract.arrive("waits", 0, streaming=True, queued=True)
    contract.progress("waits", 1)
    contract.post(DrainRequest("d", stalled_after=8), 1)
    assert contract.next_at(7) is None
    assert not contract.advance(100).sealed
    assert contract.snapshot(100)["stalled"] == 0
    contract.dequeue("waits")
    contract.progress("waits", 100)
    assert contract.next_at(100) == 108


def test_a_stream_that_goes_on_is_not_stalled_and_0_means_never() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.post(DrainRequest("d", stalled_after=8), 1)
    contract.progress("a", 7)
    assert contract.next_at(8) == 15
    assert not contract.advance(14).sealed
    contract.post(DrainRequest("d", stalled_after=0), 14)
    assert not contract.advance(1e6).sealed


def test_prestop_withdraws_and_never_seals() -> None:
    contract = serving()
    contract.prestop(0)
    assert contract.state is State.DRAINING
    assert contract.drain_id is None
    for now in (5, 29, 30, 1000):
        assert not contract.advance(now).sealed
    contract.post(DrainRequest("d"), 1000)
    contract.advance(1005)
    assert contract.state is State.SEALED


def test_prestop_is_over_when_nothing_is_in_flight_or_the_grace_nearly_is() -> None:
    contract = serving()
    arrive(contract, "a", 0, begun=False)
    contract.prestop(0)
    contract.prestop(20)  # a second call does not move the deadline
    assert not contract.prestop_over(28.9)
    assert contract.prestop_over(29)
    contract.finish("a")
    assert contract.prestop_over(5)


def test_prestop_of_an_idle_pod_waits_for_late_arrivals_unless_it_was_withdrawn_long_before() -> None:
    contract = serving()
    contract.prestop(0)
    assert contract.next_at(0) == 5
    assert not contract.prestop_over(4.9)
    assert arrive(contract, "late", 4.9, begun=False) is Admission.SERVE_AND_CLOSE
    assert not contract.prestop_over(5)
    contract.finish("late")
    assert contract.prestop_over(5)
    withdrawn = serving()
    withdrawn.post(DrainRequest("d", since_withdrawal=5), 0)
    withdrawn.prestop(1)
    assert withdrawn.prestop_over(1)


def test_a_short_grace_ends_prestop_within_the_propagation_time() -> None:
    contract = DrainContract(dataclasses.replace(NUMBERS, grace=4, flush=1), "i")
    contract.started()
    contract.prestop(0)
    assert not contract.prestop_over(3.4)
    assert contract.prestop_over(3.5)


def test_a_drain_of_another_id_or_by_prestop_is_adopted() -> None:
    contract = serving()
    contract.prestop(0)
    contract.post(DrainRequest("a"), 1)
    assert contract.drain_id == "a"
    contract.post(DrainRequest("b"), 2)
    assert contract.drain_id == "b"
    contract.advance(7)
    assert contract.state is State.SEALED
    contract.post(DrainRequest("c"), 8)
    assert (contract.drain_id, contract.state) == ("c", State.SEALED)


def test_post_delete_post_serves_in_between_and_starts_anew() -> None:
    contract = serving()
    contract.post(DrainRequest("a", remaining=10), 0)
    contract.undrain("a")
    assert (contract.state, contract.drain_id, contract.deadline) == (State.SERVING, None, None)
    assert not contract.advance(100).sealed
    assert arrive(contract, "x", 100) is Admission.SERVE
    contract.finish("x")
    contract.post(DrainRequest("b"), 101)
    assert not contract.advance(105.9).sealed
    assert contract.advance(106).sealed


def test_what_an_undone_drain_cut_is_not_told_again_by_the_next() -> None:
    contract = serving()
    arrive(contract, "x", 0)
    contract.post(DrainRequest("a", remaining=10), 1)
    contract.advance(7)
    assert contract.cut == 1
    contract.undrain("a")
    contract.post(DrainRequest("b", remaining=10), 20)
    assert (contract.cut, contract.snapshot(20)["cut"]) == (0, 0)


def test_delete_while_it_starts_goes_back_to_starting() -> None:
    contract = starting()
    contract.post(DrainRequest("a"), 0)
    assert contract.state is State.DRAINING
    contract.undrain("a")
    assert contract.state is State.STARTING


@pytest.mark.parametrize("given", [None, "b", ""])
def test_delete_needs_the_id_in_force(given: str | None) -> None:
    contract = serving()
    contract.post(DrainRequest("a"), 0)
    with pytest.raises(DrainConflictError):
        contract.undrain(given)
    assert contract.state is State.DRAINING


def test_delete_of_nothing_is_a_conflict() -> None:
    with pytest.raises(DrainConflictError):
        serving().undrain(None)


@pytest.mark.parametrize("call", ["prestop", "sigterm"])
def test_a_container_that_is_being_stopped_cannot_be_undrained(call: str) -> None:
    contract = serving()
    contract.post(DrainRequest("a"), 0)
    getattr(contract, call)(1)
    with pytest.raises(DrainConflictError, match="stopped"):
        contract.undrain("a")


def test_sigterm_seals_by_itself_and_a_second_one_changes_nothing() -> None:
    contract = serving()
    contract.sigterm(0)
    contract.sigterm(4)
    assert contract.deadline == 30
    assert not contract.advance(4.9).sealed
    assert contract.advance(5).sealed


def test_what_comes_after_the_propagation_time_is_refused_and_is_an_arrival_all_the_same() -> None:
    contract = serving()
    arrive(contract, "a", 0, begun=False)
    contract.post(DrainRequest("d"), 0)
    assert arrive(contract, "late", 4.9, begun=False) is Admission.SERVE_AND_CLOSE
    assert arrive(contract, "too late", 5, begun=False) is Admission.REFUSE
    assert [work.id for work in contract.works()] == ["a", "late"]
    contract.finish("a")
    contract.finish("late")
    assert contract.snapshot(5)["lastArrivalSeconds"] == 0
    assert not contract.advance(6.9).sealed
    assert contract.advance(7).sealed


def test_a_process_that_serves_late_refuses_nothing_before_its_tokens_or_its_seal() -> None:
    contract = serving(serves_late=True)
    arrive(contract, "a", 0, begun=False)
    contract.post(DrainRequest("d", remaining=20), 0)
    assert arrive(contract, "late", 14.9, begun=False) is Admission.SERVE_AND_CLOSE
    assert contract.advance(15).tokens == ("a", "late")
    assert arrive(contract, "too late", 15, begun=False) is Admission.REFUSE
    idle = serving(serves_late=True)
    idle.post(DrainRequest("d"), 0)
    assert idle.advance(5).sealed
    assert arrive(idle, "too late", 5, begun=False) is Admission.REFUSE


def test_a_request_is_known_by_its_id_while_it_is_in_flight() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    with pytest.raises(ValueError, match="a is in flight already"):
        arrive(contract, "a", 1)
    assert contract.work("a").arrived == 0
    contract.finish("a")
    assert arrive(contract, "a", 2) is Admission.SERVE


def test_tokens_say_the_reason_of_the_drain_or_that_the_container_is_stopped() -> None:
    contract = serving()
    contract.sigterm(0)
    assert contract.shutdown_reason == "Terminating"
    contract.post(DrainRequest("d", "Rollout"), 0)
    assert contract.shutdown_reason == "Rollout"


def test_withdrawn_since_what_post_says_or_since_the_first_call_that_stops_the_container() -> None:
    contract = serving()
    assert contract.withdrawn_at is None
    contract.post(DrainRequest("d", since_withdrawal=3), 10)
    assert contract.withdrawn_at == 7
    contract.prestop(20)
    assert contract.withdrawn_at == 7
    contract = serving()
    contract.prestop(4)
    contract.sigterm(6)
    assert contract.withdrawn_at == 4


def test_the_kubelet_kills_at_the_end_of_the_grace_whatever_the_drain_s_own_deadline() -> None:
    contract = serving()
    contract.post(DrainRequest("d", remaining=7), 0)
    assert (contract.killed_at, contract.stopping) == (None, False)
    contract.prestop(2)
    contract.sigterm(4)
    assert (contract.deadline, contract.killed_at, contract.stopping) == (7, 32, True)


def test_a_sealed_process_is_going() -> None:
    contract = serving()
    contract.post(DrainRequest("d", propagation=0, quiet=0), 0)
    assert not contract.stopping
    contract.advance(0)
    assert contract.stopping


def test_a_stalled_stream_holds_no_prestop_and_is_told_to_when_it_is_stalled() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.prestop(0)
    assert not contract.prestop_over(19.9)
    assert contract.next_at(5) == 20
    assert contract.prestop_over(20)


def test_who_had_a_token_and_does_not_read_it_is_cut_at_the_seal_and_gets_no_second_one() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.post(DrainRequest("d", remaining=18, flush=10, stalled_after=12), 0)
    assert contract.advance(8).tokens == ("a",)
    end = contract.advance(12)
    assert (end.sealed, end.tokens, end.abort, contract.cut) == (True, (), ("a",), 1)


def test_who_does_not_read_a_whole_answer_is_cut_at_the_seal_since_no_token_can_reach_it() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    assert contract.generated("a")
    contract.post(DrainRequest("d", stalled_after=12), 0)
    end = contract.advance(12)
    assert (end.sealed, end.tokens, end.abort, contract.cut) == (True, (), ("a",), 1)


def test_who_turns_out_to_be_whole_when_its_token_is_due_is_not_cut() -> None:
    contract = serving()
    arrive(contract, "whole", 0)
    arrive(contract, "cut", 0)
    contract.post(DrainRequest("d", remaining=18, flush=10), 0)
    assert contract.advance(8).tokens == ("whole", "cut")
    for _ in range(2):
        contract.was_complete("whole")
        assert (contract.cut, contract.ever_cut) == (1, 1)
    assert contract.work("whole").whole
    assert contract.advance(9).tokens == ()


def test_prestop_says_when_the_grace_is_nearly_over() -> None:
    contract = serving()
    arrive(contract, "a", 0, begun=False)
    contract.prestop(0)
    moments, now = [], 0.0
    while (at := contract.next_at(now)) is not None:
        now = at
        moments.append(now)
    # The end of the quiet time and of propagation, the tokens, preStop's return, the kubelet's kill.
    assert moments == [2, 5, 25, 29, 30]


def test_the_numbers_of_an_undone_drain_are_undone_with_it() -> None:
    contract = serving()
    contract.post(DrainRequest("a", propagation=50, flush=0), 0)
    contract.undrain("a")
    contract.sigterm(10)
    assert not contract.advance(14.9).sealed
    assert contract.advance(15).sealed


def test_an_answer_that_does_not_stream_is_never_stalled() -> None:
    contract = serving()
    contract.arrive("whole", 0, streaming=False)
    contract.progress("whole", 0)
    contract.post(DrainRequest("d", stalled_after=8), 0)
    assert contract.snapshot(100)["stalled"] == 0
    assert contract.next_at(5) is None


def test_the_engine_itself_ends_a_request_which_counts_as_cut_once() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    arrive(contract, "b", 0)
    contract.post(DrainRequest("d", remaining=10), 0)
    contract.cut_short("a")
    contract.cut_short("a")
    assert (contract.cut, contract.ever_cut) == (1, 1)
    assert contract.advance(5).tokens == ("b",)
    assert (contract.cut, contract.ever_cut) == (2, 2)


def test_what_was_ever_cut_outlasts_the_drain_that_cut_it() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.post(DrainRequest("d", remaining=3), 0)
    contract.advance(0)
    contract.undrain("d")
    assert (contract.cut, contract.ever_cut) == (0, 1)


def test_a_response_that_cannot_carry_a_token_has_until_the_deadline() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.work("a").opaque = True
    contract.post(DrainRequest("d", remaining=10, flush=3), 0)
    assert contract.advance(7).tokens == ()
    assert contract.cut == 0
    end = contract.advance(10)
    assert (end.sealed, end.tokens, end.abort, contract.cut) == (True, (), ("a",), 1)


# -- the engine of a process that only stands in front of one


def test_without_its_engine_a_pod_starts_again() -> None:
    contract = serving()
    sequence = contract.sequence
    contract.engine_gone()
    assert (contract.state, contract.engine_lost, contract.sequence) == (State.STARTING, True, sequence + 1)
    contract.engine_back()
    assert (contract.state, contract.engine_lost) == (State.STARTING, False)
    contract.started()
    assert (contract.state, contract.sequence) == (State.SERVING, sequence + 2)


def test_prestop_returns_at_once_when_the_engine_is_gone() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.prestop(0)
    assert not contract.prestop_over(1)
    contract.engine_gone()
    assert contract.prestop_over(1)


def test_prestop_was_about_the_engine_that_is_gone_so_the_next_one_serves() -> None:
    contract = serving()
    arrive(contract, "a", 0)
    contract.prestop(0)
    assert contract.advance(25).tokens == ("a",)
    contract.finish("a")
    contract.engine_gone()
    assert contract.state is State.DRAINING
    contract.engine_back()
    assert (contract.state, contract.deadline, contract.withdrawn_at, contract.cut) == (State.STARTING, None, None, 0)
    contract.started()
    assert (contract.state, arrive(contract, "b", 40)) == (State.SERVING, Admission.SERVE)
    assert contract.ever_cut == 1


@pytest.mark.parametrize("call", ["post", "sigterm"])
def test_a_drain_by_post_or_sigterm_goes_on_with_the_next_engine(call: str) -> None:
    contract = serving()
    contract.prestop(0)
    if call == "post":
        contract.post(DrainRequest("d", remaining=100), 0)
    else:
        contract.sigterm(0)
    contract.engine_gone()
    contract.engine_back()
    contract.started()
    assert contract.state is State.DRAINING
    # The grace period of a container that is gone counts no more; that of the process does.
    assert contract.deadline == (100 if call == "post" else 30)
    assert contract.advance(5).sealed


def test_an_engine_that_was_never_lost_takes_no_prestop_back() -> None:
    contract = serving()
    contract.prestop(0)
    contract.engine_back()
    assert contract.state is State.DRAINING


def test_a_sealed_pod_stays_sealed_whatever_its_engine_does() -> None:
    contract = serving()
    contract.prestop(0)
    contract.post(DrainRequest("d", propagation=0, quiet=0), 0)
    assert contract.advance(0).sealed
    contract.engine_gone()
    contract.engine_back()
    contract.started()
    assert (contract.state, contract.prestopped) == (State.SEALED, True)
