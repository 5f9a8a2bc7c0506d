"""When a drain, and a rollout, will be over: a prediction, never a limit.

A drain that has run for t seconds ends when those that ran as long did: the median of the survival curve beyond t, and
for the upper bound its P95. With n drains that ran as long, the longest of them bounds the next one with probability
n / (n + 1), so a P95 takes 19; below that the bound of the P99, or the declared time, stands in for it. A budget ends
what lasts longer.
"""

import functools
import math
from dataclasses import dataclass
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import DrainReason
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.drain_time.grace import drains_estimate
from tidegate.core.drain_time.survival import Curve, kaplan_meier
from tidegate.core.state.snapshot import Pod, Reading
from tidegate.core.state.view import View

from .drains import budget

CONFIDENCE: Final = 0.95
Z: Final = 1.645
"""The 95 % quantile of the normal distribution, for the sum of several drains."""


@dataclass(frozen=True, slots=True)
class Eta:
    """Seconds from now; None where nothing is known."""

    likely: float | None
    upper: float | None


@dataclass(frozen=True, slots=True)
class _Moments:
    """Of one drain of this service, in seconds."""

    mean: float
    deviation: float


def of_drain(view: View, pod: Pod) -> Eta:
    """Of a draining pod: until its last request has ended, or its budget."""
    record = pod.drain
    if record is None:
        return Eta(None, None)
    elapsed = view.snapshot.now - record.since - view.snapshot.spec.drain.propagation_seconds
    early, elapsed = max(-elapsed, 0.0), max(elapsed, 0.0)
    rest = None if record.deadline is None else max(record.deadline - view.snapshot.now, 0.0)
    reading = view.snapshot.readings.get(pod.uid)
    if reading is not None and reading.at >= record.since and reading.idle_since is not None:
        return Eta(early, early + view.snapshot.spec.drain.quiet_seconds)
    likely = _after(_curve(view.snapshot.drain_times).quantile(0.5, elapsed), elapsed, early)
    upper = _after(_upper(view, elapsed), elapsed, early)
    # Where nothing is known of drains that ran so long, the budget ends it.
    return Eta(_least(likely, rest), rest if upper is None else _least(upper, rest))


def predicted(view: View, reading: Reading) -> tuple[float, int, float]:
    """How long a pod that says this would drain, for ranking: in seconds, then by its requests and their age.

    A drain that had begun with its oldest request would have run for that long by now.
    """
    oldest = reading.oldest_seconds or 0.0
    curve, rank = _curve(view.snapshot.drain_times), (reading.in_flight or 0, oldest)
    if not curve.steps or not reading.in_flight:
        return (0.0, *rank)
    until = curve.quantile(0.5, oldest)
    return (math.inf if until is None else until - oldest, *rank)


def of_rollout(view: View, start: float | None) -> Eta:
    """Of a rollout that runs: what is left to do, packed into its slots; `start` is the time a new pod takes."""
    left = _Left.of(view)
    if not left.going or view.paused or view.cannot_start or view.failing or (left.missing and not start):
        return Eta(None, None)
    each = view.snapshot.spec.drain.propagation_seconds + (start or 0.0)
    if view.limits.surge == 0:
        each += view.grace.term("teardown")
    running = [of_drain(view, pod) for pod in left.running]
    known = _moments(view.snapshot.drain_times)
    upper = _longest(view)
    likely = None
    if known is not None and all(eta.likely is not None for eta in running):
        likely = _packed(
            view, left, each, [eta.likely or 0.0 for eta in running], left.pending * known.mean, known.mean
        )
    total = left.pending * upper
    if known is not None and _ran(view, 0.0) >= _enough():
        total = min(total, left.pending * known.mean + Z * known.deviation * math.sqrt(left.pending))
    bounds = [eta.upper if eta.upper is not None else upper for eta in running]
    bound = _packed(view, left, each, bounds, total, upper)
    return Eta(likely, bound if likely is None else max(bound, likely))


@dataclass(frozen=True, slots=True)
class _Left:
    """What a rollout still has to do."""

    running: tuple[Pod, ...]
    pending: int
    """Old pods that are not yet withdrawn."""
    missing: int
    """New pods that do not count yet."""

    @classmethod
    def of(cls, view: View) -> "_Left":
        running = tuple(p for p in view.draining if p.drain is not None and p.drain.reason == DrainReason.ROLLOUT)
        pending = sum(p.state == names.SERVING for p in view.old_pods)
        return cls(running, pending, max(view.limits.replicas - len(view.target_available), 0))

    @property
    def going(self) -> bool:
        return bool(self.running or self.pending or self.missing)


def _packed(view: View, left: _Left, each: float, running: list[float], total: float, one: float) -> float:
    """As `bound.rollout_bound`: no schedule is faster than its longest part, nor than all parts in its slots."""
    work = sum(running) + total + max(left.pending, left.missing) * each
    longest = max([each + one if left.pending else each if left.missing else 0.0, *running])
    return max(work / max(view.limits.slots, 1), longest)


def _upper(view: View, elapsed: float) -> float | None:
    """Seconds from the start of a drain that has run for `elapsed` within which it ends with 95 % probability."""
    ran = _ran(view, elapsed)
    if ran >= _enough():
        return _curve(view.snapshot.drain_times).quantile(min(CONFIDENCE * (ran + 1) / ran, 1.0), elapsed)
    known = drains_estimate(view.snapshot.spec, view.snapshot.drain_times)
    longest = float(view.grace.term("drain")) if known.p99_upper is None else known.p99_upper
    return longest if longest > elapsed else None


def _longest(view: View) -> float:
    """What one drain will not exceed, with 95 % probability."""
    found = _upper(view, 0.0)
    limit = budget(view)
    longest = float(view.grace.term("drain")) if found is None else found
    return longest if limit is None else min(longest, limit)


def _enough() -> float:
    return CONFIDENCE / (1 - CONFIDENCE)


def _ran(view: View, elapsed: float) -> float:
    """Effective number of drains that ran longer than this."""
    return next((s.at_risk for s in _curve(view.snapshot.drain_times).steps if s.seconds > elapsed), 0.0)


def _after(until: float | None, elapsed: float, early: float) -> float | None:
    return None if until is None else until - elapsed + early


def _least(value: float | None, limit: float | None) -> float | None:
    return value if value is None or limit is None else min(value, limit)


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
