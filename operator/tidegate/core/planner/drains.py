"""Drains that run: has it ended, and how; else what has to be said to the pod."""

import hashlib
from dataclasses import replace
from typing import Final

from tidegate.api.conditions import DrainReason, Outcome
from tidegate.api.drain import OnExpiry
from tidegate.core.state.snapshot import DrainRecord, OutcomeRecord, Pod, Reading
from tidegate.core.state.view import View

from . import samples
from .actions import Action, DrainOrder, EndCause, MarkDrained, Restore, UpdateDrain

EXPIRY_SLACK: Final = 2.0
"""Seconds after the deadline in which the pod may still report what it cut."""


def budget(view: View) -> float | None:
    """How long the operator waits, in seconds; None when it holds the pod for as long as it takes."""
    drain = view.snapshot.spec.drain
    return None if drain.on_expiry is OnExpiry.HOLD else float(drain.budget_seconds)


def begin(view: View, pod: Pod, reason: DrainReason) -> DrainRecord:
    """The record of a drain that begins now. Its id follows from pod and time, so that a repeated plan repeats it."""
    now = round(view.snapshot.now, 3)
    digest = hashlib.sha256(f"{pod.uid}/{now}".encode()).hexdigest()[:16]
    limit = budget(view)
    return DrainRecord(
        id=digest,
        instance=_instance(view, pod),
        reason=reason,
        since=now,
        deadline=None if limit is None else round(now + limit, 3),
        budget=limit,
    )


def _instance(view: View, pod: Pod) -> str | None:
    """What the pod called its present run; a foreign endpoint has no name for it, so the kubelet's is taken."""
    if pod.foreign is not None:
        return pod.container.run or None
    reading = view.snapshot.readings.get(pod.uid)
    return reading.instance if reading and view.snapshot.now - reading.at < 60 else None


def advance(view: View, pod: Pod, *, undo: bool) -> tuple[list[Action], DrainOrder | None]:
    """What to do about one draining pod: actions, and what its session has to carry on with."""
    record = pod.drain
    if record is None:
        # Somebody set the label by hand: that is a wish, and gets a record like any other.
        fresh = begin(view, pod, DrainReason.MANUAL)
        return [UpdateDrain(pod.name, pod.uid, None, fresh)], None
    ended = outcome(view, pod, record)
    if ended is not None:
        # A pod found without work may have started since; one that said it is sealed stays so.
        version = pod.version if view.holds_no_work(pod) else ""
        return [MarkDrained(pod.name, pod.uid, pod.state, record, ended, cause(view, pod), version)], None
    if undo:
        reading = view.snapshot.readings.get(pod.uid)
        if reading is not None and reading.state == "serving" and reading.at >= record.since:
            return [Restore(pod.name, pod.uid, record)], None
    actions: list[Action] = []
    if not undo and record.budget != budget(view) and not _tokens_sent(view, pod, record):
        record = _with_budget_in_force(view, record)
        actions.append(UpdateDrain(pod.name, pod.uid, pod.drain, record))
    return actions, order(view, pod, record, undo=undo)


def order(view: View, pod: Pod, record: DrainRecord, *, undo: bool) -> DrainOrder | None:
    """What the pod's session has to carry on with; None when nobody knows where to reach it."""
    if not pod.ip or pod.contract_port is None:
        return None
    drain = view.snapshot.spec.drain
    return DrainOrder(
        pod=pod.name,
        uid=pod.uid,
        ip=pod.ip,
        port=pod.contract_port,
        record=record,
        propagation_seconds=drain.propagation_seconds,
        quiet_seconds=drain.quiet_seconds,
        flush_seconds=drain.flush_seconds,
        stalled_after_seconds=drain.stalled_after_seconds,
        undo=undo,
        foreign=pod.foreign,
        run=pod.container.run if pod.foreign is not None else "",
    )


def outcome(view: View, pod: Pod, record: DrainRecord) -> OutcomeRecord | None:
    """How the drain ended and its sample of drain times, or None while it runs."""
    ended = _how(view, pod, record)
    said = view.snapshot.readings.get(pod.uid)
    if ended is not None and ended.cut is None and said is not None and said.at >= record.since:
        ended = replace(ended, in_flight=said.in_flight)
    sample = None if ended is None else samples.lasted(view, pod, record, ended.outcome)
    if ended is None or sample is None:
        return ended
    seconds, censored = sample
    arrival = samples.last_arrival(view, pod, record)
    return replace(ended, drain_seconds=seconds, censored=censored, last_arrival_after_seconds=arrival)


def _how(view: View, pod: Pod, record: DrainRecord) -> OutcomeRecord | None:
    now = view.snapshot.now
    reading = view.snapshot.readings.get(pod.uid)
    if pod.release:
        # What it holds now may still end in its grace period, and nobody listens any more: its cuts are not known.
        return _ended(now, record, Outcome.RELEASED, None)
    if view.holds_no_work(pod):
        # One that could not be asked when its drain began may have held work all the same, if it ever ran.
        c = pod.container
        gone = record.instance is not None or c.started or c.restarts > 0 or c.exit_code is not None
        return _ended(now, record, Outcome.VANISHED if gone else Outcome.NO_WORK, None if gone else 0)
    if reading is not None and _sealed(view, record, reading):
        if record.instance is not None and reading.instance != record.instance:
            return _ended(now, record, Outcome.VANISHED, None)
        late = (
            record.deadline is not None and reading.at >= record.deadline - view.snapshot.spec.drain.flush_seconds - 1
        )
        kind = Outcome.EXPIRED if reading.cut and late else Outcome.DRAINED
        return _ended(now, record, kind, reading.cut, reading.oldest_cut_seconds)
    if record.deadline is not None and now >= record.deadline + EXPIRY_SLACK:
        if reading is None and pod.uid not in view.snapshot.troubles and pod.ip and pod.contract_port is not None:
            # Nobody has asked it since this operator started: it may be sealed, with nothing cut.
            return None
        if reading is None or reading.at < record.deadline - view.snapshot.spec.drain.flush_seconds:
            return _ended(now, record, Outcome.EXPIRED, None)
        if record.instance is not None and reading.instance != record.instance:
            # It restarted unseen: what it says is not about the requests of the process before.
            return _ended(now, record, Outcome.EXPIRED, None)
        oldest = reading.oldest_cut_seconds or reading.oldest_seconds
        cut = None if reading.in_flight is None or reading.cut is None else reading.cut + reading.in_flight
        return _ended(now, record, Outcome.EXPIRED, cut, oldest)
    return None


def cause(view: View, pod: Pod) -> EndCause:
    """What is known, beside its outcome, of why the drain of this pod ends now."""
    trouble = view.snapshot.troubles.get(pod.uid)
    return EndCause(view.no_work(pod), "" if trouble is None else trouble.detail)


def third_party_record(pod: Pod, reading: Reading) -> DrainRecord:
    """The record of a drain that somebody else began, good for undoing it."""
    return DrainRecord(reading.drain_id or "", reading.instance, DrainReason.MANUAL, pod.unready_since or 0.0, None)


def no_work(view: View, record: DrainRecord) -> OutcomeRecord:
    """The outcome of a pod that goes without a drain, since nothing runs in it."""
    return _ended(view.snapshot.now, record, Outcome.NO_WORK, 0)


def _sealed(view: View, record: DrainRecord, reading: Reading) -> bool:
    # Sealed before the propagation time is a contradiction; by our clock, which counts from before the withdrawal.
    early = reading.at - record.since < view.snapshot.spec.drain.propagation_seconds
    return reading.state == "sealed" and reading.drain_id == record.id and not early


def _ended(
    now: float, record: DrainRecord, kind: Outcome, cut: int | None, oldest: float | None = None
) -> OutcomeRecord:
    return OutcomeRecord(
        outcome=kind,
        seconds=round(max(now - record.since, 0.0), 3),
        cut=cut,
        oldest_cut_seconds=None if oldest is None or not cut else round(oldest, 1),
        at=round(now, 3),
        reason=record.reason,
    )


def _tokens_sent(view: View, pod: Pod, record: DrainRecord) -> bool:
    reading = view.snapshot.readings.get(pod.uid)
    if reading is not None and reading.cut:
        return True
    return record.deadline is not None and view.snapshot.now >= record.deadline - view.snapshot.spec.drain.flush_seconds


def _with_budget_in_force(view: View, record: DrainRecord) -> DrainRecord:
    limit = budget(view)
    deadline = None
    if limit is not None:
        # A budget that is already spent still leaves the time to deliver the shutdown tokens.
        deadline = round(max(record.since + limit, view.snapshot.now + view.snapshot.spec.drain.flush_seconds + 1), 3)
    return DrainRecord(record.id, record.instance, record.reason, record.since, deadline, limit)
