"""The histogram of drains: buckets, decay, merging, and what it makes of content that is not its own."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.core.drain_time.histogram import (
    EDGES,
    GROWTH,
    HALF_LIFE,
    LONGEST,
    Histogram,
    HistogramUnreadable,
    Sample,
    load,
)

SAMPLES = st.lists(
    st.builds(Sample, seconds=st.floats(0, LONGEST), censored=st.booleans(), at=st.floats(0, 30 * HALF_LIFE)),
    max_size=8,
)


def close(a: Histogram, b: Histogram) -> bool:
    """Equal but for rounding."""

    def same(x: float, y: float) -> bool:
        return x == pytest.approx(y, rel=1e-9, abs=1e-12)

    return (
        (a.n, a.censored_n, a.at) == (b.n, b.censored_n, b.at)
        and same(a.squares, b.squares)
        and a.finished.keys() == b.finished.keys()
        and a.censored.keys() == b.censored.keys()
        and all(same(a.finished[i], b.finished[i]) for i in a.finished)
        and all(same(a.censored[i], b.censored[i]) for i in a.censored)
    )


@given(seconds=st.floats(0, LONGEST))
def test_a_bucket_is_at_most_2_percent_long(seconds: float) -> None:
    (index,) = Histogram().add([Sample(seconds)]).finished
    assert EDGES[index] >= seconds
    assert index == 0 or EDGES[index - 1] < seconds
    assert EDGES[index] <= max(0.1, seconds * GROWTH) * (1 + 1e-12)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), LONGEST * 1.001])
def test_what_is_no_duration_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        Histogram().add([Sample(1.0), Sample(seconds)])


def test_a_sample_without_a_finite_time_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        Histogram().add([Sample(1.0, at=float("nan"))])


def test_weights_halve_in_24_hours() -> None:
    old = Histogram().add([Sample(10.0, at=1e9), Sample(20.0, censored=True, at=1e9)])
    new = old.add([Sample(10.0, at=1e9 + HALF_LIFE)])
    assert sorted(new.finished.values()) == [pytest.approx(1.5)]
    assert list(new.censored.values()) == [pytest.approx(0.5)]
    assert new.effective_n == pytest.approx(2.0**2 / (1 + 0.25 + 0.25))


def test_effective_n_is_n_while_all_weigh_the_same() -> None:
    assert Histogram().effective_n == 0
    same = Histogram().add(Sample(float(i), at=5.0) for i in range(1, 78))
    assert same.effective_n == pytest.approx(77)
    assert same.decayed(5.0 + 3 * HALF_LIFE).effective_n == pytest.approx(77)


def test_effective_n_of_a_steady_stream_of_drains() -> None:
    # r drains a day for ever: sum w = r H / ln 2, sum w^2 = r H / (2 ln 2), so (sum w)^2 / sum w^2 = 2 r / ln 2.
    h = Histogram().add(Sample(10.0, at=i * HALF_LIFE / 20) for i in range(20 * 30))
    assert h.effective_n == pytest.approx(2 * 20 / 0.693147, rel=0.001)


@settings(max_examples=50)
@given(samples=SAMPLES, seed=st.integers(0, 100))
def test_the_order_of_samples_does_not_matter(samples: list[Sample], seed: int) -> None:
    shuffled = list(samples)
    Random(seed).shuffle(shuffled)
    one_by_one = Histogram()
    for sample in shuffled:
        one_by_one = one_by_one.add([sample])
    assert close(one_by_one, Histogram().add(samples))


@settings(max_examples=50)
@given(samples=SAMPLES, days=st.floats(0, 50), more=st.floats(0, 50))
def test_decay_in_two_steps_is_decay_in_one(samples: list[Sample], days: float, more: float) -> None:
    h = Histogram().add(samples)
    first, second = h.at + days * HALF_LIFE, h.at + (days + more) * HALF_LIFE
    stepwise, at_once = h.decayed(first).decayed(second), h.decayed(second)
    assert close(stepwise, at_once)
    assert at_once.weight <= h.weight


def test_weights_are_not_taken_back() -> None:
    with pytest.raises(ValueError, match="cannot be taken back"):
        Histogram().add([Sample(1.0, at=100.0)]).decayed(99.0)


@given(samples=SAMPLES)
@settings(deadline=None, max_examples=60)
def test_what_is_kept_is_read_again(samples: list[Sample]) -> None:
    h = Histogram().add(samples)
    again = load(json.loads(json.dumps(h.dump())))
    assert (again.n, again.censored_n, again.at) == (h.n, h.censored_n, pytest.approx(h.at, abs=0.001))
    assert again.weight == pytest.approx(h.weight, rel=0.001, abs=0.02)
    kept = {i for i, weight in h.finished.items() if weight >= 0.001}
    assert again.finished.keys() == kept
    assert again.dump() == h.dump()


def test_it_stays_small() -> None:
    random = Random(2)

    def day(number: int, drains: int) -> list[Sample]:
        return [Sample(random.lognormvariate(3.0, 0.8), False, number * HALF_LIFE) for _ in range(drains)]

    busy, usual = Histogram(), Histogram()
    for number in range(30):
        busy = busy.add(day(number, 2000))
        usual = load(usual.add(day(number, 20)).dump())
    assert len(json.dumps(busy.dump())) < 6000
    assert len(json.dumps(usual.dump())) < 2500


def test_what_was_last_seen_long_ago_is_forgotten() -> None:
    h = Histogram().add([Sample(500.0, at=0.0), Sample(20.0, at=11 * HALF_LIFE)])
    assert len(h.finished) == 2
    assert len(load(h.dump()).finished) == 1


def good() -> dict[str, Any]:
    return Histogram().add([Sample(10.0, at=7.0), Sample(30.0, censored=True, at=7.0)]).dump()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "version is 2"),
        ({"version": True}, "version is True"),
        ({"version": None}, "version is None"),
        ({"extra": 1}, "fields missing or unknown: extra"),
        ({"at": "soon"}, "at is not a number"),
        ({"at": -1}, "at is not a number"),
        ({"at": float("nan")}, "at is not a number"),
        ({"halfLifeSeconds": 0}, "halfLifeSeconds is not above 0"),
        ({"samples": 1.5}, "samples is not a whole number"),
        ({"samples": True}, "samples is not a whole number"),
        ({"samplesCensored": 3}, "samplesCensored is more than samples"),
        ({"squares": float("inf")}, "squares is not a number"),
        ({"squares": 0.5}, "squares does not agree"),
        ({"squares": 40}, "squares does not agree"),
        ({"finished": [1]}, "finished is not an object"),
        ({"finished": {"790": 1}}, "finished has no bucket '790'"),
        ({"finished": {"-1": 1}}, "finished has no bucket '-1'"),
        ({"finished": {"01": 1}}, "finished has no bucket '01'"),
        ({"finished": {"5": 0}}, "finished.5 is not a weight"),
        ({"finished": {"5": "1"}}, "finished.5 is not a weight"),
        ({"finished": {"5": 9}}, "weigh more than the samples"),
        ({"censored": {"5": 1.5}, "finished": {}}, "weigh more than the samples"),
    ],
)
def test_foreign_content_is_refused_by_name(change: dict[str, Any], reason: str) -> None:
    load(good())
    with pytest.raises(HistogramUnreadable, match=reason):
        load(good() | change)


@pytest.mark.parametrize("content", [None, [], "x", 3, {}, {"version": 1}])
def test_what_is_no_histogram_at_all_is_refused(content: object) -> None:
    with pytest.raises(HistogramUnreadable):
        load(content)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(good())), value=JSON)
def test_any_content_is_read_or_refused_and_never_breaks(field: str, value: object) -> None:
    try:
        h = load(good() | {field: value})
    except HistogramUnreadable:
        return
    assert h.weight <= h.n * 1.01
