"""The drain term: where it begins, how it grows and shrinks, what holds it, and what services make of their drains.

The drains of the services are made from published lengths of LLM answers (dev/plots/drain_time.py).
"""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from dev.plots.drain_time import Day, Drains, learn, picture, story
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.drain_time.drain_term import DAY, DrainTerm, Reason, TermInForce, drain_term
from tidegate.core.drain_time.histogram import Histogram, Sample
from tidegate.core.drain_time.survival import estimate
from tidegate.core.report.terms import percent, rests_on

CHECKOUT = Path(__file__).resolve().parents[2]


def term(
    samples: list[tuple[float, bool]],
    prior: float = 120.0,
    cap: float = 580.0,
    at: float = 0.0,
    previous: TermInForce | None = None,
) -> DrainTerm:
    histogram = Histogram().add(Sample(seconds, cut, at) for seconds, cut in samples)
    return drain_term(estimate(histogram, prior), prior=prior, cap=cap, at=at, previous=previous)


def test_it_begins_at_the_declared_time() -> None:
    first = term([])
    assert (first.seconds, first.reason, first.source) == (120.0, Reason.DECLARED, "Declared")
    assert rests_on(first) == "No samples yet: the declared 120 s."


def test_few_samples_lower_it_and_say_how_little_they_cover() -> None:
    few = term([(8.0, False)] * 20)
    assert 8 < few.seconds < 60
    assert (few.reason, few.source) == (Reason.FEW_SAMPLES, "Measured")
    assert "20 samples cover P86" in rests_on(few)


def test_299_samples_carry_it_alone() -> None:
    enough = term([(8.0, False)] * 299)
    assert enough.reason is Reason.MEASURED
    assert enough.seconds == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize(("cut_at", "expected"), [(60, 120), (119, 120), (120, 180), (180, 270), (400, 405)])
def test_where_drains_are_cut_it_grows_by_half_until_past_them(cut_at: float, expected: float) -> None:
    # Half of the drains ended, the others were cut.
    grown = term([(cut_at / 2, False), (cut_at, True)] * 100)
    assert grown.truncated
    assert grown.seconds == expected
    assert grown.reason is (Reason.OUTGROWN if expected > 120 else Reason.DECLARED)
    assert "so the P99 is unknown" in rests_on(grown)


def test_it_grows_once_for_the_same_drains() -> None:
    samples = [(60.0, False), (120.0, True)] * 50
    once = term(samples, at=0.0)
    again = term(samples, at=3600.0, previous=once.in_force)
    assert (once.seconds, again.seconds) == (180, 180)


def test_ages_that_were_read_before_the_first_drain_do_not_make_it_grow() -> None:
    ages = term([(5.0, True), (40.0, True), (70.0, True)])
    assert (ages.seconds, ages.source) == (120.0, "Declared")


@pytest.mark.parametrize("hours", [1, 24, 72])
def test_it_shrinks_by_20_percent_a_day_at_most(hours: float) -> None:
    shrunk = term([(8.0, False)] * 400, at=hours * 3600, previous=TermInForce(200.0, 0.0))
    assert shrunk.seconds == pytest.approx(200 * 0.8 ** (hours / 24))
    assert shrunk.shrinking


@given(steps=st.lists(st.floats(0, 0.5), min_size=1, max_size=12))
@settings(deadline=None, max_examples=25)
def test_shrinking_does_not_depend_on_how_often_it_is_reckoned(steps: list[float]) -> None:
    force = TermInForce(300.0, 0.0)
    for step in steps:
        found = term([(20.0, False)] * 300, at=force.at + step * DAY, previous=force)
        force = found.in_force
    assert force.seconds == pytest.approx(max(found.target, 300 * 0.8 ** sum(steps)))


def test_it_stops_shrinking_at_what_the_drains_ask_for() -> None:
    shrunk = term([(8.0, False)] * 400, at=90 * DAY, previous=TermInForce(200.0, 0.0))
    assert (shrunk.seconds, shrunk.shrinking) == (shrunk.target, False)


def test_upward_it_follows_at_once() -> None:
    assert term([(70.0, False)] * 400, at=1.0, previous=TermInForce(10.0, 0.0)).seconds == pytest.approx(70, rel=0.02)


def test_a_clock_that_went_back_shrinks_nothing() -> None:
    assert term([(8.0, False)] * 400, at=0.0, previous=TermInForce(200.0, 5 * DAY)).seconds == 200


def test_the_cap_holds_it_and_is_named() -> None:
    held = term([(300.0, True)] * 10, cap=200.0)
    assert (held.seconds, held.target, held.capped) == (200.0, 405.0, True)
    assert not term([(30.0, False)], cap=200.0).capped
    falling = term([(8.0, False)] * 400, cap=100.0, at=60.0, previous=TermInForce(300.0, 0.0))
    assert (falling.seconds, falling.capped) == (100.0, True)


def test_a_cap_that_the_other_terms_exceed_is_refused() -> None:
    with pytest.raises(ValueError, match="exceed the cap by 3 seconds"):
        term([], cap=-3.0)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0"), (0.5493, "54"), (0.8999, "89"), (0.9899, "98"), (0.99, "99"), (0.9949, "99.4"), (0.9990, "99.9")],
)
def test_a_percentile_is_never_rounded_up(share: float, text: str) -> None:
    assert percent(share) == text


@cache
def told() -> tuple[list[Day], int]:
    return story()


def test_after_a_budget_that_was_too_short_it_grows_to_the_truth_where_a_percentile_sticks() -> None:
    days, change = told()
    before, after = days[:change], days[change:]
    # Nearly all are cut at first, and for the plain percentile it stays so: it sees nothing longer than its limit.
    assert before[0].cut > 60
    assert {day.plain for day in days} == {20.0}
    assert all(day.cut_plain > 60 for day in before)
    # Each step is a half more than the last, until they are past the truth; from there it comes back to it.
    assert [day.term for day in days[:5]] == [20.0, 30.0, 45.0, 67.5, 101.25]
    settled = before[8:]
    assert all(day.truth <= day.term <= 1.35 * day.truth for day in settled)
    assert sum(day.cut for day in settled) <= 0.01 * 120 * len(settled)
    # Streams that take half as long: it follows, by 20 % a day at most, and never below the truth.
    assert after[0].truth == pytest.approx(settled[0].truth / 2, rel=0.05)
    assert all(now.term >= 0.8 * last.term - 1e-9 for last, now in pairwise(days))
    assert all(day.term >= day.truth for day in after)
    assert after[-1].term <= 1.2 * after[-1].truth


@pytest.mark.parametrize("trace", ["azure-conversation", "mooncake"])
def test_a_service_with_few_drains_is_held_by_its_declaration_and_cuts_few(trace: str) -> None:
    days = learn([(25, Drains(trace, 32, Random(6)))], per_day=15, prior=120.0)
    assert all(day.term <= 120.0 for day in days)
    assert sum(day.cut for day in days) <= 0.01 * 15 * len(days)
    assert days[-1].term < 120.0 or trace == "mooncake"


def test_a_load_that_drifts_upward_is_followed() -> None:
    random = Random(8)
    phases = [(6, Drains("azure-conversation", 16, random, pace=1 + 0.3 * step)) for step in range(4)]
    days = learn(phases, per_day=150, prior=60.0)
    assert days[-1].truth > 1.7 * days[0].truth
    # Two days after each step of the load it is there again.
    assert all(day.term >= 0.95 * day.truth for i, day in enumerate(days) if i % 6 >= 2)
    assert sum(day.cut for day in days[6:]) <= 0.01 * 150 * len(days[6:])


def test_the_picture_in_the_docs_is_the_one_of_this_code() -> None:
    days, change = told()
    assert (CHECKOUT / "docs" / "img" / "drain-time.svg").read_text(encoding="utf-8") == picture(days, change)
    lines = re.findall(r'<polyline points="([^"]+)"', picture(days, change))
    assert [len(line.split()) for line in lines] == [2 * len(days)] * 3
