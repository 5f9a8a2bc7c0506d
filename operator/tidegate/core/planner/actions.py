"""What a plan may ask for: plain data, executed elsewhere, each safe to repeat."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.api.foreign import Foreign
from tidegate.core.state.pods import NoWork
from tidegate.core.state.snapshot import DrainRecord, OutcomeRecord


@dataclass(frozen=True, slots=True)
class CreateRevision:
    """Create the Deployment of a new revision, or write the template of one at 0 anew; dry run first."""

    revision: str
    source: str
    replicas: int
    refresh: bool = False
    uid: str = ""
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Scale:
    """Set a Deployment's replicas, and which drained pods that number has been lowered for."""

    deployment: str
    replicas: int
    released: frozenset[str]
    why: str
    uid: str = ""
    version: str = field(default="", compare=False)
    """The count was decided on this resourceVersion: another one refuses it."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """serving -> draining, in one PATCH with the record of the drain."""

    pod: str
    uid: str
    record: DrainRecord
    version: str = field(default="", compare=False)
    """What the choice rested on: a pod that changed since is looked at again."""


@dataclass(frozen=True, slots=True)
class UpdateDrain:
    """Write a running drain's record anew, since its budget changed."""

    pod: str
    uid: str
    old: DrainRecord | None
    record: DrainRecord


@dataclass(frozen=True, slots=True)
class Restore:
    """draining -> serving: the pod has said that it serves again."""

    pod: str
    uid: str
    record: DrainRecord


@dataclass(frozen=True, slots=True)
class EndCause:
    """What ended a drain where its requests did not: the proof that the pod holds no work, or why it did not answer."""

    no_work: NoWork | None = None
    unanswered: str = ""


@dataclass(frozen=True, slots=True)
class MarkDrained:
    """-> drained, one way, in one PATCH with the outcome and the lowest deletion cost."""

    pod: str
    uid: str
    state: str
    record: DrainRecord | None
    outcome: OutcomeRecord
    cause: EndCause = field(default=EndCause(), compare=False)
    """For people, who are told of it when the pod is marked."""
    version: str = field(default="", compare=False)
    """Set when the pod was found to hold no work: it may have started since."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a drained pod that its Deployment was lowered for and that stands though its ReplicaSet has seen that."""

    pod: str
    uid: str
    replica_set: str
    replicas: int
    standing: int
    """Pods of the ReplicaSet that do not terminate, as it was decided on."""


@dataclass(frozen=True, slots=True)
class DeleteDeployment:
    """Remove an old revision beyond revisionHistoryLimit; it has no pods."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Make the present LLMService the controller of a Deployment that carries our labels and has none."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ApplyChild:
    """Create or correct the Service, the PodDisruptionBudget."""

    kind: str
    name: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeleteChild:
    """Remove a child that the spec does not ask for any more."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class EnsureSecret:
    """Create the Secret with the drain key if it is not there; its key never passes through a plan."""

    name: str


Action = (
    CreateRevision
    | Scale
    | Withdraw
    | UpdateDrain
    | Restore
    | MarkDrained
    | DeletePod
    | DeleteDeployment
    | Adopt
    | ApplyChild
    | DeleteChild
    | EnsureSecret
)


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """A drain to be carried on: the pod is labelled `draining` and somebody has to talk to it.

    Seconds; `deadline` is Unix time or None. With `undo` the pod is asked to serve again.
    """

    pod: str
    uid: str
    ip: str
    port: int
    record: DrainRecord
    propagation_seconds: int
    quiet_seconds: int
    flush_seconds: int
    stalled_after_seconds: int
    undo: bool = False
    foreign: Foreign | None = None
    run: str = ""
    """Of a foreign endpoint: the start of the container that the drain is about."""
    watch: bool = False
    """Only ask the pod, again and again: it drains by itself, since somebody else takes it away."""


@dataclass(frozen=True, slots=True)
class Question:
    """One GET /drain, or what comes nearest to it, to learn what a pod holds."""

    uid: str
    ip: str
    port: int
    foreign: Foreign | None = None
    run: str = ""
