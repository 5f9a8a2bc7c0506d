"""What is counted of a drain, once, and what follows from it: the terms, what status shows, and the conditions."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.stories import (
    BUDGET,
    NOW,
    PROPAGATION,
    drained,
    draining,
    going,
    only,
    record,
    says,
    serving,
    several,
    story,
)
from core.stories import spec as spec_of
from tidegate.api.status import LLMServiceStatus
from tidegate.core.drain_time.drain_term import DAY
from tidegate.core.drain_time.drain_times import Counted, DrainTimes, Unreadable, load
from tidegate.core.drain_time.grace import grace_period, in_force
from tidegate.core.drain_time.histogram import Sample
from tidegate.core.planner import actions as a
from tidegate.core.planner.plan import plan
from tidegate.core.report import terms
from tidegate.core.report.status import status
from tidegate.core.state.snapshot import OutcomeRecord, Pod, Snapshot

SINCE = "2027-01-15T07:59:00Z"
OLD = several("v1", 3)
NEW = serving("v2-1")
SEALED: dict[str, Any] = {"last_arrival_seconds": 70.0, "busy_at": NOW - 3, "idle_since": NOW - 2}


def ended(pod: Pod, **said: Any) -> OutcomeRecord:
    """How the drain of this pod ended, which says that it is sealed unless `said` otherwise."""
    reading = says(pod, **({"state": "sealed"} | SEALED | said))
    s = story("v2", pod, *OLD[1:], NEW, readings={pod.name: reading})
    found: OutcomeRecord = only(s, a.MarkDrained).outcome
    return found


def counted(s: Snapshot) -> DrainTimes:
    found = plan(s).learnt
    assert found is not None
    return found


def learnt(*seconds: float, cut: tuple[float, ...] = (), expired: bool = True, at: float = NOW) -> DrainTimes:
    ends = [Counted(f"e-{n}", Sample(took, False, at)) for n, took in enumerate(seconds)]
    cuts = [Counted(f"c-{n}", Sample(took, True, at), None, expired) for n, took in enumerate(cut)]
    known = DrainTimes()
    return known.add([*ends, *cuts], {}, in_force(spec_of(), known, at), standing=frozenset())


# -- the sample of one drain


def test_a_drain_lasts_from_withdrawal_and_propagation_to_its_last_request() -> None:
    found = ended(draining("v1-1"))
    assert (found.drain_seconds, found.censored) == (60 - 2 - PROPAGATION, False)


def test_the_quiet_time_before_the_seal_is_not_part_of_it() -> None:
    assert ended(draining("v1-1"), idle_since=NOW - 20, busy_at=NOW - 21).drain_seconds == 60 - 20 - PROPAGATION


def test_what_ended_before_the_propagation_time_took_no_time() -> None:
    found = ended(draining("v1-1"), idle_since=NOW - 59, busy_at=None)
    assert (found.drain_seconds, found.censored) == (0, False)


def test_a_drain_whose_end_nobody_saw_lasted_at_least_until_it_was_last_seen() -> None:
    found = ended(draining("v1-1"), busy_at=NOW - 30)
    assert (found.drain_seconds, found.censored) == (60 - 30 - PROPAGATION, True)


def test_a_successor_goes_by_what_its_predecessor_wrote_into_the_status() -> None:
    pod = draining("v1-1")
    rows = [
        {
            "name": "v1-1",
            "state": "draining",
            "since": SINCE,
            "observedAt": "2027-01-15T07:59:25Z",
            "inFlight": 2,
        }
    ]
    reading = says(pod, "sealed", idle_since=NOW - 1)
    s = story("v2", pod, *OLD[1:], NEW, readings={pod.name: reading}, status={"pods": rows})
    found = only(s, a.MarkDrained).outcome
    assert (found.drain_seconds, found.censored) == (25 - PROPAGATION, True)
    # Of another drain of the same pod it says nothing.
    other = replace(s, status=LLMServiceStatus.read({"pods": [rows[0] | {"since": "2027-01-15T07:50:00Z"}]}))
    assert only(other, a.MarkDrained).outcome.drain_seconds == 0


def test_a_drain_cut_at_its_deadline_lasted_at_least_until_its_tokens() -> None:
    pod = draining("v1-1", drain=record("v1-1", since=-BUDGET))
    found = ended(pod, cut=2, busy_at=NOW - 8, idle_since=NOW - 4)
    assert (found.outcome, found.censored) == ("Expired", True)
    assert found.drain_seconds == BUDGET - 5 - PROPAGATION


def test_a_pod_whose_process_went_away_lasted_at_least_until_it_was_last_busy() -> None:
    pod = draining("v1-1")
    found = ended(pod, instance="another", busy_at=NOW - 10)
    assert (found.outcome, found.drain_seconds, found.censored) == ("Vanished", 60 - 10 - PROPAGATION, True)


@pytest.mark.parametrize(("age", "late"), [(70.0, 0.0), (57.5, 60 - 57.5 - 1), (float("inf"), 0.0), (None, None)])
def test_the_last_arrival_after_the_withdrawal_is_kept(age: float | None, late: float | None) -> None:
    assert ended(draining("v1-1"), last_arrival_seconds=age).last_arrival_after_seconds == late


# -- counted once


def over(name: str, seconds: float = 20.0, *, cut: bool = False, late: float | None = 0.0) -> Pod:
    pod = drained(name)
    assert pod.outcome is not None
    kind = "Expired" if cut else "Drained"
    outcome = replace(pod.outcome, outcome=kind, drain_seconds=seconds, censored=cut, last_arrival_after_seconds=late)
    return replace(pod, outcome=outcome)


def test_each_drained_pod_is_counted_once() -> None:
    s = story("v2", over("v1-1", 20), over("v1-2", 90, cut=True), OLD[2], NEW)
    first = counted(s)
    assert (first.drains.n, first.drains.censored_n, first.arrivals.n) == (2, 1, 2)
    assert first.counted == ("v1-1", "v1-2")
    assert plan(replace(s, drain_times=first)).learnt is None
    later = story("v2", over("v1-1"), over("v1-2"), over("v1-3"), NEW, drain_times=first)
    assert (counted(later).drains.n, counted(later).counted) == (3, ("v1-1", "v1-2", "v1-3"))


def test_a_pod_that_terminates_already_is_counted_still() -> None:
    assert counted(story("v2", going(over("v1-1")), *OLD[1:], NEW)).drains.n == 1


def test_a_pod_without_work_teaches_nothing() -> None:
    assert plan(story("v2", drained("v1-1"), *OLD[1:], NEW)).learnt is None


def test_a_pod_that_vanished_from_its_drain_is_counted_from_the_status() -> None:
    row = {
        "name": "v1-1",
        "state": "draining",
        "since": SINCE,
        "observedAt": "2027-01-15T07:59:25Z",
        "inFlight": 2,
    }
    s = story("v2", *OLD[1:], NEW, status={"pods": [row]})
    found = counted(s)
    assert (found.drains.n, found.drains.censored_n, found.counted) == (1, 1, ("v1-1",))
    assert plan(replace(s, drain_times=found)).learnt is None
    empty = replace(s, status=LLMServiceStatus.read({"pods": [row | {"inFlight": 0}]}))
    (bucket,) = counted(empty).drains.censored
    assert bucket == 0


def test_a_draining_pod_that_stands_is_not_counted_yet() -> None:
    row = {"name": "v1-1", "state": "draining", "since": SINCE}
    assert plan(story("v2", draining("v1-1"), *OLD[1:], NEW, status={"pods": [row]})).learnt is None
    assert plan(story("v2", *OLD, NEW, status={"pods": [row]})).learnt is None


def test_what_is_set_aside_is_not_added_to() -> None:
    assert plan(story("v2", over("v1-1"), *OLD[1:], NEW, drain_times_trouble="rubbish")).learnt is None


def test_names_are_kept_while_their_pods_can_be_seen() -> None:
    known = DrainTimes()
    for number in range(300):
        one = Counted(f"pod-{number}", Sample(1.0, False, NOW))
        known = known.add([one], {}, {}, standing=frozenset({"pod-3"}))
    assert "pod-3" in known.counted
    assert len(known.counted) == 101
    assert known.counted[-1] == "pod-299"


def test_a_watched_teardown_joins_the_next_drain_and_counts_once() -> None:
    torn = {"v1-0": Sample(4.0, False, NOW)}
    first = counted(story("v2", over("v1-1"), *OLD[1:], NEW, teardowns=torn))
    assert (first.teardowns.n, first.teardown_counted) == (1, ("v1-0",))
    second = counted(story("v2", over("v1-1"), over("v1-2"), OLD[2], NEW, teardowns=torn, drain_times=first))
    assert second.teardowns.n == 1


# -- the document


def test_a_document_comes_back_as_it_was() -> None:
    known = learnt(5.0, 20.0, cut=(60.0,))
    again = load(known.dump())
    assert again.dump() == known.dump()
    assert grace_period(spec_of(), again) == grace_period(spec_of(), known)
    assert again.expired_share == pytest.approx(1 / 3, rel=1e-3)


def test_a_document_stays_small() -> None:
    known = DrainTimes()
    for number in range(1000):
        one = Counted(f"chat-5c9f2b7d1e-6d4cf5-{number:05}", Sample(1.0 + number % 500, False, NOW + number * 180))
        known = known.add([one], {}, {}, standing=frozenset())
    assert len(known.dump()) < 12_000


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": 2}, "version"),
        ({"more": 1}, "more"),
        ({"expired": -1}, "expired"),
        ({"expired": 50}, "expired"),
        ({"counted": "all"}, "counted"),
        ({"counted": [1]}, "counted"),
        ({"previous": {"drain": {"seconds": "long", "at": 0}}}, "seconds"),
        ({"previous": {"drain": 5}}, "previous"),
        ({"ages": {"a": {"seconds": 1e9, "at": 0}}}, "ages"),
        ({"drains": {"version": 1}}, "drains"),
    ],
)
def test_content_that_no_operator_wrote_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Unreadable, match=why):
        load(json.dumps(json.loads(learnt(5.0).dump()) | change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 5000, "{" + " " * 600_000 + "}"])
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        load(text)


# -- the terms


def seconds(known: DrainTimes, **drain: Any) -> dict[str, int]:
    grace = grace_period(spec_of(drain=drain), known)
    return {term.name: term.seconds for term in grace.terms} | {"sum": grace.seconds}


def test_without_drains_the_declared_terms_hold() -> None:
    assert seconds(DrainTimes()) == {"propagation": 5, "drain": 120, "teardown": 10, "safety": 5, "sum": 140}
    assert {str(term.source) for term in grace_period(spec_of()).terms} == {"Declared"}


def test_a_cut_drain_raises_the_term_by_half_until_past_it() -> None:
    grown = learnt(cut=(150.0,))
    term = next(t for t in grace_period(spec_of(), grown).terms if t.name == "drain")
    assert (term.seconds, str(term.source), term.samples) == (180, "Measured", 1)
    assert seconds(grown)["sum"] == 200


def test_it_shrinks_by_a_fifth_a_day_and_not_before_the_next_drain() -> None:
    known = learnt(*[5.0] * 400)
    assert seconds(known)["drain"] == 120
    for day in range(1, 4):
        one = Counted(f"d-{day}", Sample(5.0, False, NOW + day * DAY))
        known = known.add([one], {}, in_force(spec_of(), known, NOW), standing=frozenset())
        assert seconds(known)["drain"] == -(-120 * 0.8**day // 1)


def test_the_cap_holds_the_sum_and_says_so() -> None:
    grace = grace_period(spec_of(), learnt(cut=(900.0,)))
    assert grace.seconds == 600
    assert "spec.drain.grace.maxSeconds" in str(terms.message(grace.terms[1]))


def test_late_arrivals_lengthen_the_propagation_term_and_never_shorten_it() -> None:
    def with_late(late: float) -> DrainTimes:
        ones = [Counted(f"p-{n}", Sample(1.0, False, NOW), Sample(late, False, NOW)) for n in range(400)]
        return DrainTimes().add(ones, {}, in_force(spec_of(), DrainTimes(), NOW), standing=frozenset())

    assert seconds(with_late(1.0))["propagation"] == 5
    late = grace_period(spec_of(), with_late(12.0)).terms[0]
    assert 12 <= late.seconds <= 13
    assert str(late.source) == "Measured"


def test_a_slow_teardown_lengthens_its_term() -> None:
    torn = {f"t-{n}": Sample(25.0, False, NOW) for n in range(3)}
    known = DrainTimes().add(
        [Counted("a", Sample(1.0, False, NOW))], torn, in_force(spec_of(), DrainTimes(), NOW), standing=frozenset()
    )
    term = grace_period(spec_of(), known).terms[2]
    assert (term.name, term.seconds, term.samples) == ("teardown", 34, 3)


def test_a_declared_time_of_nothing_can_grow() -> None:
    assert seconds(DrainTimes(), grace={"initialSeconds": 0})["drain"] == 0
    assert seconds(learnt(cut=(4.0,)), grace={"initialSeconds": 0})["drain"] > 4


# -- what is shown


def test_the_status_shows_each_term_with_what_it_rests_on() -> None:
    document = status(plan(story("v1", *OLD, drain_times=learnt(*[20.0] * 40)))).document()
    terms = {term["name"]: term for term in document["gracePeriod"]["terms"]}
    assert document["gracePeriod"]["seconds"] == sum(term["seconds"] for term in terms.values())
    assert terms["drain"]["samples"] == 40
    assert terms["drain"]["covers"] == pytest.approx(0.9278, abs=1e-3)
    assert "40 samples cover P92" in terms["drain"]["message"]
    assert terms["safety"] == {"name": "safety", "seconds": 5, "source": "Declared"}
    shown = document["drainTimes"]
    assert (shown["samples"], shown["censored"], shown["p50Seconds"], shown["p99Seconds"]) == (40, 0, 21, 21)


def page() -> str:
    return (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "grace-period.md").read_text(encoding="utf-8")


def told_drains(text: str) -> list[float]:
    """The drain times of which the page shows the status."""
    found = re.search(r"whose drains took ([\d, ]+) and (\d+) s", " ".join(text.split()))
    assert found is not None
    return [float(number) for number in f"{found[1]}, {found[2]}".split(",")]


def described(content: Any) -> Iterator[str]:
    """As `kubectl describe` prints a custom resource, spaces aside: keys sorted and in words, lists without marks."""
    for item in content if isinstance(content, list) else [content]:
        for key in sorted(item, key=lambda name: str(name[0]).upper() + name[1:]):
            if isinstance(item[key], dict | list):
                yield f"{_words(key)}:"
                yield from described(item[key])
            else:
                yield f"{_words(key)}: {item[key]}"


def _words(key: str) -> str:
    return key if re.match(r"p\d", key) else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", key[0].upper() + key[1:])


def test_the_page_shows_what_kubectl_describe_shows_of_such_a_service() -> None:
    """Three rollouts of four pods, each counted in a write of its own; of the last ones the teardown is not in yet."""
    known, took = DrainTimes(), told_drains(page())
    for n, seconds_ in enumerate(took):
        one = Counted(f"p-{n}", Sample(seconds_, False, NOW), Sample(0.0, False, NOW))
        torn = {f"p-{n - 2}": Sample(4.0, False, NOW)} if n >= 2 else {}
        known = known.add([one], torn, in_force(spec_of(), known, NOW), standing=frozenset())
    document = status(plan(story("v1", *OLD, drain_times=known))).document()
    shown = {key: document[key] for key in ("drainTimes", "gracePeriod")}
    lines = [" ".join(line.split()) for line in page().splitlines()]
    first = lines.index("Drain Times:")
    expected = list(described(shown))
    assert lines[first : first + len(expected)] == expected
    # And what is made of it in words.
    terms = {term["name"]: term["seconds"] for term in document["gracePeriod"]["terms"]}
    told = " ".join(lines)
    assert f"{' + '.join(map(str, terms.values()))} = {document['gracePeriod']['seconds']} s" in told
    times = document["drainTimes"]
    assert f"took at most {times['p50Seconds']} s, and the longest took {times['p99Seconds']} s" in told
    assert f"may be as long as {times['p99UpperSeconds']} s" in told


def test_a_service_that_counted_nothing_shows_no_drain_times() -> None:
    assert "drainTimes" not in status(plan(story("v1", *OLD))).document()


def test_what_is_learnt_does_not_move_by_time_alone() -> None:
    s = story("v1", *OLD, drain_times=learnt(*[20.0] * 40))
    settled = replace(s, status=status(plan(s)))
    assert status(plan(replace(settled, now=NOW + 30 * DAY))).document() == settled.status.document()


def conditions(s: Snapshot) -> dict[str, str]:
    return {c["type"]: c["message"] for c in status(plan(s)).document()["conditions"]}


def test_budget_truncating_needs_drains_that_spent_their_budget() -> None:
    lost = story("v1", *OLD, drain_times=learnt(5.0, 6.0, cut=(50.0,), expired=False))
    assert "BudgetTruncating" not in conditions(lost)
    assert "BudgetTruncating" not in conditions(story("v1", *OLD, drain_times=learnt(5.0)))
    spent = story("v1", *OLD, drain_times=learnt(5.0, 6.0, cut=(590.0,)))
    assert "1 of the latest 3 drains" in conditions(spent)["BudgetTruncating"]
    assert "spec.drain.budgetSeconds" in conditions(spent)["BudgetTruncating"]
    past = story("v1", *OLD, drain_times=learnt(*[5.0] * 2000, cut=(590.0,)))
    assert "BudgetTruncating" not in conditions(past)


@pytest.mark.parametrize(
    ("known", "kind"),
    [
        (learnt(12.0, 400.0), "GracePeriodStale"),
        (learnt(5.0, 6.0, cut=(12.0, 12.0)), "BudgetTruncating"),
        (learnt(*[5.0] * 200, cut=(590.0,) * 100), "BudgetTruncating"),
    ],
)
def test_the_headline_of_a_healthy_service_is_that_it_serves(known: DrainTimes, kind: str) -> None:
    s = story("v1", *OLD, drain_times=known)
    assert kind in conditions(s)
    assert status(plan(s)).message == "3 of 3 pods are serving, all of revision chat-v1."


def test_a_rendering_that_the_next_revision_mends_is_no_headline() -> None:
    s = story("v1", *OLD)
    outdated = replace(s, deployments=(replace(s.deployments[0], rendered="another"),))
    assert "TemplateOutdated" in conditions(outdated)
    assert status(plan(outdated)).message == "3 of 3 pods are serving, all of revision chat-v1."


def test_what_somebody_has_to_mend_is_the_headline_beside_what_needs_nobody() -> None:
    s = story("v1", *OLD, drain_times=learnt(12.0, 400.0), locks_missing=("tidegate-pod-delete",))
    assert status(plan(s)).message.startswith("Admission policies not in force: tidegate-pod-delete.")


def test_of_few_drains_numbers_are_told_and_of_many_shares() -> None:
    few = story("v1", *OLD, drain_times=learnt(5.0, 6.0, cut=(12.0, 12.0)))
    assert conditions(few)["BudgetTruncating"].startswith("2 of the latest 4 drains had requests cut")
    (drain,) = [term for term in grace_period(spec_of(), few.drain_times).terms if term.name == "drain"]
    assert str(terms.message(drain)).startswith("4 samples, 2 of them without an end, are too few for a P99:")
    assert "%" not in str(terms.message(drain))
    many = story("v1", *OLD, drain_times=learnt(*[5.0] * 60, cut=(590.0,) * 40))
    assert conditions(many)["BudgetTruncating"].startswith("40 % of the latest drains had requests cut")
    (drain,) = [term for term in grace_period(spec_of(), many.drain_times).terms if term.name == "drain"]
    assert str(terms.message(drain)).startswith("More than 1 % of drains last longer than")


def test_a_measured_grace_period_is_stale_when_it_is_off_by_more_than_a_tenth() -> None:
    grown = learnt(cut=(125.0,))
    assert seconds(grown)["sum"] == 200
    s = story("v1", *OLD, drain_times=grown)
    held = s.deployments[0]
    assert "200 s" in conditions(s)["GracePeriodStale"]
    near = replace(s, deployments=(replace(held, grace_seconds=185),))
    assert "GracePeriodStale" not in conditions(near)


def test_a_changed_p99_rolls_no_pod() -> None:
    decided = plan(story("v1", *OLD, drain_times=learnt(cut=(400.0,))))
    assert decided.actions == ()


def test_set_aside_content_is_a_condition() -> None:
    assert conditions(story("v1", *OLD, drain_times_trouble="ConfigMap x: why"))["DrainTimesUnreadable"].endswith("why")


def test_a_term_on_its_way_down_to_the_declared_one_is_shown_as_it_is() -> None:
    known = learnt(cut=(290.0,))
    one = Counted("late", Sample(1.0, False, NOW + 3 * DAY))
    known = known.add([one], {}, in_force(spec_of(), known, NOW), standing=frozenset())
    term = grace_period(spec_of(), known).terms[1]
    assert (term.seconds, str(term.source)) == (208, "Measured")
    assert "Decreasing by at most 20 % a day to 120 s." in str(terms.message(term))
