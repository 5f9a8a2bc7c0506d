"""The enumerations that status, events and annotations use.

Scripts, alerts and GitOps health checks match on these words. So a word is added here and in the documentation before
it is used, and never changes its meaning.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Types of conditions. The first three follow kstatus and are always present; the others only while True."""

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
    DISRUPTION_BUDGET_CONFLICT = "DisruptionBudgetConflict"
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
    POD_STUCK_TERMINATING = "PodStuckTerminating"
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
    CONTAINER_WITHOUT_PRE_STOP = "ContainerWithoutPreStop"
    SELECTOR_WITHOUT_STATE = "SelectorWithoutState"
    SECOND_BUDGET = "SecondBudget"
    PORTS_BESIDE_GATEWAY = "PortsBesideGateway"
    FLAGS_MISSING = "FlagsMissing"


class BlockedReason(StrEnum):
    """Why the plan does nothing more for a service now. Conditions, events and metrics are derived from it.

    In order of importance: if several apply, the first one is reported.
    """

    # Somebody has to act.
    TEMPLATE_CONFLICT = "TemplateConflict"
    """The template contradicts what Tidegate has to set."""
    INVALID_SPEC = "InvalidSpec"
    """The API server's dry run refuses the template."""
    WRITE_REFUSED = "WriteRefused"
    """The API server refuses a write of the operator."""
    NAME_CONFLICT = "NameConflict"
    """An object with the name of a child belongs to somebody else."""
    NO_ANSWER = "NoAnswer"
    """No pod answers on its drain port."""
    BUDGET_HELD = "BudgetHeld"
    """`onExpiry: Hold` keeps pods beyond their budget."""
    NEW_REVISION_FAILED = "NewRevisionFailed"
    """A container of the new revision does not come up."""
    PODS_REFUSED = "PodsRefused"
    """Admission or quota refuses pods of the wanted revision."""
    POD_STUCK_TERMINATING = "PodStuckTerminating"
    """No node can take a new pod, and a pod that should have ended long ago may still hold its device."""
    NO_SPARE_CAPACITY = "NoSpareCapacity"
    """No node can take the surge pod."""
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    """A pod of the wanted revision has missed its progress deadline."""
    # It ends by itself, or as soon as the user wants it to.
    PREDECESSOR_TERMINATING = "PredecessorTerminating"
    """Children of a deleted LLMService of this name are still there."""
    PAUSED = "Paused"
    """`spec.rollout.paused` holds a rollout."""
    DRAINED_BY_OTHERS = "DrainedByOthers"
    """A third party drains pods that should serve."""
    BUDGET_SPENT = "BudgetSpent"
    """Pods whose drain budget is spent are being released."""
    DRAINING = "Draining"
    """Pods are draining."""
    POD_NOT_READY = "PodNotReady"
    """Pods of the wanted revision are not Ready yet."""
    POD_TERMINATING = "PodTerminating"
    """Without surge, a terminating pod occupies its slot."""
    POD_DRAINED = "PodDrained"
    """Drained pods exist until their ReplicaSet has deleted them."""
    MIN_READY_SECONDS = "MinReadySeconds"
    """Pods have not stayed Ready for long enough."""
    LEAST_SERVING = "LeastServing"
    """No more pods serve than are needed, so none of them is drained."""
    RECOVERING_FROM_LOSS = "RecoveringFromLoss"
    """Pods were lost, and no serving pod is drained until they are replaced."""
    POD_NOT_CREATED = "PodNotCreated"
    """Wanted pods do not exist yet, or pods that are no longer wanted still exist."""
    FLAPPING = "Flapping"
    """Pods have been NotReady for too short a time to count as lost."""
    ROOM_FOR_UNSCHEDULABLE = "RoomForUnschedulable"
    """`whenNoCapacity: DrainFirst`: a pod that was drained makes room for the Unschedulable one."""
    ONE_AT_A_TIME = "OneAtATime"
    """Without the admission policies, one pod drains at a time."""
    NO_FREE_SLOT = "NoFreeSlot"
    """Pods that may become Ready again are drained only as the slots of the rollout allow."""


class ConditionStatus(StrEnum):
    """Status of a condition, as in core Kubernetes."""

    TRUE = "True"
    FALSE = "False"


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
    MANUAL = "Manual"
    NODE_DRAIN = "NodeDrain"
    """Somebody else took it away: evicted, preempted, or lost with its node (condition DisruptionTarget)."""
    DELETED = "Deleted"
    """Somebody else deleted it."""

    @classmethod
    def read(cls, word: object) -> DrainReason:
        """The reason as somebody wrote it. Annotations and status can be written by anybody: a word that is not ours
        is somebody's own."""
        return next((reason for reason in cls if reason == word), cls.MANUAL)


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
