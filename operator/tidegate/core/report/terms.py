"""Why a term of the grace period is as long as it is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tidegate.core.drain_time.drain_term import DrainTerm, Reason
from tidegate.core.drain_time.histogram import GROWTH

from .phrases import count

if TYPE_CHECKING:
    # The module is used by `tidegate estimate` too, which needs the standard library alone.
    from tidegate.core.drain_time.grace import Term


def message(term: Term) -> str | None:
    """What a term in status rests on; None for one of which nothing was measured."""
    if term.samples is None:
        return None
    if term.measured is None:
        return f"After a withdrawal, no requests arrived later than the declared {term.seconds} s."
    target = f"{math.ceil(term.measured.target)} s"
    if term.measured.capped:
        return f"{rests_on(term.measured)} Limited by spec.drain.grace.maxSeconds; without that limit: {target}."
    if term.measured.shrinking:
        return f"{rests_on(term.measured)} Decreasing by at most 20 % a day to {target}."
    return rests_on(term.measured)


def rests_on(term: DrainTerm) -> str:
    """What a measured term was computed from."""
    known = term.estimate
    # The lower edge of the bucket: drains have run so long for certain.
    longest = f"{known.longest / GROWTH:.0f} s"
    basis = {
        Reason.MEASURED: "the 95 % upper bound of the P99",
        Reason.FEW_SAMPLES: f"the longest, {longest}, extended by an exponential tail to the P99",
        Reason.OUTGROWN: f"the declared {term.prior:g} s, increased by half until it exceeds the longest, {longest}",
        Reason.DECLARED: f"the declared {term.prior:g} s",
    }[term.reason]
    if not known.n:
        return f"No samples yet: {basis}."
    if known.truncated and known.few:
        endless = f"{known.censored} of them without an end"
        verb = "is" if known.n == 1 else "are"
        return f"{count(known.n, 'sample')}, {endless}, {verb} too few for a P99: {basis}."
    if known.truncated:
        return f"More than 1 % of drains last longer than {longest}, so the P99 is unknown: {basis}."
    samples, verb = round(known.n_effective), "covers" if round(known.n_effective) == 1 else "cover"
    return f"{count(samples, 'sample')} {verb} P{percent(known.covers)}: {basis}."


def percent(share: float) -> str:
    """A percentile for people, never rounded up: 0.5493 is 54, 0.99003 is 99, 0.9969 is 99.6."""
    tenths = int(share * 1000 + 1e-6)
    return f"{tenths / 10:.1f}" if tenths >= 990 and tenths % 10 else str(tenths // 10)
