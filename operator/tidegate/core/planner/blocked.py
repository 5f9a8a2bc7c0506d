"""Why nothing more is done now: said once, where it is decided, as data. `core.report` words it for people."""

from dataclasses import dataclass

from tidegate.api.conditions import BlockedReason
from tidegate.core.render.finding import Finding
from tidegate.core.state.pods import Failure
from tidegate.core.state.snapshot import Conflict, Pod, Reading, Trouble


@dataclass(frozen=True, slots=True)
class Findings:
    """What the template holds and must not."""

    found: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Causes:
    """(field, message) of the API server's refusal."""

    causes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """Somebody else's words, and the object that they are about."""

    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Names of children that others have."""

    conflicts: tuple[Conflict, ...]


@dataclass(frozen=True, slots=True)
class Unanswered:
    """How the first pod of those that were asked failed to answer; None where nobody knows how to ask it."""

    trouble: Trouble | None
    port_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Whether the drain of the first pod can still be undone."""

    undoable: bool


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the first pod does not come up, as far as the kubelet says."""

    failure: Failure | None


@dataclass(frozen=True, slots=True)
class NotReady:
    """As `Cause`; or what the first pod said that a third party drains."""

    failure: Failure | None
    drained_by_others: Reading | None


@dataclass(frozen=True, slots=True)
class Readings:
    """What each of the pods said, in their order."""

    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class Returning:
    """Those of the pods that are asked to serve again, by uid."""

    uids: frozenset[str]


Detail = Findings | Causes | Message | Conflicts | Unanswered | Held | Cause | NotReady | Readings | Returning


@dataclass(frozen=True, slots=True)
class Blocked:
    """One reason for which something is not done; the pods concerned, the first being the one to name."""

    reason: BlockedReason
    pods: tuple[Pod, ...] = ()
    detail: Detail | None = None
