"""Percentiles, bounds and coverage: against scipy, closed forms, and on data that deceive a percentile."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random

import pytest
from dev.plots.drain_time import QUANTILES, Drains, percentile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tidegate.core.drain_time.histogram import EDGES, GROWTH, HALF_LIFE, Histogram, Sample
from tidegate.core.drain_time.survival import Curve, estimate, kaplan_meier, outgrown

PAIRS = st.lists(st.tuples(st.floats(0.2, 5000), st.booleans()), min_size=1, max_size=60)


def histogram(samples: Sequence[tuple[float, bool]]) -> Histogram:
    return Histogram().add(Sample(seconds, cut) for seconds, cut in samples)


def cut_at(values: Sequence[float], limit: float) -> list[tuple[float, bool]]:
    return [(min(value, limit), value > limit) for value in values]


def oracle(samples: Sequence[tuple[float, bool]], *, rounded: bool) -> stats._survival.EmpiricalDistributionFunction:
    """scipy's Kaplan-Meier, on the exact values or on the bucket edges."""

    def value(seconds: float) -> float:
        return EDGES[bisect_left(EDGES, seconds)] if rounded else seconds

    censored = stats.CensoredData(
        uncensored=[value(s) for s, cut in samples if not cut], right=[value(s) for s, cut in samples if cut]
    )
    return stats.ecdf(censored).sf


def quantile_of(sf: stats._survival.EmpiricalDistributionFunction, share: float) -> float | None:
    return next((q for q, p in zip(sf.quantiles, sf.probabilities, strict=True) if p <= 1 - share + 1e-12), None)


@given(samples=PAIRS)
@settings(deadline=None, max_examples=40)
def test_the_curve_is_scipy_s(samples: list[tuple[float, bool]]) -> None:
    curve, sf = kaplan_meier(histogram(samples)), oracle(samples, rounded=True)
    for step in curve.steps:
        assert step.survival == pytest.approx(sf.evaluate(step.seconds), abs=1e-12)
    for share in (0.5, 0.9, 0.99):
        assert curve.quantile(share) == quantile_of(sf, share)


@pytest.mark.parametrize("limit", [30.0, 100.0, 330.0, 1e6])
def test_percentiles_are_at_most_2_percent_longer_than_the_exact_ones(limit: float) -> None:
    random = Random(11)
    samples = cut_at([random.expovariate(1 / 60) for _ in range(2000)], limit)
    curve, sf = kaplan_meier(histogram(samples)), oracle(samples, rounded=False)
    told = [share / 100 for share in range(1, 100) if quantile_of(sf, share / 100)]
    assert len(told) == {30.0: 39, 100.0: 81, 330.0: 99, 1e6: 99}[limit]
    for share in told:
        exact, ours = quantile_of(sf, share), curve.quantile(share)
        assert exact is not None and ours is not None
        assert exact <= ours <= exact * GROWTH * (1 + 1e-9)


@given(samples=PAIRS, age=st.floats(0, HALF_LIFE * 300))
@settings(deadline=None, max_examples=40)
def test_age_of_the_whole_sample_changes_nothing(samples: list[tuple[float, bool]], age: float) -> None:
    h = histogram(samples)
    young, old = kaplan_meier(h), kaplan_meier(h.decayed(age))
    assert [s.index for s in young.steps] == [s.index for s in old.steps]
    for a, b in zip(young.steps, old.steps, strict=True):
        assert (a.at_risk, a.survival) == pytest.approx((b.at_risk, b.survival), rel=1e-6, abs=1e-9)


@given(samples=PAIRS)
@settings(deadline=None, max_examples=40)
def test_percentiles_rise_and_lie_within_what_was_seen(samples: list[tuple[float, bool]]) -> None:
    curve = kaplan_meier(histogram(samples))
    survivals = [1.0, *(step.survival for step in curve.steps)]
    assert survivals == sorted(survivals, reverse=True)
    told = [q for q in (curve.quantile(p / 50) for p in range(1, 50)) if q is not None]
    assert told == sorted(told)
    assert all(q <= max(s for s, _ in samples) * GROWTH + 0.1 for q in told)
    if not any(cut for _, cut in samples):
        assert curve.steps[-1].survival == 0


@given(samples=PAIRS, prior=st.floats(1, 1000))
@settings(deadline=None, max_examples=40)
def test_a_drain_that_was_cut_never_shortens_an_estimate(samples: list[tuple[float, bool]], prior: float) -> None:
    ended, known = estimate(histogram([(s, False) for s, _ in samples]), prior), estimate(histogram(samples), prior)
    for was, now in ((ended.p50, known.p50), (ended.p90, known.p90), (ended.p99, known.p99)):
        assert was is not None
        assert now is None or now >= was
    assert known.covers <= ended.covers + 1e-9


@given(samples=PAIRS, prior=st.floats(1, 1000))
@settings(deadline=None, max_examples=40)
def test_the_bound_is_no_less_than_the_p99_and_no_more_than_what_was_declared_or_outgrown(
    samples: list[tuple[float, bool]], prior: float
) -> None:
    found = estimate(histogram(samples), prior)
    if found.truncated:
        assert (found.p99, found.p99_upper) == (None, None)
    else:
        assert found.p99_upper is not None
        assert found.p99 is None or found.p99_upper >= found.p99
        assert found.p99_upper <= outgrown(prior, found.longest)


@given(samples=PAIRS, prior=st.floats(1, 1000), longer=st.floats(1, 10))
@settings(deadline=None, max_examples=40)
def test_longer_drains_never_lower_a_percentile(samples: list[tuple[float, bool]], prior: float, longer: float) -> None:
    short, long = (estimate(histogram([(s * f, cut) for s, cut in samples]), prior) for f in (1.0, longer))
    for was, now in ((short.p50, long.p50), (short.p90, long.p90)):
        # Drains that shared a bucket may part, so that a cut one is no longer at risk: one bucket of slack.
        assert was is None or now is None or now >= was / GROWTH - 0.1


@pytest.mark.parametrize("n", [1, 5, 20, 58, 298, 299, 1000])
def test_coverage_is_the_closed_form(n: int) -> None:
    found = estimate(histogram([(10.0 + i, False) for i in range(n)]), 1e5)
    assert found.covers == pytest.approx(0.05 ** (1 / n), abs=1e-6)
    assert found.from_sample == (n >= 299)
    assert 1 - found.covers**n == pytest.approx(0.95, abs=1e-4)


@pytest.mark.parametrize(("n", "rank"), [(299, 1), (472, 1), (473, 2), (627, 2), (628, 3), (1000, 5), (3000, 21)])
def test_the_bound_is_the_order_statistic(n: int, rank: int) -> None:
    """The rank-th longest: the smallest rank r with P(Binomial(n, 0.01) < r + 1) above 0.05."""
    assert stats.binom.cdf(rank - 1, n, 0.01) <= 0.05 < stats.binom.cdf(rank, n, 0.01)
    # So far apart that each has a bucket of its own, at the end that matters.
    values = [1.0] * (n - 30) + [10 * 1.05**i for i in range(30)]
    expected = next(edge for edge in EDGES if edge >= sorted(values)[-rank])
    found = estimate(histogram([(v, False) for v in values]), 120)
    assert found.p99_upper == expected


def test_few_samples_bring_the_declared_time_down() -> None:
    bounds = [estimate(histogram([(9.0, False)] * n), 120).p99_upper for n in (0, 1, 5, 20, 50, 100, 200, 298, 299)]
    assert bounds[0] == 120
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[2] == pytest.approx(9 + math.log(0.4507 / 0.01) * 2 * 45 / 3.9403, rel=0.02)
    # Nothing jumps where the sample begins to carry the bound alone.
    assert bounds[-2] == pytest.approx(bounds[-1], rel=0.001)
    assert bounds[-1] == pytest.approx(9.0, rel=0.02)


def test_drains_that_were_cut_add_to_the_time_that_all_ran() -> None:
    """On the tail formula with d = 11 that ended, of 41: m = 2 T / chi2(22; 0.05), T over all 41."""
    found = estimate(histogram([(20.0, False)] * 10 + [(10.0, True)] * 30 + [(21.0, False)]), 5000)
    mean = 2 * (11 * 20 + 30 * 10) / stats.chi2.ppf(0.05, 22)
    assert found.p99_upper == pytest.approx(21 + math.log((1 - found.covers) / 0.01) * mean, rel=0.03)


def exponential(random: Random) -> float:
    return random.expovariate(1 / 60)


def lognormal(random: Random) -> float:
    return random.lognormvariate(3.0, 0.6)


EXPONENTIAL_P99 = 60 * math.log(100)
LOGNORMAL_P99 = math.exp(3.0 + 0.6 * stats.norm.ppf(0.99))


@pytest.mark.parametrize(
    ("draw", "truth"), [(exponential, EXPONENTIAL_P99), (lognormal, LOGNORMAL_P99)], ids=["exponential", "lognormal"]
)
@pytest.mark.parametrize("n", [10, 60, 150, 320])
def test_the_bound_holds_in_95_of_100_services(draw: Callable[[Random], float], truth: float, n: int) -> None:
    random = Random(n)
    trials = 100
    held = 0
    for _ in range(trials):
        found = estimate(histogram([(draw(random), False) for _ in range(n)]), truth * 1.1)
        held += found.p99_upper is None or found.p99_upper >= truth
    # 95 % less three standard errors of so many trials.
    assert held / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)


@pytest.mark.parametrize("limit", [200.0, 320.0])
def test_the_bound_holds_when_many_are_cut(limit: float) -> None:
    """Half of the drains are cut at an even random time, as pods that vanish are, the rest at a budget."""
    random = Random(7)
    trials, held, told = 60, 0, 0
    for _ in range(trials):
        samples = []
        for _ in range(700):
            until = random.uniform(0, 600) if random.random() < 0.5 else limit
            samples += cut_at([exponential(random)], until)
        # Declared far too long, so that it cannot be what makes the bound hold.
        found = estimate(histogram(samples), 2000)
        told += found.p99_upper is not None and found.p99_upper < 2000
        held += found.p99_upper is None or found.p99_upper >= EXPONENTIAL_P99
    assert held / trials >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / trials)
    assert told / trials > 0.9


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit", [None, 330.0])
def test_3000_exponential_drains(seed: int, limit: float | None) -> None:
    random = Random(seed)
    found = estimate(histogram(cut_at([exponential(random) for _ in range(3000)], limit or 1e6)), 120)
    assert found.p99 == pytest.approx(276, rel=0.1)
    assert found.p99_upper is not None and found.p99 < found.p99_upper < 276 * 1.25
    assert (found.truncated, found.from_sample) == (False, True)


def test_cut_at_120_seconds_they_tell_no_p99() -> None:
    random = Random(1)
    found = estimate(histogram(cut_at([exponential(random) for _ in range(3000)], 120)), 120)
    assert (found.p99, found.p99_upper, found.p90, found.truncated) == (None, None, None, True)
    assert found.p50 == pytest.approx(60 * math.log(2), rel=0.1)
    assert found.covers == pytest.approx(1 - math.exp(-2), abs=0.03)


def test_ages_alone_say_nothing_but_that_the_p99_is_beyond() -> None:
    found = estimate(histogram([(10.0, True), (20.0, True), (30.0, True)]), 120)
    assert (found.p50, found.p99, found.covers, found.truncated) == (None, None, 0.0, True)
    assert outgrown(120, found.longest) == 120


def test_one_age_beyond_the_drains_does_not_pass_for_truncation() -> None:
    drains = [(float(s), False) for s in range(1, 60)]
    found = estimate(histogram([*drains, (70.0, True)]), 300)
    assert not found.truncated
    assert found.p99 is None
    assert found.p99_upper is not None and 70 < found.p99_upper <= 300


def test_an_old_outlier_fades() -> None:
    h = Histogram().add([Sample(500.0, censored=True, at=0.0)])
    bounds = []
    for day in range(12):
        h = h.add(Sample(10.0, at=day * HALF_LIFE) for _ in range(50))
        bounds.append(estimate(h, 120).p99_upper)
    assert bounds[0] is not None and bounds[0] > 500
    assert bounds[-1] is not None and bounds[-1] < 40


def test_old_samples_count_for_less() -> None:
    h = Histogram().add(Sample(10.0, at=day * HALF_LIFE) for day in range(40) for _ in range(30))
    found = estimate(h, 120)
    assert (found.n, found.n_effective) == (1200, pytest.approx(90, rel=0.01))
    assert found.covers == pytest.approx(0.05 ** (1 / found.n_effective), abs=1e-6)
    assert not found.from_sample


def test_a_memory_does_not_make_up_for_drains_that_are_cut_now() -> None:
    """One drain that ended at 500 s nine days ago ends the curve; what it says of the P99 is not worth saying."""
    old = Histogram().add([Sample(500.0, at=0.0)])
    h = old.add(Sample(min(s, 120.0), s > 120, 9 * HALF_LIFE) for s in map(float, range(30, 150)))
    found = estimate(h, 120)
    assert kaplan_meier(h).steps[-1].survival == 0
    assert (found.truncated, found.p99, found.p99_upper) == (True, None, None)
    assert found.longest == pytest.approx(120, rel=0.02)


def test_two_modes_are_told_apart() -> None:
    random = Random(5)
    values = [random.gauss(10, 1) if random.random() < 0.9 else random.gauss(80, 5) for _ in range(800)]
    found = estimate(histogram([(v, False) for v in values]), 120)
    assert found.p50 == pytest.approx(10, rel=0.1)
    assert found.p99 == pytest.approx(percentile(values, 0.99), rel=0.03)
    assert found.p99 > 80


@pytest.mark.parametrize(
    ("trace", "streams", "p50", "p99"),
    [("azure-conversation", 32, 22, 44), ("azure-code", 32, 27, 85), ("mooncake", 32, 43, 93)],
)
def test_published_lengths_give_the_drain_times_that_were_reckoned_from_the_traces(
    trace: str, streams: int, p50: float, p99: float
) -> None:
    drains = Drains(trace, streams, Random(1)).sample(4000)
    assert percentile(drains, 0.5) == pytest.approx(p50, rel=0.25)
    assert percentile(drains, 0.99) == pytest.approx(p99, rel=0.15)


@pytest.mark.parametrize("trace", sorted(QUANTILES))
@pytest.mark.parametrize("share_cut", [0.0, 0.4])
def test_published_lengths_with_drains_cut_at_random(trace: str, share_cut: float) -> None:
    random = Random(3)
    drains = Drains(trace, 16, random)
    truth = percentile(drains.sample(8000), 0.99)
    samples = []
    for value in drains.sample(2500):
        until = random.uniform(0, 3 * truth) if random.random() < share_cut else 1e5
        samples += cut_at([value], until)
    found = estimate(histogram(samples), 120)
    assert found.p99 is not None and found.p99_upper is not None
    assert found.p99 == pytest.approx(truth, rel=0.15)
    assert truth <= found.p99_upper <= truth * 1.4
    if share_cut:
        # What a percentile of the recorded times says, which takes cut drains for finished ones.
        assert percentile([s for s, _ in samples], 0.99) < found.p99


@pytest.mark.parametrize("share_cut", [0.0, 0.9])
def test_two_published_traces_behind_one_service(share_cut: float) -> None:
    """Nine of ten pods complete code, one holds conversations that take many times as long: two modes, a heavy tail."""
    random = Random(4)
    code, talk = Drains("azure-code", 2, random), Drains("mooncake", 32, random)
    drains = [talk.draw() if random.random() < 0.1 else code.draw() for _ in range(8000)]
    truth = percentile(drains, 0.99)
    assert truth > 20 * percentile(drains, 0.5)
    samples = []
    for value in drains[:3000]:
        until = random.uniform(0, 1.5 * truth) if random.random() < share_cut else 1e5
        samples += cut_at([value], until)
    found = estimate(histogram(samples), 120)
    assert found.p50 == pytest.approx(percentile(drains[:3000], 0.5), rel=0.05)
    assert found.p99 == pytest.approx(truth, rel=0.1)
    assert found.p99_upper is not None and truth <= found.p99_upper <= truth * 1.3
    if share_cut:
        # More than half of the conversations are cut: to a plain percentile of what is recorded the mode is gone.
        assert sum(cut for _, cut in samples) > 200
        assert percentile([seconds for seconds, _ in samples], 0.99) < 0.9 * truth


def test_what_is_left_of_a_drain_that_has_run_for_a_while() -> None:
    random = Random(9)
    curve = kaplan_meier(histogram([(exponential(random), False) for _ in range(4000)]))
    for elapsed in (0.0, 40.0, 100.0):
        median = curve.quantile(0.5, elapsed)
        assert median is not None
        # An exponential duration forgets how long it has run.
        assert median - elapsed == pytest.approx(60 * math.log(2), rel=0.12)
    assert curve.quantile(0.5, 1e5) is None


def test_no_samples() -> None:
    found = estimate(Histogram(), 77.0)
    assert (found.n, found.n_effective, found.covers, found.longest) == (0, 0, 0, 0)
    assert (found.p50, found.p90, found.p99, found.p99_upper, found.truncated) == (None, None, None, 77.0, False)
    assert Curve(()).quantile(0.01) is None


@pytest.mark.parametrize("prior", [0.0, -1.0, float("nan")])
def test_a_prior_has_to_be_above_0(prior: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        estimate(Histogram(), prior)
