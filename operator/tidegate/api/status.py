"""The status of an LLMService: its types, and the source of its schema.

Only the operator writes status, so the schema has no bounds and no enumerations: a CRD that is one version behind must
not refuse the words of a newer operator. Absent means not known (yet), never zero.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, ValidationError

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


def _drain_reason(word: object) -> DrainReason | None:
    return None if word is None else DrainReason.read(word)


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
    """A pod that drains, or that others take away; refreshed at most every 5 seconds."""

    name: str
    """Name of the pod."""
    state: PodState
    """State of the pod."""
    reason: Annotated[DrainReason | None, BeforeValidator(DrainReason.read)] = None
    """Why it is draining."""
    since: str | None = None
    """RFC 3339 time of the withdrawal, or of the deletion of a pod that was not withdrawn."""
    deadline: str | None = None
    """RFC 3339 time at which the budget is spent, or the grace period of a pod that terminates; absent with
    onExpiry: Hold."""
    in_flight: int | None = None
    """Requests in flight, as reported by the pod; absent: it has not answered."""
    oldest_seconds: int | None = None
    """Age of the oldest of them, in seconds."""
    eta_seconds: int | None = None
    """Seconds until the drain is over: the median of the drains that took at least this long; absent: too few of them
    are known."""
    eta_upper_seconds: int | None = None
    """Seconds until the drain is over with 95 % probability, at most until its budget is spent."""
    observed_at: str | None = None
    """RFC 3339 time of the pod's answer."""
    trouble: str | None = None
    """Why the pod does not answer, or why its answer is not valid; absent: it answers correctly."""


class GraceTerm(Model):
    """One term of the grace period."""

    name: str
    """propagation, drain, teardown or safety."""
    seconds: int
    """Its length in seconds."""
    source: TermSource
    """Where it comes from."""
    samples: int | None = None
    """Number of drains that it is based on; absent: none."""
    covers: float | None = None
    """Largest quantile of the drain times that the samples bound with 95 % confidence; 0.92 means the P92."""
    message: str | None = None
    """What the term is based on, and what raises or limits it."""


class GracePeriod(Model):
    """terminationGracePeriodSeconds of the target revision, and its terms."""

    seconds: int
    """Sum of the terms in seconds, at most spec.drain.grace.maxSeconds."""
    terms: Annotated[tuple[GraceTerm, ...], _map_by("name")] = ()
    """Terms of the sum."""


class DrainTimesStatus(Model):
    """How long drains take, from the end of the propagation time to the end of the last request."""

    p50_seconds: int | None = None
    """50 % of the drains take no longer, in seconds; absent: not known."""
    p90_seconds: int | None = None
    """90 % of the drains take no longer, in seconds; absent: not known."""
    p99_seconds: int | None = None
    """99 % of the drains take no longer, in seconds; absent: not known, for example because too many were cut."""
    p99_upper_seconds: int | None = None
    """95 % upper confidence bound of the P99, in seconds."""
    samples: int = 0
    """Number of drains counted, plus ages of requests of pods that are still draining."""
    censored: int = 0
    """How many of the samples are only lower bounds: the drain was cut, lost from sight, or is not over."""


class RolloutStatus(Model):
    """The running rollout, or the last one."""

    started_at: str | None = None
    """RFC 3339 time of its start."""
    finished_at: str | None = None
    """RFC 3339 time of its end; absent while it is running."""
    seconds: int | None = None
    """Duration so far, in seconds."""
    bound_seconds: int | None = None
    """Lower bound of the duration in seconds: with the measured start and drain times, no schedule could be faster."""
    eta_seconds: int | None = None
    """Seconds until it is finished, estimated from the measured start and drain times; absent: it is finished or
    blocked, or too few times are known."""
    eta_upper_seconds: int | None = None
    """Seconds until it is finished with 95 % probability."""
    drained: int = 0
    """Pods whose drain is over."""
    cut: int | None = None
    """Requests that were cut; absent: unknown, since nobody could count those of some pods."""
    cut_at_least: int | None = None
    """Where cut is unknown, the requests cut of the pods that could be counted; absent: none."""
    uncounted: int = 0
    """Drained pods whose cut requests nobody could count."""
    start_seconds: float | None = None
    """Mean time from creation to Ready of the new pods, in seconds; a term of the bound; absent: none was Ready yet."""
    drain_seconds: float = 0
    """Sum of the drain times from the end of the propagation time, in seconds; a term of the bound."""
    longest_drain_seconds: float = 0
    """Longest of these drain times, in seconds."""


class OutcomeStatus(Model):
    """How the drain of one pod ended."""

    pod: str
    """Name of the pod."""
    outcome: Outcome
    """How it ended."""
    seconds: int | None = None
    """Length of the drain in seconds."""
    reason: Annotated[DrainReason | None, BeforeValidator(_drain_reason)] = None
    """Why it drained; NodeDrain and Deleted: somebody else took the pod away while it served."""
    cut: int | None = None
    """Requests that were cut; absent: nobody could count them."""
    in_flight: int | None = None
    """Requests in flight by the pod's last answer, where cut is unknown; absent: cut is known, or it has not
    answered."""
    oldest_cut_seconds: int | None = None
    """Age of the oldest request that was cut, in seconds."""
    at: str | None = None
    """RFC 3339 time of the end."""


class LLMServiceStatus(Model):
    """Observed state of the service: what is happening, why, and what comes next."""

    observed_generation: int
    """Generation of the spec that this status was computed for."""
    phase: Phase
    """State of the service in one word."""
    message: str = ""
    """Message of the most important condition: what is happening, why, and what comes next or what to do."""
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
    """The target revision, and all others that have pods."""
    pods: Annotated[tuple[PodStatus, ...], _map_by("name")] = ()
    """Pods that are draining, and pods that others have evicted or deleted and that still run."""
    grace_period: GracePeriod | None = None
    """The grace period of the target revision's pods."""
    drain_times: DrainTimesStatus | None = None
    """How long drains take; absent: no drain has been counted."""
    rollout: RolloutStatus | None = None
    """The running rollout, or the last one."""
    outcomes: Annotated[tuple[OutcomeStatus, ...], _ATOMIC] = ()
    """The last 10 drains, newest last."""
    conditions: Annotated[tuple[Condition, ...], _map_by("type")] = ()
    """Conditions."""

    @classmethod
    def read(cls, stored: object) -> Self:
        """The status of a stored object, as far as it can be read; `NO_STATUS` if there is none.

        An entry that somebody damaged by hand, or in which a newer operator used words that are not known here, is
        left out: the operator computes the rest again from the cluster.
        """
        kept, ours = dict(stored) if isinstance(stored, Mapping) else {}, False
        while True:
            try:
                return cls.model_validate(_LEAST | {key: value for key, value in kept.items() if value is not None})
            except ValidationError as error:
                if not ours:
                    kept, ours = copy.deepcopy(kept), True
                places = {_unreadable(e["type"], e["loc"]) for e in error.errors()}
                # What goes with the part that holds it is not looked for again.
                outermost = {
                    place for place in places if not any(place[:end] in places for end in range(1, len(place)))
                }
                for place in sorted(outermost, key=_from_the_end):
                    _remove(kept, place)

    def condition(self, kind: ConditionType) -> Condition | None:
        """The condition of this type, or None."""
        return next((c for c in self.conditions if c.type is kind), None)

    def document(self) -> dict[str, Any]:
        """The status as JSON, without fields that are not known."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_unset=True)


_LEAST: Final = {"observedGeneration": 0, "phase": Phase.PENDING}
NO_STATUS: Final = LLMServiceStatus(observed_generation=0, phase=Phase.PENDING)
"""The status of a service for which no operator has written one yet."""

_Place = tuple[int | str, ...]


def _unreadable(kind: str, place: _Place) -> _Place:
    """What to leave out for an error at `place`: the list entry, else the field, or its parent if it is missing."""
    rows = [depth for depth, part in enumerate(place) if isinstance(part, int)]
    if rows:
        return place[: rows[-1] + 1]
    return place[:-1] if kind == "missing" and len(place) > 1 else place


def _from_the_end(place: _Place) -> tuple[int, ...]:
    # Entries are removed from the end of a list, so that the indices before them stay valid.
    return tuple(-part for part in place if isinstance(part, int))


def _remove(document: dict[str, Any], place: _Place) -> None:
    held: Any = document
    for part in place[:-1]:
        held = held[part]
    del held[place[-1]]
