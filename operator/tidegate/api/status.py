"""The status of an LLMService: typed documents for whoever writes it, and the source of its schema.

The operator alone writes status, so nothing is bounded or enumerated in the schema: a CRD one version behind must not
refuse the words of a newer operator. Absent means not known (yet), never zero.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError

from tidegate.api.conditions import (
    ConditionStatus,
    ConditionType,
    DrainReason,
    Outcome,
    Phase,
    PodState,
    Reason,
    TermSource,
)
from tidegate.api.rules import Model


def _map_by(*keys: str) -> Any:
    return Field(json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


_ATOMIC: Any = Field(json_schema_extra={"x-kubernetes-list-type": "atomic"})


class Condition(Model):
    """A condition as in core Kubernetes."""

    type: ConditionType
    """Type of the condition. Ready, Reconciling and Stalled are always present, the others only while True."""
    status: ConditionStatus
    """Status of the condition."""
    observed_generation: int | None = None
    """Generation of the spec that the condition was computed for."""
    last_transition_time: str
    """RFC 3339 time at which the status last changed."""
    reason: Reason
    """Why, in one word."""
    message: str
    """What is happening, why, and what comes next or what to do."""


class RevisionStatus(Model):
    """Pods of one revision."""

    name: str
    """Name of the revision's Deployment."""
    replicas: int
    """Replicas that the Deployment should have."""
    serving: int
    """Pods that serve and are Ready."""
    draining: int
    """Pods that are draining."""


class PodStatus(Model):
    """A pod that drains; refreshed at most every 5 seconds."""

    name: str
    """Name of the pod."""
    state: PodState
    """State of the pod."""
    reason: DrainReason | None = None
    """Why it drains."""
    since: str | None = None
    """RFC 3339 time of the withdrawal."""
    deadline: str | None = None
    """RFC 3339 time at which the budget is spent; absent with onExpiry: Hold."""
    in_flight: int | None = None
    """Requests in flight, by the pod's own count; absent: it has not answered."""
    oldest_seconds: int | None = None
    """Age of the oldest of them in seconds."""
    eta_seconds: int | None = None
    """Seconds until its drain is over: the median of the drains that ran as long; absent: too few to tell."""
    eta_upper_seconds: int | None = None
    """Seconds within which its drain is over with 95 % probability, or at the latest by its budget."""
    observed_at: str | None = None
    """RFC 3339 time of the pod's answer."""
    trouble: str | None = None
    """Why the pod cannot be asked, or why its answer is not valid; absent: it answers as it should."""


class GraceTerm(Model):
    """One term of the grace period."""

    name: str
    """propagation, drain, teardown or safety."""
    seconds: int
    """Its length in seconds."""
    source: TermSource
    """Where it comes from."""
    samples: int | None = None
    """Drains that were measured for it; absent: none."""
    covers: float | None = None
    """The largest share of drains that these samples bound, with 95 % confidence: 0.92 is the P92."""
    message: str | None = None
    """What the term is based on, and what keeps it high or low."""


class GracePeriod(Model):
    """terminationGracePeriodSeconds of the target revision and what it is made of."""

    seconds: int
    """The sum of the terms in seconds, capped by spec.drain.grace.maxSeconds."""
    terms: Annotated[tuple[GraceTerm, ...], _map_by("name")] = ()
    """The terms."""


class DrainTimesStatus(Model):
    """How long drains take, from withdrawal + propagation to the end of the last request; absent: not known."""

    p50_seconds: int | None = None
    """Half of the drains take no longer."""
    p90_seconds: int | None = None
    """Nine of ten take no longer."""
    p99_seconds: int | None = None
    """99 of 100 take no longer; also absent if too many were cut to tell."""
    p99_upper_seconds: int | None = None
    """95 % upper bound of the P99."""
    samples: int = 0
    """Drains counted, and ages of requests of pods whose drain is not over."""
    censored: int = 0
    """Those of them that lasted at least as long as was seen: cut, lost from sight, or not over."""


class RolloutStatus(Model):
    """The running rollout, or the last one."""

    started_at: str | None = None
    """RFC 3339 time of its start."""
    finished_at: str | None = None
    """RFC 3339 time of its end; absent while it runs."""
    seconds: int | None = None
    """How long it has taken, in seconds."""
    bound_seconds: int | None = None
    """The lower bound in seconds: no schedule could have been faster with the measured starts and drains."""
    eta_seconds: int | None = None
    """Seconds until it is finished, from the measured starts and drains; absent: finished, blocked, or too little to
    tell."""
    eta_upper_seconds: int | None = None
    """The same with a probability of 95 %."""
    drained: int = 0
    """Pods whose drain is over."""
    cut: int = 0
    """Requests that were cut."""
    start_seconds: float | None = None
    """Mean time from creation to Ready of the new pods, in seconds; a term of the bound."""
    drain_seconds: float = 0
    """Sum of the drains from withdrawal + propagation, in seconds; a term of the bound."""
    longest_drain_seconds: float = 0
    """The longest of them, in seconds."""


class OutcomeStatus(Model):
    """How the drain of one pod ended."""

    pod: str
    """Name of the pod."""
    outcome: Outcome
    """How it ended."""
    seconds: int | None = None
    """Length of the drain in seconds."""
    cut: int | None = None
    """Requests that were cut; absent: nobody could count them."""
    oldest_cut_seconds: int | None = None
    """Age of the oldest request cut, in seconds."""
    at: str | None = None
    """RFC 3339 time of the end."""


class LLMServiceStatus(Model):
    """What the operator sees, why it is so and what happens next."""

    observed_generation: int
    """Generation of the spec that this status was computed for."""
    phase: Phase
    """State of the service in one word."""
    message: str = ""
    """Message of the worst condition: what, why, what next."""
    replicas: int = 0
    """Pods that are neither draining nor drained; read through the scale subresource."""
    selector: str = ""
    """Selector of those pods; read through the scale subresource."""
    serving: int = 0
    """Pods that serve and are Ready."""
    updated: int = 0
    """Pods of the target revision that serve and are Ready."""
    draining: int = 0
    """Pods that are draining."""
    target_revision: str | None = None
    """Name of the Deployment of the revision that the spec describes."""
    revisions: Annotated[tuple[RevisionStatus, ...], _map_by("name")] = ()
    """The revisions that have pods, and the target revision."""
    pods: Annotated[tuple[PodStatus, ...], _map_by("name")] = ()
    """Pods that are draining."""
    grace_period: GracePeriod | None = None
    """The grace period of the target revision's pods."""
    drain_times: DrainTimesStatus | None = None
    """How long drains take; absent: no drain was counted."""
    rollout: RolloutStatus | None = None
    """The running rollout, or the last one."""
    outcomes: Annotated[tuple[OutcomeStatus, ...], _ATOMIC] = ()
    """The last ten drains, newest last."""
    conditions: Annotated[tuple[Condition, ...], _map_by("type")] = ()
    """Conditions."""

    @classmethod
    def read(cls, stored: object) -> Self:
        """The status of a stored object, as much of it as can be read; `NO_STATUS` where there is none.

        A row that somebody damaged by hand, or that a newer operator wrote in words not known here, is left out: the
        operator computes the rest again from the cluster, and goes on.
        """
        kept = copy.deepcopy(dict(stored)) if isinstance(stored, Mapping) else {}
        while True:
            try:
                return cls.model_validate(_LEAST | {key: value for key, value in kept.items() if value is not None})
            except ValidationError as error:
                for place in sorted({_unreadable(e["type"], e["loc"]) for e in error.errors()}, key=_from_the_end):
                    _remove(kept, place)

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, if it is there."""
        return next((c for c in self.conditions if c.type is kind), None)

    def document(self) -> dict[str, Any]:
        """The status as JSON, without what is not known."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


_LEAST: Final = {"observedGeneration": 0, "phase": Phase.PENDING}
NO_STATUS: Final = LLMServiceStatus(observed_generation=0, phase=Phase.PENDING)
"""Of a service for which no operator has written one yet."""

_Place = tuple[int | str, ...]


def _unreadable(kind: str, place: _Place) -> _Place:
    """What to leave out for an error at `place`: the whole row of a list, else the field, or its holder if missing."""
    rows = [depth for depth, part in enumerate(place) if isinstance(part, int)]
    if rows:
        return place[: rows[-1] + 1]
    return place[:-1] if kind == "missing" and len(place) > 1 else place


def _from_the_end(place: _Place) -> tuple[int, ...]:
    # Rows are removed from the end of a list on, so that the indices before them stay true.
    return tuple(-part for part in place if isinstance(part, int))


def _remove(document: dict[str, Any], place: _Place) -> None:
    held: Any = document
    for part in place[:-1]:
        held = held[part]
    del held[place[-1]]
