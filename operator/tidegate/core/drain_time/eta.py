"""When a drain, and a rollout, will be over: a prediction, never a limit. Plain numbers, all in seconds.

A drain that has run for t seconds ends when those that ran as long did: the median of the survival curve beyond t, and
for the upper bound its P95. With n drains that ran as long, the longest of them bounds the next one with probability
n / (n + 1), so a P95 takes 19; below that the bound of the P99, or the declared time, stands in for it.
"""

import functools
import math
from dataclasses import dataclass
from typing import Final

from .drain_times import DrainTimes
from .survival import Curve, kaplan_meier

CONFIDENCE: Final = 0.95
Z: Final = 1.645
"""The 95 % quantile of the normal distribution, for the sum of several drains."""
ENOUGH: Final = CONFIDENCE / (1 - CONFIDENCE)
"""So many drains bound the next one with that confidence."""


@dataclass(frozen=True, slots=True)
class Eta:
    """Seconds from now; None where nothing is known."""

    likely: float | None
    upper: float | None

    def later(self, seconds: float) -> "Eta":
        """The same, counted from a moment so many seconds ago."""
        return Eta(*(None if value is None else value + seconds for value in (self.likely, self.upper)))

    def within(self, limit: float | None) -> "Eta":
        """No later than `limit`, which is also the upper bound where there is no other."""
        if limit is None:
            return self
        likely = None if self.likely is None else min(self.likely, limit)
        return Eta(likely, limit if self.upper is None else min(self.upper, limit))


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of how long a service's drains last."""

    learnt: DrainTimes
    bound: float
    """Of the P99, measured; the declared time where nothing is."""
    declared: float


@dataclass(frozen=True, slots=True)
class Work:
    """What a rollout still has to do."""

    running: tuple[Eta, ...]
    pending: int
    """Old pods that are not yet withdrawn."""
    missing: int
    """New pods that do not count yet."""
    each: float
    """What a replacement takes beside the drain: start and propagation, and without surge the teardown."""
    slots: int


@dataclass(frozen=True, slots=True)
class _Moments:
    """Of one drain of a service."""

    mean: float
    deviation: float


def measured(learnt: DrainTimes) -> bool:
    """Whether any drain has been seen to end."""
    return bool(_curve(learnt).steps)


def median_rest(learnt: DrainTimes, elapsed: float) -> float | None:
    """The median of what is left of a drain that has run for `elapsed`."""
    until = _curve(learnt).quantile(0.5, elapsed)
    return None if until is None else until - elapsed


def of_drain(known: Known, elapsed: float) -> Eta:
    """Of a drain that has run for `elapsed`."""
    upper = _upper(known, elapsed)
    return Eta(median_rest(known.learnt, elapsed), None if upper is None else upper - elapsed)


def of_rollout(known: Known, work: Work, budget: float | None) -> Eta:
    """Of what is left to do, packed into its slots; a drain is ended by its `budget`."""
    longest = _longest(known, budget)
    moments = _moments(known.learnt)
    likely = None
    if moments is not None and all(eta.likely is not None for eta in work.running):
        running = [eta.likely or 0.0 for eta in work.running]
        likely = _packed(work, running, work.pending * moments.mean, moments.mean)
    total = work.pending * longest
    if moments is not None and _ran(known.learnt, 0.0) >= ENOUGH:
        total = min(total, work.pending * moments.mean + Z * moments.deviation * math.sqrt(work.pending))
    bounds = [longest if eta.upper is None else eta.upper for eta in work.running]
    upper = _packed(work, bounds, total, longest)
    return Eta(likely, upper if likely is None else max(upper, likely))


def _packed(work: Work, running: list[float], total: float, one: float) -> float:
    """As `bound.rollout_bound`: no schedule is faster than its longest part, nor than all parts in its slots."""
    filled = sum(running) + total + max(work.pending, work.missing) * work.each
    last = work.each + one if work.pending else work.each if work.missing else 0.0
    return max(filled / max(work.slots, 1), last, *running)


def _upper(known: Known, elapsed: float) -> float | None:
    """From the start of a drain that has run for `elapsed`, within which it ends with 95 % probability."""
    ran = _ran(known.learnt, elapsed)
    if ran >= ENOUGH:
        return _curve(known.learnt).quantile(min(CONFIDENCE * (ran + 1) / ran, 1.0), elapsed)
    return known.bound if known.bound > elapsed else None


def _longest(known: Known, budget: float | None) -> float:
    """What one drain will not exceed, with 95 % probability."""
    found = _upper(known, 0.0)
    longest = known.declared if found is None else found
    return longest if budget is None else min(longest, budget)


def _ran(learnt: DrainTimes, elapsed: float) -> float:
    """Effective number of drains that ran longer than this."""
    return next((step.at_risk for step in _curve(learnt).steps if step.seconds > elapsed), 0.0)


@functools.lru_cache(maxsize=1024)
def _curve(learnt: DrainTimes) -> Curve:
    return kaplan_meier(learnt.samples)


@functools.lru_cache(maxsize=1024)
def _moments(learnt: DrainTimes) -> _Moments | None:
    """Mean and standard deviation, as far as the curve reaches: what outlasts its end is taken to end there."""
    steps = _curve(learnt).steps
    if not steps:
        return None
    shares = [before - step.survival for before, step in zip([1.0, *(s.survival for s in steps)], steps, strict=False)]
    shares[-1] += steps[-1].survival
    mean = math.fsum(share * step.seconds for share, step in zip(shares, steps, strict=True))
    square = math.fsum(share * (step.seconds - mean) ** 2 for share, step in zip(shares, steps, strict=True))
    return _Moments(mean, math.sqrt(square))
