"""The part of the spec that says how a pod is drained, and how long that may take."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import StrictBool

from tidegate.api.foreign import Foreign
from tidegate.api.names import CONTRACT_PORT
from tidegate.api.ports import PortRef
from tidegate.api.rules import DAY, WEEK, Model, Rule, bounded


class DrainMode(StrEnum):
    """Who reports whether a pod still has requests in flight."""

    NATIVE = "Native"
    GATEWAY = "Gateway"


class OnExpiry(StrEnum):
    """What happens to a pod whose drain budget is spent."""

    RELEASE = "Release"
    HOLD = "Hold"


class Grace(Model):
    """Terms of terminationGracePeriodSeconds: the time that a pod gets when somebody else deletes it."""

    initial_seconds: int = bounded(120, 0, DAY)
    """The drain term in seconds, until drains have been measured; absent: 120."""
    teardown_seconds: int = bounded(10, 0, DAY)
    """Seconds that the engine needs to exit after its last token; absent: 10."""
    safety_seconds: int = bounded(5, 0, DAY)
    """Safety margin in seconds; absent: 5."""
    max_seconds: int = bounded(600, 1, WEEK)
    """Maximum of the sum of all terms, in seconds; absent: 600."""
    roll_on_drift: StrictBool = False
    """Whether a stale grace period rolls the pods; absent: false. A measured one is stale when it differs by more than
    a tenth. If false, the next revision gets the new grace period."""


class Native(Model):
    """Where Tidegate reaches a service that drains itself."""

    port: PortRef = CONTRACT_PORT
    """Number or name of the container port that serves the drain contract or the foreign endpoint; absent: 9901."""
    foreign: Foreign | None = None
    """A drain endpoint that does not implement the contract; absent: the service implements the contract."""


class Drain(Model):
    """How a pod drains before it is deleted."""

    mode: DrainMode
    """Who counts the requests of a pod. Native: the service itself, with the drain contract or a drain endpoint of its
    own. Gateway: a sidecar that Tidegate puts in front of an engine that cannot drain."""
    budget_seconds: int = bounded(1800, 1, WEEK)
    """Seconds that the operator waits for a draining pod before it acts on onExpiry; absent: 1800."""
    on_expiry: OnExpiry = OnExpiry.RELEASE
    """What happens when the budget is spent. Release: the pod is released, and its requests are cut and counted. Hold:
    the pod stays, and the rollout waits; absent: Release."""
    propagation_seconds: int = bounded(5, 1, 300)
    """Seconds until everybody who sends requests has learned that a pod is withdrawn; absent: 5."""
    quiet_seconds: int = bounded(2, 0, 300)
    """Seconds without a new request before a pod is sealed; absent: 2."""
    flush_seconds: int = bounded(5, 0, 300)
    """How many seconds before a deadline shutdown tokens are sent; absent: 5."""
    stalled_after_seconds: int = bounded(300, 0, WEEK)
    """Seconds of silence after which a drain no longer waits for a stream that has begun; 0: it always waits; absent:
    300."""
    grace: Grace = Grace()
    """Terms of the grace period."""
    native: Native = Native()
    """Mode Native: where Tidegate reaches the service."""

    rules: ClassVar = (
        Rule(
            field="native",
            cel="!has(self.native) || self.mode == 'Native'",
            message="applies only to mode Native: remove it, or set mode to Native. The ports of the gateway are set "
            "in spec.gateway",
            holds=lambda drain: drain.mode is DrainMode.NATIVE or "native" not in drain.model_fields_set,
        ),
        Rule(
            field="flushSeconds",
            cel="(has(self.flushSeconds) ? self.flushSeconds : 5) < "
            "(has(self.budgetSeconds) ? self.budgetSeconds : 1800)",
            message="must be less than budgetSeconds (absent: flushSeconds 5, budgetSeconds 1800), otherwise every "
            "request is cut at once: lower flushSeconds or raise budgetSeconds",
            holds=lambda drain: drain.flush_seconds < drain.budget_seconds,
        ),
        Rule(
            field="budgetSeconds",
            cel="(has(self.propagationSeconds) ? self.propagationSeconds : 5) + "
            "(has(self.quietSeconds) ? self.quietSeconds : 2) < (has(self.budgetSeconds) ? self.budgetSeconds : 1800)",
            message="must be more than propagationSeconds + quietSeconds (absent: 5 + 2), otherwise no drain can "
            "finish in time: raise budgetSeconds",
            holds=lambda drain: drain.propagation_seconds + drain.quiet_seconds < drain.budget_seconds,
        ),
        Rule(
            field="grace",
            cel="(has(self.propagationSeconds) ? self.propagationSeconds : 5) + (has(self.grace) ? "
            "(has(self.grace.initialSeconds) ? self.grace.initialSeconds : 120) + "
            "(has(self.grace.teardownSeconds) ? self.grace.teardownSeconds : 10) + "
            "(has(self.grace.safetySeconds) ? self.grace.safetySeconds : 5) : 135) <= "
            "(has(self.grace) && has(self.grace.maxSeconds) ? self.grace.maxSeconds : 600)",
            message="propagationSeconds + grace.initialSeconds + grace.teardownSeconds + grace.safetySeconds (absent: "
            "5 + 120 + 10 + 5) must not exceed grace.maxSeconds (absent: 600), otherwise the grace period is too "
            "short: raise grace.maxSeconds or lower a term",
            holds=lambda drain: drain.declared_grace_seconds <= drain.grace.max_seconds,
        ),
    )

    @property
    def declared_grace_seconds(self) -> int:
        """Sum of the declared terms of the grace period in seconds, without the maximum."""
        grace = self.grace
        return self.propagation_seconds + grace.initial_seconds + grace.teardown_seconds + grace.safety_seconds
