"""What a histogram of drains says: percentiles, an upper bound of the P99, and how far the sample reaches.

Percentiles are Kaplan and Meier's (1958): a drain that was cut counts as running until then and says nothing about
later, so that cut drains lengthen an estimate instead of capping it. Decayed weights are scaled to the effective number
of samples (Kish) and then stand for counts.

The bound: with 95 % confidence at most 1 drain in 100 outlasts it. It is the first time at which the upper limit of the
survival (`beta.BetaProduct`) has come down to 1 %. Without censoring that is the order statistic one knows from tables:
the longest of 299 samples, the second longest of 473. With fewer samples no such bound exists, whatever the data, and
two things stand in for the missing ones:

- a tail: the longest seen is, with 95 % confidence, past the quantile c that the sample `covers`, and from there to the
  P99 an exponential tail is taken: longest + ln((1 - c) / 0.01) * m, with m the 95 % upper limit of the mean of
  exponential durations, 2 T / chi2(2 d; 0.05), from d drains that ended and the time T that all of them ran (Epstein
  and Sobel 1953, "Life testing"; a drain that was cut adds to T alone). At 299 samples c is 0.99 and the tail is gone.
- the declared time, of which the sum never gets beyond, unless drains have: then it has grown by half until it is past
  them.

So the bound begins at the declared time and comes down with every sample until it needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log, sqrt

from .beta import BetaProduct
from .histogram import EDGES, Histogram

TARGET = 0.99
CONFIDENCE = 0.95
ENOUGH = 100
"""Effective samples from which a share of 1 in 100 is told as a share. With fewer, counts are told."""
OUTGROWN = 1.5
"""Factor by which a time grows that drains have reached."""

_Z = 1.6448536269514722
"""The 95 % quantile of the normal distribution."""
_WHOLE = 0.5
"""Weight, in samples, from which the tail of the sample is taken for more than a memory."""


@dataclass(frozen=True, slots=True)
class Step:
    """One bucket of the sample; weights in effective samples."""

    index: int
    at_risk: float
    """Still running when the bucket begins."""
    ended: float
    survival: float
    """Share that outlasts the bucket's upper edge."""

    @property
    def seconds(self) -> float:
        """The upper edge of the bucket."""
        return EDGES[self.index]


@dataclass(frozen=True, slots=True)
class Curve:
    """The Kaplan-Meier curve over buckets. Drains cut in a bucket count as cut at its end."""

    steps: tuple[Step, ...]

    def survival(self, seconds: float) -> float:
        """Share of drains that outlast so many seconds."""
        return next((step.survival for step in reversed(self.steps) if step.seconds <= seconds), 1.0)

    def quantile(self, share: float, elapsed: float = 0.0) -> float | None:
        """Seconds within which this share of drains ends, of those that have already run for `elapsed` seconds.

        None where the curve does not reach so far.
        """
        goal = (1 - share) * self.survival(elapsed)
        # The survival is a product of many factors, so equality is tested with the slack of its rounding.
        return next((s.seconds for s in self.steps if s.seconds > elapsed and s.survival <= goal + 1e-12), None)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a service's drains; times in seconds, None where the sample does not tell."""

    n: int
    n_effective: float
    censored: int
    covers: float
    """The largest share p for which the sample bounds the quantile with 95 % confidence; without censoring
    0.05 ** (1 / n), from 1 - p ** n >= 0.95."""
    longest: float
    """The longest that drains have been seen to run, cut or not."""
    p50: float | None
    p90: float | None
    p99: float | None
    p99_upper: float | None
    """95 % upper bound of the P99. None if `truncated`."""
    from_sample: bool
    """Whether `p99_upper` comes from the sample alone, and not from an exponential tail or the declared time."""
    truncated: bool
    """With 95 % confidence more than 1 % of drains outlast the longest that was seen: they are cut too early.

    Not by itself a reason to raise a budget: the ages of requests that still ran count as cut too."""

    @property
    def few(self) -> bool:
        """Whether the samples are too few to tell people of shares."""
        return self.n_effective < ENOUGH


def kaplan_meier(histogram: Histogram) -> Curve:
    """The curve of a histogram; empty without samples."""
    total = histogram.weight
    if total <= 0 or histogram.squares <= 0:
        return Curve(())
    scale = histogram.effective_n / total
    steps = []
    survival = 1.0
    indices = sorted(histogram.finished.keys() | histogram.censored.keys())
    # From the end, so that the last of a long sum is exact: there a rounding error would be a drain more or less.
    left = [0.0]
    for index in reversed(indices):
        left.append(left[-1] + histogram.censored.get(index, 0.0) + histogram.finished.get(index, 0.0))
    for index, at_risk in zip(indices, reversed(left), strict=False):
        ended = histogram.finished.get(index, 0.0)
        # Not 1 - ended / at_risk: only cut drains may keep the curve above 0.
        survival *= max(0.0, at_risk - ended) / at_risk
        steps.append(Step(index, at_risk * scale, ended * scale, survival))
    return Curve(tuple(steps))


def estimate(histogram: Histogram, prior: float) -> Estimate:
    """Percentiles and bound.

    `prior` is the declared upper bound of the P99 in seconds, above 0.

    Raises ValueError for any other prior.
    """
    if not prior > 0:
        raise ValueError(f"the prior has to be above 0 seconds, not {prior:g}")
    curve = kaplan_meier(histogram)
    longest = _longest(curve)
    covers = _covers(curve)
    truncated = _truncated(curve, longest)
    own = _bound(curve)
    short = min(outgrown(prior, longest), _with_tail(curve, longest, covers))
    return Estimate(
        n=histogram.n,
        n_effective=histogram.effective_n,
        censored=histogram.censored_n,
        covers=covers,
        longest=longest,
        p50=curve.quantile(0.50),
        p90=curve.quantile(0.90),
        p99=None if truncated else curve.quantile(TARGET),
        p99_upper=None if truncated else own or short,
        from_sample=own is not None and not truncated,
        truncated=truncated,
    )


def outgrown(seconds: float, longest: float) -> float:
    """A declared time, grown by half until it is past the longest drain seen."""
    while seconds <= longest:
        seconds *= OUTGROWN
    return seconds


def _bound(curve: Curve) -> float | None:
    """First bucket edge that at most 1 % of drains outlast, with 95 % confidence; None with too few samples."""
    product = BetaProduct()
    for step in curve.steps:
        product = _limit(product, step)
        if product.probability_below(1 - TARGET) >= CONFIDENCE:
            return step.seconds
    return None


def _covers(curve: Curve) -> float:
    product = BetaProduct()
    for step in curve.steps:
        product = _limit(product, step)
    return 1 - product.quantile(CONFIDENCE) if curve.steps else 0.0


def _limit(product: BetaProduct, step: Step) -> BetaProduct:
    """Upper limit of the survival past this bucket: as if one more drain had been running, which never ends."""
    return product.times(step.at_risk - step.ended + 1, step.ended)


def _longest(curve: Curve) -> float:
    """Seconds; samples at the end that have decayed to less than half a sample together do not count."""
    return next((step.seconds for step in reversed(curve.steps) if step.at_risk >= _WHOLE), 0.0)


def _truncated(curve: Curve, longest: float) -> bool:
    """Whether the lower 95 % limit of the survival at the longest seen is above 1 %.

    The lower limit has one factor more, for the gap until the next of the drains still running would end.
    """
    product = BetaProduct()
    for step in curve.steps:
        product = _limit(product, step)
        if step.seconds == longest:
            product = product.times(max(0.0, step.at_risk - step.ended), 1.0)
            return product.probability_below(1 - TARGET) <= 1 - CONFIDENCE
    return False


def _with_tail(curve: Curve, longest: float, covers: float) -> float:
    """The longest seen and an exponential tail from there to the P99; seconds, infinite if no drain has ended."""
    ended = sum(step.ended for step in curve.steps)
    chi2 = _chi2_low(2 * ended)
    if chi2 <= 0:
        return inf
    left = [step.at_risk for step in curve.steps[1:]] + [0.0]
    ran = sum(step.seconds * (step.at_risk - after) for step, after in zip(curve.steps, left, strict=True))
    return longest + max(0.0, log((1 - covers) / (1 - TARGET))) * 2 * ran / chi2


def _chi2_low(degrees: float) -> float:
    """The 5 % quantile of the chi-square distribution, by Wilson and Hilferty (1931).

    Within 0.3 % from 10 degrees of freedom on, and too low, which is on the safe side, below; 0 if there are too few.
    """
    if degrees <= 0:
        return 0.0
    part = 2 / (9 * degrees)
    return float(degrees * max(0.0, 1 - part - _Z * sqrt(part)) ** 3)
