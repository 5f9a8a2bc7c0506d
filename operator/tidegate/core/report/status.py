"""The status document: counts, drains, sums and conditions, computed from a plan and from the status before.

What has to survive the operator (when a rollout began, what was cut) lives in the status itself and on the pods, so a
successor goes on with the same numbers. An outcome is counted when it enters the list, once.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

from tidegate.api import names
from tidegate.api.conditions import ConditionStatus, ConditionType, DrainReason, Outcome, Phase
from tidegate.core.drain_time import bound
from tidegate.core.drain_time.grace import drains_estimate
from tidegate.core.planner import eta
from tidegate.core.planner.plan import Plan
from tidegate.core.planner.running import astray
from tidegate.core.state import times
from tidegate.core.state.snapshot import OutcomeRecord, Snapshot
from tidegate.core.state.view import View

from . import conditions, sentences

KEPT_OUTCOMES: Final = 10
Document = dict[str, Any]


def status(plan: Plan) -> Document:
    """The whole status; keys that are not known are absent."""
    view = plan.view
    s = view.snapshot
    found = conditions.conditions(plan)
    fresh = new_outcomes(view)
    rollout = _rollout(view, fresh)
    document: Document = {
        "observedGeneration": s.generation,
        "phase": _phase(view, found, rollout),
        "message": conditions.worst(found),
        "replicas": sum(p.state == names.SERVING for p in view.alive),
        "selector": f"{names.SERVICE}={s.name},{names.STATE} notin ({names.DRAINING},{names.DRAINED})",
        "serving": len(view.serving),
        "updated": sum(p.state == names.SERVING and p.ready for p in view.target_pods),
        "draining": len(view.draining),
        "revisions": _revisions(view),
        "pods": _pods(view),
        "gracePeriod": _grace(view),
        "outcomes": (list(s.status.get("outcomes") or []) + [_outcome(n, o) for n, o in fresh])[-KEPT_OUTCOMES:],
        "conditions": [_condition(c, s) for c in found],
    }
    if s.drain_times.samples.n:
        document["drainTimes"] = _drain_times(s)
    if view.target is not None:
        document["targetRevision"] = view.target.name
        document["rollout"] = rollout
    elif s.status.get("targetRevision"):
        document["targetRevision"] = s.status["targetRevision"]
        document["rollout"] = dict(s.status.get("rollout") or {})
    return document


def _condition(c: conditions.Condition, s: Snapshot) -> Document:
    value = ConditionStatus.TRUE if c.true else ConditionStatus.FALSE
    before: Document = next((old for old in s.status.get("conditions") or [] if old.get("type") == c.type), {})
    same = before.get("status") == value and before.get("lastTransitionTime")
    return {
        "type": str(c.type),
        "status": str(value),
        "observedGeneration": s.generation,
        "lastTransitionTime": before["lastTransitionTime"] if same else times.short(s.now),
        "reason": str(c.reason),
        "message": c.message,
    }


def _phase(view: View, found: list[conditions.Condition], rollout: Mapping[str, Any]) -> str:
    by_type = {c.type: c for c in found}
    if by_type[ConditionType.STALLED].true:
        return Phase.STALLED
    if view.paused:
        return Phase.PAUSED
    if not view.snapshot.status.get("rollout") and not by_type[ConditionType.READY].true:
        return Phase.PENDING
    if by_type[ConditionType.RECONCILING].true:
        known = view.snapshot.status.get("targetRevision")
        same = view.target is not None and known == view.target.name
        if not known or (same and len(view.snapshot.deployments) <= 1 and not rollout.get("finishedAt")):
            return Phase.PENDING
        return Phase.ROLLING if conditions.rolling(view) or not rollout.get("finishedAt") else Phase.SCALING
    return Phase.READY


def _revisions(view: View) -> list[Document]:
    rows = []
    for d in sorted(view.snapshot.deployments, key=lambda d: (-d.created, d.name)):
        pods = view.pods_of(d)
        if d.replicas or pods or d is view.target:
            rows.append(
                {
                    "name": d.name,
                    "replicas": d.replicas,
                    "serving": sum(p.state == names.SERVING and p.ready for p in pods),
                    "draining": sum(p.state == names.DRAINING for p in pods),
                }
            )
    return rows


def _pods(view: View) -> list[Document]:
    rows = []
    for pod in sorted(view.draining, key=lambda p: p.name):
        row: Document = {"name": pod.name, "state": pod.state}
        if pod.drain is not None:
            row |= {"reason": pod.drain.reason, "since": times.short(pod.drain.since)}
            if pod.drain.deadline is not None:
                row["deadline"] = times.short(pod.drain.deadline)
        reading = view.snapshot.readings.get(pod.uid)
        if reading is not None and pod.drain is not None and reading.at < pod.drain.since:
            reading = None
        if reading is not None:
            row["observedAt"] = times.short(reading.at)
            if reading.in_flight is not None:
                row["inFlight"] = reading.in_flight
            if reading.oldest_seconds is not None:
                row["oldestSeconds"] = int(reading.oldest_seconds)
        row |= _eta(eta.of_drain(view, pod))
        trouble = view.snapshot.troubles.get(pod.uid)
        if trouble is not None:
            row["trouble"] = trouble.detail
        rows.append(row)
    strays = ((p, astray(view, p)) for p in sorted(view.alive, key=lambda p: p.name))
    rows += [{"name": p.name, "state": p.state, "trouble": sentences.stray(said)} for p, said in strays if said]
    return rows


def _eta(found: eta.Eta) -> Document:
    told = {"etaSeconds": found.likely, "etaUpperSeconds": found.upper}
    return {key: math.ceil(value) for key, value in told.items() if value is not None}


def _grace(view: View) -> Document:
    rows = []
    for term in view.grace.terms:
        row: Document = {"name": term.name, "seconds": term.seconds, "source": str(term.source)}
        if term.samples is not None:
            row |= {"samples": term.samples, "covers": term.covers, "message": term.message}
        rows.append(row)
    return {"seconds": view.grace.seconds, "terms": rows}


def _drain_times(s: Snapshot) -> Document:
    """Whole seconds, rounded up: nobody shall plan with less than was measured."""
    known = drains_estimate(s.spec, s.drain_times)
    told = {
        "p50Seconds": known.p50,
        "p90Seconds": known.p90,
        "p99Seconds": known.p99,
        "p99UpperSeconds": known.p99_upper,
    }
    row: Document = {key: math.ceil(value) for key, value in told.items() if value is not None}
    return row | {"samples": known.n, "censored": known.censored}


def _outcome(pod: str, o: OutcomeRecord) -> Document:
    row: Document = {"pod": pod, "outcome": o.outcome, "seconds": round(o.seconds), "at": times.text(o.at)}
    if o.cut is not None:
        row["cut"] = o.cut
    if o.oldest_cut_seconds is not None:
        row["oldestCutSeconds"] = round(o.oldest_cut_seconds)
    return row


def new_outcomes(view: View) -> list[tuple[str, OutcomeRecord]]:
    """Outcomes that the status does not hold yet: of drained pods, and of draining ones that are gone."""
    listed = list(view.snapshot.status.get("outcomes") or [])
    known = {row.get("pod") for row in listed}
    # A full list may have dropped a pod that still stands: whatever is older than all it keeps was counted.
    horizon = min((times.parse(r.get("at")) or 0.0 for r in listed), default=0.0) if len(listed) >= KEPT_OUTCOMES else 0
    fresh = [
        (p.name, p.outcome)
        for p in view.snapshot.pods
        if p.outcome is not None and p.name not in known and p.outcome.at > horizon
    ]
    standing = {p.name: p for p in view.snapshot.pods}
    fresh += [
        (
            p.name,
            _gone(
                view.snapshot.now, p.drain.since if p.drain else view.snapshot.now, Outcome.RELEASED, DrainReason.MANUAL
            ),
        )
        for p in view.snapshot.pods
        if p.release and p.terminating and p.outcome is None and p.name not in known
    ]
    known |= {name for name, _ in fresh}
    for row in view.snapshot.status.get("pods") or []:
        pod = standing.get(row["name"])
        lost = pod is None or (not pod.alive and pod.outcome is None)
        if lost and row["name"] not in known:
            since = times.parse(row.get("since")) or view.snapshot.now
            fresh.append((row["name"], _gone(view.snapshot.now, since, Outcome.VANISHED, str(row.get("reason", "")))))
    return sorted(fresh, key=lambda item: (item[1].at, item[0]))


def _gone(now: float, since: float, kind: Outcome, reason: str) -> OutcomeRecord:
    """A pod that went without saying how: nobody can count what was cut."""
    return OutcomeRecord(kind, max(now - since, 0.0), None, None, now, reason)


def _rollout(view: View, fresh: list[tuple[str, OutcomeRecord]]) -> Document:
    s = view.snapshot
    target = view.target
    if target is None:
        return {}
    before: Mapping[str, Any] = s.status.get("rollout") or {}
    if s.status.get("targetRevision") != target.name or not before.get("startedAt"):
        before = {"startedAt": times.text(s.now if s.status.get("targetRevision") else target.created)}
    row: Document = {key: before[key] for key in ("startedAt", "finishedAt", "seconds") if key in before}
    counted = [o for _, o in fresh if o.reason == DrainReason.ROLLOUT] if not before.get("finishedAt") else []
    waits = [max(o.seconds - s.spec.drain.propagation_seconds, 0.0) for o in counted]
    row["drained"] = int(before.get("drained", 0)) + len(counted)
    row["cut"] = int(before.get("cut", 0)) + sum(o.cut or 0 for o in counted)
    row["drainSeconds"] = round(float(before.get("drainSeconds", 0)) + sum(waits), 1)
    row["longestDrainSeconds"] = round(max([float(before.get("longestDrainSeconds", 0)), *waits]), 1)
    started = times.parse(row["startedAt"]) or s.now
    if not row.get("finishedAt") and _complete(view):
        row["finishedAt"] = times.text(s.now)
        row["seconds"] = round(s.now - started)
    if not before.get("finishedAt"):
        row["startSeconds"] = round(_start_seconds(view) or float(before.get("startSeconds", 0)), 1)
        done = bound.Drained(row["drained"], row["drainSeconds"], row["longestDrainSeconds"])
        least = s.spec.rollout.min_ready_seconds
        row["boundSeconds"] = round(
            bound.rollout_bound(row["startSeconds"] + least, s.spec.drain.propagation_seconds, done, view.limits.slots)
        )
        if not row.get("finishedAt"):
            known = row["startSeconds"] or float((s.status.get("rollout") or {}).get("startSeconds", 0))
            row |= _eta(eta.of_rollout(view, known + least if known else None))
    else:
        row |= {key: before[key] for key in ("startSeconds", "boundSeconds") if key in before}
    return row


def _complete(view: View) -> bool:
    steady = not view.draining and not conditions.rolling(view)
    return steady and len(view.target_available) == view.limits.replicas == view.target_staying


def _start_seconds(view: View) -> float | None:
    """Mean time from creation to Ready of the new pods, in seconds."""
    took = [p.ready_since - p.created for p in view.target_pods if p.ready_since is not None]
    return sum(took) / len(took) if took else None
