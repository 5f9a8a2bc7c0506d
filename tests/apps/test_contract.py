"""The contract's rules, each told with times of our own choice, for everything that implements them.

The test service and the gateway were written apart; what is asserted here is what the operator may rely on in both.
"""

import dataclasses
from types import ModuleType
from typing import Any

import pytest

import apps.contract
import apps.terms
import tidegate.contract.machine
import tidegate.contract.terms


class Implementation:
    """One state machine of the contract and its words."""

    def __init__(self, contract: ModuleType, terms: ModuleType) -> None:
        self.DrainContract: Any = contract.DrainContract
        self.DrainRequest: Any = terms.DrainRequest
        self.Admission: Any = terms.Admission
        self.State: Any = terms.State
        self.DrainConflictError: type[Exception] = terms.DrainConflictError
        self.InvalidDrainError: type[Exception] = terms.InvalidDrainError
        self.numbers: Any = terms.Settings(grace=30, propagation=5, quiet=2, flush=5, stalled_after=20)

    def starting(self, instance: str = "i") -> Any:
        return self.DrainContract(self.numbers, instance)

    def serving(self) -> Any:
        contract = self.starting("instance")
        contract.started()
        return contract

    def arrive(self, contract: Any, work_id: str, now: float, *, begun: bool = True) -> Any:
        admission = contract.arrive(work_id, now, streaming=True)
        if begun and admission is not self.Admission.REFUSE:
            contract.progress(work_id, now)
        return admission


@pytest.fixture(params=["service", "gateway"])
def of(request: pytest.FixtureRequest) -> Implementation:
    if request.param == "service":
        return Implementation(apps.contract, apps.terms)
    return Implementation(tidegate.contract.machine, tidegate.contract.terms)


def test_a_pod_starts_then_serves(of: Implementation) -> None:
    contract = of.starting()
    assert contract.state is of.State.STARTING
    contract.started()
    assert contract.snapshot(0) == {
        "contract": "v1", "instance": "i", "drainId": None, "state": "serving", "inFlight": 0, "streams": 0,
        "queued": 0,
        "stalled": 0, "oldestSeconds": 0.0, "lastArrivalSeconds": None, "cut": 0, "agesSeconds": [], "sequence": 2,
    }  # fmt: skip


def test_counts_and_ages_are_of_what_is_in_flight(of: Implementation) -> None:
    contract = of.serving()
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


def test_at_most_64_ages_are_told_the_oldest_of_them(of: Implementation) -> None:
    contract = of.serving()
    for number in range(70):
        contract.arrive(str(number), number, streaming=True)
    told = contract.snapshot(100)
    ages = told["agesSeconds"]
    assert isinstance(ages, list)
    assert (told["inFlight"], len(ages), ages[0], ages[-1]) == (70, 64, 100, 37)


def test_the_sequence_rises_on_changes_of_state_and_when_in_flight_leaves_or_reaches_zero(of: Implementation) -> None:
    contract, seen = of.serving(), []

    def step(*_: object) -> None:
        seen.append(contract.sequence)

    step()
    step(of.arrive(contract, "a", 0))
    step(of.arrive(contract, "b", 0))
    step(contract.finish("a"))
    step(contract.finish("b"))
    step(contract.post(of.DrainRequest("d", since_withdrawal=0), 1))
    step(contract.post(of.DrainRequest("d", remaining=9), 1))
    step(contract.undrain("d"))
    step(contract.post(of.DrainRequest("d"), 2))
    step(contract.advance(7))
    assert seen == [2, 3, 3, 3, 4, 5, 5, 6, 7, 8]


@pytest.mark.parametrize(("now", "state"), [(4.9, "draining"), (5.0, "sealed")])
def test_an_idle_pod_is_sealed_as_soon_as_the_propagation_time_is_over(
    of: Implementation, now: float, state: str
) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("d"), 0)
    assert contract.next_at(0) == 5
    contract.advance(now)
    assert contract.state.value == state


def test_the_time_since_withdrawal_counts_from_the_withdrawal(of: Implementation) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("d", since_withdrawal=4), 10)
    assert not contract.advance(10.9).sealed
    assert contract.advance(11).sealed


def test_an_arrival_puts_the_seal_off_by_the_quiet_time(of: Implementation) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("d"), 0)
    assert of.arrive(contract, "late", 4.5) is of.Admission.SERVE_AND_CLOSE
    contract.finish("late")
    assert not contract.advance(6.4).sealed
    assert contract.next_at(6.4) == 6.5
    assert contract.advance(6.5).sealed


def test_arrivals_that_do_not_cease_put_the_seal_off_by_one_more_propagation_time(of: Implementation) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("d"), 0)
    for now in range(1, 12):
        if of.arrive(contract, "a", now) is not of.Admission.REFUSE:
            contract.finish("a")
        assert not contract.advance(now + 0.9).sealed
    assert contract.snapshot(12)["lastArrivalSeconds"] == 1
    assert contract.advance(12).sealed


def test_work_in_flight_holds_the_seal_and_its_end_lets_go(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "a", 0)
    contract.post(of.DrainRequest("d", remaining=1000), 1)
    for now in range(2, 60):
        contract.progress("a", now)
        assert not contract.advance(now).sealed
    contract.finish("a")
    assert contract.advance(60).sealed
    assert contract.cut == 0


def test_sealed_refuses_for_good(of: Implementation) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("d", propagation=0, quiet=0), 0)
    assert contract.advance(0).sealed
    assert not contract.advance(1).sealed  # told once
    assert of.arrive(contract, "a", 2) is of.Admission.REFUSE
    assert contract.in_flight == 0
    assert contract.snapshot(3)["lastArrivalSeconds"] == 1
    with pytest.raises(of.DrainConflictError, match="sealed"):
        contract.undrain("d")


def test_post_numbers_override_the_environments_and_the_same_id_updates_them(of: Implementation) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("d", remaining=100, propagation=50), 0)
    assert contract.deadline == 100
    contract.post(of.DrainRequest("d", remaining=300, propagation=60), 1)
    assert contract.deadline == 301
    assert not contract.advance(59).sealed
    assert contract.advance(61).sealed


def test_hold_has_no_deadline_and_release_brings_one(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "a", 0, begun=False)
    contract.post(of.DrainRequest("d"), 0)
    assert contract.deadline is None
    assert contract.advance(1e6).tokens == ()
    contract.post(of.DrainRequest("d", remaining=5, flush=1), 1e6)
    assert contract.advance(1e6 + 3.9).tokens == ()
    assert contract.advance(1e6 + 4).tokens == ("a",)


@pytest.mark.parametrize("by", ["post", "prestop", "sigterm"])
def test_the_earliest_deadline_rules(of: Implementation, by: str) -> None:
    contract = of.serving()
    of.arrive(contract, "a", 0, begun=False)
    contract.prestop(0 if by == "prestop" else 10)
    contract.sigterm(0 if by == "sigterm" else 10)
    contract.post(of.DrainRequest("d", remaining=20 if by == "post" else 100), 10)
    assert contract.deadline == 30


def test_the_flush_time_before_the_deadline_every_running_request_gets_one_token_and_counts_as_cut(
    of: Implementation,
) -> None:
    contract = of.serving()
    for work_id in "abc":
        of.arrive(contract, work_id, 0, begun=False)
    assert contract.generated("c")
    contract.post(of.DrainRequest("d", remaining=10, flush=3), 0)
    assert contract.next_at(6) == 7
    assert contract.advance(6.9).tokens == ()
    assert contract.advance(7).tokens == ("a", "b")
    assert contract.cut == 2
    assert not contract.generated("a")
    assert contract.advance(7.1).tokens == ()
    assert of.arrive(contract, "late", 7.2) is of.Admission.REFUSE
    for work_id in "abc":
        contract.finish(work_id)
    assert contract.advance(9.2).sealed
    assert contract.cut == 2


def test_at_the_deadline_the_pod_is_sealed_whatever_holds_it(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "a", 0, begun=False)
    of.arrive(contract, "unread", 0, begun=False)
    contract.generated("unread")
    contract.post(of.DrainRequest("d", remaining=10, flush=3), 0)
    assert contract.advance(7).tokens == ("a",)
    end = contract.advance(10)
    assert (end.sealed, end.tokens, set(end.abort)) == (True, (), {"a", "unread"})
    assert contract.cut == 2


def test_a_deadline_no_longer_moves_once_tokens_are_sent(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "a", 0)
    contract.post(of.DrainRequest("d", remaining=3), 0)
    assert contract.advance(0).tokens == ("a",)
    contract.post(of.DrainRequest("d", remaining=500), 1)
    assert contract.deadline == 3


def test_a_stalled_stream_does_not_hold_a_drain_and_ends_with_a_token(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "stalled", 0)
    of.arrive(contract, "unbegun", 0, begun=False)
    contract.arrive("whole", 0, streaming=False)
    contract.post(of.DrainRequest("d", stalled_after=8), 1)
    assert contract.snapshot(7.9)["stalled"] == 0
    assert contract.snapshot(8)["stalled"] == 1
    assert not contract.advance(100).sealed  # the other two are silent by nature
    contract.finish("unbegun")
    contract.finish("whole")
    end = contract.advance(100)
    assert (end.sealed, end.tokens, end.abort, contract.cut) == (True, ("stalled",), (), 1)


def test_a_stream_that_goes_on_is_not_stalled_and_0_means_never(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "a", 0)
    contract.post(of.DrainRequest("d", stalled_after=8), 1)
    contract.progress("a", 7)
    assert contract.next_at(8) == 15
    assert not contract.advance(14).sealed
    contract.post(of.DrainRequest("d", stalled_after=0), 14)
    assert not contract.advance(1e6).sealed


def test_prestop_withdraws_and_never_seals(of: Implementation) -> None:
    contract = of.serving()
    contract.prestop(0)
    assert contract.state is of.State.DRAINING
    assert contract.drain_id is None
    for now in (5, 29, 30, 1000):
        assert not contract.advance(now).sealed
    contract.post(of.DrainRequest("d"), 1000)
    contract.advance(1005)
    assert contract.state is of.State.SEALED


def test_prestop_is_over_when_nothing_is_in_flight_or_the_grace_nearly_is(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "a", 0, begun=False)
    contract.prestop(0)
    contract.prestop(20)  # a second call does not move the deadline
    assert not contract.prestop_over(28.9)
    assert contract.prestop_over(29)
    contract.finish("a")
    assert contract.prestop_over(5)


def test_prestop_of_an_idle_pod_waits_for_late_arrivals_unless_it_was_withdrawn_long_before(of: Implementation) -> None:
    contract = of.serving()
    contract.prestop(0)
    assert contract.next_at(0) == 5
    assert not contract.prestop_over(4.9)
    assert of.arrive(contract, "late", 4.9, begun=False) is of.Admission.SERVE_AND_CLOSE
    assert not contract.prestop_over(5)
    contract.finish("late")
    assert contract.prestop_over(5)
    withdrawn = of.serving()
    withdrawn.post(of.DrainRequest("d", since_withdrawal=5), 0)
    withdrawn.prestop(1)
    assert withdrawn.prestop_over(1)


def test_a_short_grace_ends_prestop_within_the_propagation_time(of: Implementation) -> None:
    contract = of.DrainContract(dataclasses.replace(of.numbers, grace=4, flush=1), "i")
    contract.started()
    contract.prestop(0)
    assert not contract.prestop_over(3.4)
    assert contract.prestop_over(3.5)


def test_a_drain_of_another_id_or_by_prestop_is_adopted(of: Implementation) -> None:
    contract = of.serving()
    contract.prestop(0)
    contract.post(of.DrainRequest("a"), 1)
    assert contract.drain_id == "a"
    contract.post(of.DrainRequest("b"), 2)
    assert contract.drain_id == "b"
    contract.advance(7)
    assert contract.state is of.State.SEALED
    contract.post(of.DrainRequest("c"), 8)
    assert (contract.drain_id, contract.state) == ("c", of.State.SEALED)


def test_post_delete_post_serves_in_between_and_starts_anew(of: Implementation) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("a", remaining=10), 0)
    contract.undrain("a")
    assert (contract.state, contract.drain_id, contract.deadline) == (of.State.SERVING, None, None)
    assert not contract.advance(100).sealed
    assert of.arrive(contract, "x", 100) is of.Admission.SERVE
    contract.finish("x")
    contract.post(of.DrainRequest("b"), 101)
    assert not contract.advance(105.9).sealed
    assert contract.advance(106).sealed


def test_what_an_undone_drain_cut_is_not_told_again_by_the_next(of: Implementation) -> None:
    contract = of.serving()
    of.arrive(contract, "x", 0)
    contract.post(of.DrainRequest("a", remaining=10), 1)
    contract.advance(7)
    assert contract.cut == 1
    contract.undrain("a")
    contract.post(of.DrainRequest("b", remaining=10), 20)
    assert (contract.cut, contract.snapshot(20)["cut"]) == (0, 0)


def test_delete_while_it_starts_goes_back_to_starting(of: Implementation) -> None:
    contract = of.starting()
    contract.post(of.DrainRequest("a"), 0)
    assert contract.state is of.State.DRAINING
    contract.undrain("a")
    assert contract.state is of.State.STARTING


@pytest.mark.parametrize("given", [None, "b", ""])
def test_delete_needs_the_id_in_force(of: Implementation, given: str | None) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("a"), 0)
    with pytest.raises(of.DrainConflictError):
        contract.undrain(given)
    assert contract.state is of.State.DRAINING


def test_delete_of_nothing_is_a_conflict(of: Implementation) -> None:
    with pytest.raises(of.DrainConflictError):
        of.serving().undrain(None)


@pytest.mark.parametrize("call", ["prestop", "sigterm"])
def test_a_container_that_is_being_stopped_cannot_be_undrained(of: Implementation, call: str) -> None:
    contract = of.serving()
    contract.post(of.DrainRequest("a"), 0)
    getattr(contract, call)(1)
    with pytest.raises(of.DrainConflictError, match="stopped"):
        contract.undrain("a")


def test_sigterm_seals_by_itself_and_a_second_one_changes_nothing(of: Implementation) -> None:
    contract = of.serving()
    contract.sigterm(0)
    contract.sigterm(4)
    assert contract.deadline == 30
    assert not contract.advance(4.9).sealed
    assert contract.advance(5).sealed


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "object"),
        ({}, "id"),
        ({"id": ""}, "id"),
        ({"id": 7}, "id"),
        ({"id": "a", "reason": 1}, "reason"),
        ({"id": "a", "remainingSeconds": "5"}, "remainingSeconds"),
        ({"id": "a", "quietSeconds": True}, "quietSeconds"),
        ({"id": "a", "flushSeconds": float("nan")}, "flushSeconds"),
        ({"id": "a", "stalledAfterSeconds": float("inf")}, "stalledAfterSeconds"),
        ({"id": "a", "propagationSeconds": 10**400}, "propagationSeconds"),
    ],
)
def test_a_wrong_body_is_refused_by_field(of: Implementation, body: object, field: str) -> None:
    with pytest.raises(of.InvalidDrainError, match=field):
        of.DrainRequest.parse(body)


def test_a_whole_body_is_read(of: Implementation) -> None:
    body = {
        "id": "a", "reason": "Rollout", "remainingSeconds": -2, "sinceWithdrawalSeconds": 1.5, "propagationSeconds": 5,
        "quietSeconds": 2, "flushSeconds": 3, "stalledAfterSeconds": 4, "deadline": "2026-11-29T20:00:00Z",
    }  # fmt: skip
    assert of.DrainRequest.parse(body) == of.DrainRequest("a", "Rollout", 0, 1.5, 5, 2, 3, 4)
    assert of.DrainRequest.parse({"id": "a", "remainingSeconds": None}).remaining is None
