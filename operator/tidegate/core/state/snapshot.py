"""What the operator knows when it decides: one frozen snapshot of a service and all that belongs to it.

Nothing here reads a clock or a cluster. Times are Unix seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.api import names
from tidegate.api.conditions import DrainReason, Outcome
from tidegate.api.foreign import Foreign
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import NO_STATUS, LLMServiceStatus
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.drain_time.histogram import Sample


@dataclass(frozen=True, slots=True)
class DrainRecord:
    """The annotation `tidegate.dev/drain`: a drain that was begun. `deadline` is None while it may take for ever."""

    id: str
    instance: str | None
    reason: DrainReason
    since: float
    deadline: float | None
    budget: float | None = None
    """The budget in seconds that `deadline` was computed from; another one in the spec moves the deadline."""
    raw: str = field(default="", compare=False)
    """The annotation as it was read, which a later write tests for."""


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """The annotation `tidegate.dev/outcome`: how a drain ended. `cut` is None when nobody could count."""

    outcome: Outcome
    seconds: float
    cut: int | None
    oldest_cut_seconds: float | None
    at: float
    reason: DrainReason
    drain_seconds: float | None = None
    """How long the requests lasted, from withdrawal + propagation to the end of the last one; None where no drain took
    place."""
    censored: bool = False
    """Whether they lasted at least so long: they were cut, or nobody saw the last one end."""
    last_arrival_after_seconds: float | None = None
    """Time from the withdrawal to the last request that still arrived, 0 if none did; None where nobody can tell."""
    in_flight: int | None = None
    """Requests in flight by the pod's last answer, where `cut` is not known; None: it gave none."""


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """The serving container in its present run."""

    running: bool = False
    started: bool = False
    run: str = ""
    """Names this start of the container: another one after every restart, empty while it does not run."""
    restarts: int = 0
    waiting_reason: str = ""
    waiting_message: str = ""
    exit_code: int | None = None
    exit_reason: str = ""
    exited_at: float | None = None
    """When its present run ended, to the second; None while it runs."""


@dataclass(frozen=True, slots=True)
class Unhooked:
    """A container without a preStop hook: it gets SIGTERM at once when its pod is deleted."""

    name: str
    lasts: float = 0.0
    """Seconds for which it serves after that, as far as it is known; infinite: until no connection is open."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of one of the service's revisions."""

    name: str
    uid: str
    revision: str
    state: str
    phase: str
    created: float
    terminating: bool = False
    deleted_at: float | None = None
    """When its deletion was asked for, to the second; None while nobody has."""
    terminates_by: float | None = None
    """When its grace period is over, to the second; None while it does not terminate."""
    disruption: str = ""
    """Reason of the condition DisruptionTarget while that is True: evicted, preempted, lost with its node."""
    node: str = ""
    """Name of its node; empty while it has none."""
    ip: str = ""
    ready_since: float | None = None
    """None while the pod is not Ready."""
    unready_since: float | None = None
    """When it turned NotReady; None while Ready or not known."""
    scheduled: float | None = None
    """When it got its node; None while it has none."""
    unschedulable: str = ""
    """The scheduler's message while the pod finds no node."""
    any_running: bool = False
    """Whether any of its containers runs."""
    container: ContainerStatus = field(default_factory=ContainerStatus)
    gateway: ContainerStatus | None = None
    """Of the sidecar through which all requests come; None where there is none."""
    drain: DrainRecord | None = None
    outcome: OutcomeRecord | None = None
    release: str = ""
    version: str = field(default="", compare=False)
    """resourceVersion at which all this was true."""
    contract_port: int | None = None
    """Where this pod speaks the drain contract, or has its foreign endpoint; of its own revision, since they may
    differ."""
    foreign: Foreign | None = None
    """The drain endpoint of a pod that does not speak the contract."""
    hooked: bool = True
    """Whether its serving container has the preStop hook that the operator rendered."""
    unhooked: tuple[Unhooked, ...] = ()
    """Its other containers that have no preStop hook, though each was rendered with one: added on the way into the
    cluster, as a mesh's proxy is."""

    @property
    def askable(self) -> bool:
        """Whether it is known where to ask it."""
        return bool(self.ip and self.contract_port)

    @property
    def ready(self) -> bool:
        """Whether the kubelet says so now."""
        return self.ready_since is not None

    @property
    def alive(self) -> bool:
        """Counts as a replica: a terminating, failed or finished pod does not."""
        return not self.terminating and self.phase not in ("Failed", "Succeeded")


@dataclass(frozen=True, slots=True)
class Deployment:
    """One revision's Deployment."""

    name: str
    uid: str
    revision: str
    replicas: int
    source: str
    created: float
    released: frozenset[str] = frozenset()
    grace_seconds: int = 0
    rendered: str = ""
    """Digest of what the operator rendered, to tell whether it would render the same today."""
    failure: str = ""
    """Message of the ReplicaFailure condition: pods that admission or quota refuses."""
    deleting: bool = False
    observed: bool = True
    """Whether its controller has seen the present spec."""
    adopted: bool = True
    """Whether the present LLMService is its controller."""
    version: str = field(default="", compare=False)
    """resourceVersion at which all this was true."""


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """The ReplicaSet of a revision's Deployment."""

    name: str
    uid: str
    deployment_uid: str
    replicas: int
    observed: bool
    """Whether its controller has seen the present spec."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a pod said of itself, checked. Ages in seconds at `at`."""

    at: float
    instance: str
    drain_id: str | None
    state: str
    in_flight: int | None
    """None when nobody can count: a foreign endpoint need not say it."""
    stalled: int = 0
    cut: int | None = 0
    """None when the pod does not say what it cut."""
    oldest_seconds: float | None = None
    oldest_cut_seconds: float | None = None
    """Age of the oldest request when requests were cut; ours, the contract does not say it."""
    sequence: int = 0
    last_arrival_seconds: float | None = None
    """Age of the last arrival, infinite if there was none; None when the endpoint does not tell."""
    busy_at: float | None = None
    """When the pod was last seen with work, or not known to be without; ours."""
    idle_since: float | None = None
    """When it was first seen without work, since it last had some; ours."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod's answer is not to be had or not to be believed; `detail` is ours, never the pod's own text."""

    at: float
    kind: str
    detail: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A child's name that somebody else has."""

    kind: str
    name: str
    detail: str
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One service at one moment; `now` is Unix time."""

    now: float
    namespace: str
    name: str
    uid: str
    generation: int
    raw_spec: Mapping[str, Any]
    spec: LLMServiceSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: LLMServiceStatus = NO_STATUS
    """What the operator wrote last: its memory between passes."""
    deployments: tuple[Deployment, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    pods: tuple[Pod, ...] = ()
    readings: Mapping[str, Reading] = field(default_factory=dict)
    """The last believable word of each pod, by uid."""
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    """What was wrong with the last try, by uid; absent when the last try went well."""
    conflicts: tuple[Conflict, ...] = ()
    locks_missing: tuple[str, ...] = ()
    services_without_state: tuple[str, ...] = ()
    """Services of others that select these pods without the state label."""
    budgets_beside: tuple[str, ...] = ()
    """PodDisruptionBudgets of others that cover these pods too."""
    poll_seconds: float = 5.0
    """How soon to look again while something is awaited that may send no event."""
    gateway_image: str = names.GATEWAY_IMAGE
    """Image of gateways for which the spec names none: this operator's."""
    has_secret: bool = True
    live_service: Mapping[str, Any] | None = None
    live_budget: Mapping[str, Any] | None = None
    refused: str = ""
    """The API server's last refusal of a write for this service, while it lasts."""
    drain_times: DrainTimes = field(default_factory=DrainTimes)
    """What was learnt from this service's drains."""
    drain_times_trouble: str = ""
    """Why drain times are neither believed nor counted now, and what to do; empty when they are."""
    last_seen: Mapping[str, Pod] = field(default_factory=dict)
    """By uid, the pods that might hold requests when this operator last looked, as they were; some may be gone."""
    teardowns: Mapping[str, Sample] = field(default_factory=dict)
    """By pod, teardowns that were watched and wait for a drain to be counted with."""
    rejected: tuple[tuple[str, str], ...] = ()
    """(field, message) of a template that the API server's dry run refused, for the present generation."""
