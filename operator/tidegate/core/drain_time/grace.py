"""How long a pod gets in place when somebody else deletes it.

terminationGracePeriodSeconds = propagation + drain + teardown + safety, capped. Every term is declared until it is
measured, and each is shown with its source.

Nothing here depends on the time of the call: the terms move when a drain is counted and when the spec changes, so a
service at rest shows the same numbers for ever.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidegate.api.conditions import TermSource
from tidegate.api.resource import LLMServiceSpec

from .drain_term import DrainTerm, TermInForce, drain_term
from .drain_times import DrainTimes
from .histogram import Histogram
from .survival import Estimate, estimate

LEAST_PRIOR: Final = 1.0
"""Seconds: a declared time of 0 is no bound that could grow."""
DRIFT: Final = 0.1
"""Measured terms move with every drain; a grace period that is off by a larger share is stale."""
NOTHING_LEARNT: Final = DrainTimes()


@dataclass(frozen=True, slots=True)
class Term:
    """One summand, in seconds. `samples`, `covers` and `measured` say what a measured one rests on."""

    name: str
    seconds: int
    source: TermSource = TermSource.DECLARED
    samples: int | None = None
    covers: float | None = None
    measured: DrainTerm | None = None
    """None for one that was not measured, or whose samples stay within the declared time."""


@dataclass(frozen=True, slots=True)
class GracePeriod:
    """The sum of the terms, no more than `cap` seconds."""

    terms: tuple[Term, ...]
    cap: int

    @property
    def seconds(self) -> int:
        """terminationGracePeriodSeconds."""
        return min(sum(term.seconds for term in self.terms), self.cap)

    @property
    def measured(self) -> bool:
        """Whether any term is."""
        return any(term.source is TermSource.MEASURED for term in self.terms)

    def term(self, name: str) -> int:
        """Seconds of the term with this name. Raises StopIteration if there is none."""
        return next(t.seconds for t in self.terms if t.name == name)

    def drifted_from(self, seconds: int) -> bool:
        """Whether pods that carry `seconds` should carry something else; declared numbers are meant exactly."""
        return abs(self.seconds - seconds) > (DRIFT * seconds if self.measured else 0)


def grace_period(spec: LLMServiceSpec, learnt: DrainTimes = NOTHING_LEARNT) -> GracePeriod:
    """The sum for a service that has learnt so much."""
    terms = _terms(spec, learnt)
    grace = spec.drain.grace
    return GracePeriod(
        terms=(
            _propagation(spec, learnt, terms["propagation"]),
            _term("drain", grace.initial_seconds, learnt.samples, terms["drain"]),
            _term("teardown", grace.teardown_seconds, learnt.teardowns, terms["teardown"]),
            Term("safety", grace.safety_seconds),
        ),
        cap=grace.max_seconds,
    )


def in_force(spec: LLMServiceSpec, learnt: DrainTimes, at: float) -> dict[str, TermInForce]:
    """The terms as they are now, from which those of the next count grow or shrink; the declared ones at first."""
    declared = {name: TermInForce(prior, at) for name, prior in _priors(spec).items()}
    return declared | {name: term.in_force for name, (_, term) in _terms(spec, learnt).items() if term is not None}


def drains_estimate(spec: LLMServiceSpec, learnt: DrainTimes) -> Estimate:
    """What is known of the service's drains."""
    return _terms(spec, learnt)["drain"][0]


Measured = tuple[Estimate, DrainTerm | None]
"""An estimate and the term that follows from it; without samples the declared term stands."""


def _priors(spec: LLMServiceSpec) -> dict[str, float]:
    drain = spec.drain
    declared = {
        "propagation": drain.propagation_seconds,
        "teardown": drain.grace.teardown_seconds,
        "drain": drain.grace.initial_seconds,
    }
    return {name: max(float(seconds), LEAST_PRIOR) for name, seconds in declared.items()}


def _terms(spec: LLMServiceSpec, learnt: DrainTimes) -> Mapping[str, Measured]:
    priors, grace = _priors(spec), spec.drain.grace
    return _measured(learnt, *priors.values(), spec.drain.propagation_seconds, grace.safety_seconds, grace.max_seconds)


@functools.lru_cache(maxsize=1024)
def _measured(
    learnt: DrainTimes, propagation: float, teardown: float, drain: float, declared: int, safety: int, most: int
) -> Mapping[str, Measured]:
    """An estimate takes milliseconds and every pass asks for it, so each is made once for a document and its priors."""
    found = {
        "propagation": _one(learnt, "propagation", learnt.arrivals, propagation, most),
        "teardown": _one(learnt, "teardown", learnt.teardowns, teardown, most),
    }
    others = safety + max(_rounded(found["propagation"], propagation), declared)
    others += _rounded(found["teardown"], teardown)
    return found | {"drain": _one(learnt, "drain", learnt.samples, drain, most - others)}


def _one(learnt: DrainTimes, name: str, histogram: Histogram, prior: float, cap: float) -> Measured:
    known = estimate(histogram, prior)
    if not histogram.n:
        return known, None
    previous = learnt.previous.get(name)
    return known, drain_term(known, prior=prior, cap=max(cap, 0.0), at=histogram.at, previous=previous)


def _rounded(measured: Measured, declared: float) -> int:
    return math.ceil(declared if measured[1] is None else measured[1].seconds)


def _term(name: str, declared: int, histogram: Histogram, measured: Measured) -> Term:
    known, term = measured
    if term is None:
        return Term(name, declared)
    # One that is on its way down from what was measured is not declared, even where it ends there.
    measured_now = term.source == TermSource.MEASURED or term.shrinking
    return Term(
        name,
        math.ceil(term.seconds) if measured_now else declared,
        TermSource.MEASURED if measured_now else TermSource.DECLARED,
        histogram.n,
        covered(known),
        term,
    )


def _propagation(spec: LLMServiceSpec, learnt: DrainTimes, measured: Measured) -> Term:
    """Measured only where that is longer: drains are counted from the declared time, so less would be missing."""
    declared = spec.drain.propagation_seconds
    term = _term("propagation", declared, learnt.arrivals, measured)
    if term.samples is None or term.seconds > declared:
        return term
    return replace(term, seconds=declared, source=TermSource.DECLARED, measured=None)


def covered(known: Estimate) -> float:
    """The share that the samples bound, for people: never rounded up."""
    return math.floor(known.covers * 1e4 + 1e-6) / 1e4
