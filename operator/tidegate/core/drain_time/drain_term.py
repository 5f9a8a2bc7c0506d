"""The drain term of terminationGracePeriodSeconds: one number of seconds, and the reason for it.

Upward it follows at once: too short a grace period cuts streams. Downward it moves by 20 % a day at most, so that a
quiet weekend does not take away what Monday needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from .survival import Estimate, outgrown

SHRINK_PER_DAY = 0.20
DAY = 86400.0


class Reason(StrEnum):
    """What the term rests on."""

    DECLARED = "Declared"
    """On the declared time: no samples, or none that would lower it yet."""
    FEW_SAMPLES = "FewSamples"
    """On the samples and an exponential tail, below the declared time."""
    MEASURED = "Measured"
    """On the samples alone."""
    OUTGROWN = "Outgrown"
    """On the declared time, grown by half until past the longest drain, since drains have reached it."""


@dataclass(frozen=True, slots=True)
class TermInForce:
    """The term as it was last computed: keep it unrounded, or small steps down are lost to rounding."""

    seconds: float
    at: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class DrainTerm:
    """The drain term in seconds, not rounded."""

    seconds: float
    at: float
    target: float
    """What the estimate asks for, before the limits of shrinking and of the cap."""
    reason: Reason
    shrinking: bool
    """Held above `target`, since it shrinks by at most 20 % a day."""
    capped: bool
    """Held below what it should be by the cap."""
    truncated: bool
    """Drains are cut too early to tell the P99."""
    estimate: Estimate
    """What it was computed from."""
    prior: float
    """The declared term, in seconds."""

    @property
    def source(self) -> str:
        """As in status: Declared or Measured."""
        return "Declared" if self.reason is Reason.DECLARED else "Measured"

    @property
    def in_force(self) -> TermInForce:
        """What the next count grows or shrinks from."""
        return TermInForce(self.seconds, self.at)


def drain_term(
    estimate: Estimate, *, prior: float, cap: float, at: float = 0.0, previous: TermInForce | None = None
) -> DrainTerm:
    """The term for an estimate that was made with the same `prior`.

    `cap` is the most that the drain term may have: the cap of the sum less the other terms. `at` is the time of the
    call, `previous` the term in force, None for a service that has none; a clock that went back shrinks nothing. All
    in seconds.

    Raises ValueError for a cap below 0.
    """
    if cap < 0:
        raise ValueError(f"the other terms exceed the cap by {-cap:g} seconds")
    grown = outgrown(prior, estimate.longest)
    target = grown if estimate.p99_upper is None else estimate.p99_upper
    reason = _reason(estimate, prior, target)
    wanted = target
    if previous is not None:
        days = max(0.0, at - previous.at) / DAY
        wanted = max(target, previous.seconds * (1 - SHRINK_PER_DAY) ** days)
    return DrainTerm(
        seconds=min(wanted, cap),
        at=at,
        target=target,
        reason=reason,
        shrinking=wanted > target and cap > target,
        capped=wanted > cap,
        truncated=estimate.truncated,
        estimate=estimate,
        prior=prior,
    )


def _reason(estimate: Estimate, prior: float, target: float) -> Reason:
    if estimate.from_sample:
        return Reason.MEASURED
    if target < prior:
        return Reason.FEW_SAMPLES
    return Reason.DECLARED if target == prior else Reason.OUTGROWN
