"""The closed sets of words that status, events and annotations use.

Scripts, alerts and GitOps health checks match on them, so a word is added here and in the documentation before it is
used, and never changes its meaning.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Types of conditions. The first three follow kstatus and are always there; the others only while true."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"

    DRAIN_OVERDUE = "DrainOverdue"
    DRAIN_TIMES_UNREADABLE = "DrainTimesUnreadable"
    PORTS_UNCOUNTED = "PortsUncounted"
    ENGINE_FLAGS_MISSING = "EngineFlagsMissing"
    BUDGET_TRUNCATING = "BudgetTruncating"
    GRACE_PERIOD_STALE = "GracePeriodStale"
    TEMPLATE_OUTDATED = "TemplateOutdated"
    LOCKS_MISSING = "LocksMissing"
    DRAIN_ENDPOINT_UNREACHABLE = "DrainEndpointUnreachable"
    IN_POD_LOCK_PARTIAL = "InPodLockPartial"
    SERVICE_NOT_WITHDRAWN = "ServiceNotWithdrawn"
    READINESS_NOT_DRAIN_AWARE = "ReadinessNotDrainAware"


class Reason(StrEnum):
    """Reasons of conditions."""

    AS_DESIRED = "AsDesired"
    ROLLING_OUT = "RollingOut"
    SCALING_OUT = "ScalingOut"
    SCALING_IN = "ScalingIn"
    DRAINING = "Draining"
    PAUSED = "Paused"
    WAITING_FOR_REPLACEMENT = "WaitingForReplacement"
    INVALID_SPEC = "InvalidSpec"
    TEMPLATE_CONFLICT = "TemplateConflict"
    NAME_CONFLICT = "NameConflict"
    NEW_REVISION_FAILED = "NewRevisionFailed"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    NO_SPARE_CAPACITY = "NoSpareCapacity"
    BUDGET_HELD = "BudgetHeld"
    WRITE_REFUSED = "WriteRefused"
    TERMS_CHANGED = "TermsChanged"
    CONTENT_SET_ASIDE = "ContentSetAside"
    DRAINS_CUT = "DrainsCut"
    NO_ANSWER = "NoAnswer"
    POLICIES_MISSING = "PoliciesMissing"
    RENDERED_BEFORE = "RenderedBefore"
    OWN_READINESS_PROBE = "OwnReadinessProbe"
    READINESS_BY_PORT = "ReadinessByPort"
    PRE_STOP_SLEEPS = "PreStopSleeps"
    PRE_STOP_ALTERED = "PreStopAltered"
    SELECTOR_WITHOUT_STATE = "SelectorWithoutState"
    PORTS_BESIDE_GATEWAY = "PortsBesideGateway"
    FLAGS_MISSING = "FlagsMissing"


class ConditionStatus(StrEnum):
    """Status of a condition, as in core Kubernetes."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Phase(StrEnum):
    """One word for `kubectl get`; the conditions say the rest."""

    PENDING = "Pending"
    READY = "Ready"
    ROLLING = "Rolling"
    SCALING = "Scaling"
    PAUSED = "Paused"
    STALLED = "Stalled"


class PodState(StrEnum):
    """Value of the label tidegate.dev/state."""

    SERVING = "serving"
    DRAINING = "draining"
    DRAINED = "drained"


class DrainReason(StrEnum):
    """Why a pod drains."""

    ROLLOUT = "Rollout"
    SCALE_IN = "ScaleIn"
    NODE_DRAIN = "NodeDrain"
    MANUAL = "Manual"


class Outcome(StrEnum):
    """How a drain ended."""

    DRAINED = "Drained"
    NO_WORK = "NoWork"
    EXPIRED = "Expired"
    VANISHED = "Vanished"
    RELEASED = "Released"


class TermSource(StrEnum):
    """Where a term of the grace period comes from."""

    DECLARED = "Declared"
    MEASURED = "Measured"
