"""When a drain, and a rollout, will be over: what `drain_time.eta` needs, read from a view."""

import math

from tidegate.api.conditions import DrainReason, PodState
from tidegate.core.drain_time import eta
from tidegate.core.drain_time.eta import Eta
from tidegate.core.drain_time.grace import drains_estimate
from tidegate.core.state.snapshot import Pod, Reading
from tidegate.core.state.view import View

from .drains import budget


def of_drain(view: View, pod: Pod) -> Eta:
    """Of a draining pod: until its last request has ended, or its budget."""
    record = pod.drain
    if record is None:
        return Eta(None, None)
    elapsed = view.snapshot.now - record.since - view.snapshot.spec.drain.propagation_seconds
    early, elapsed = max(-elapsed, 0.0), max(elapsed, 0.0)
    reading = view.snapshot.readings.get(pod.uid)
    if reading is not None and reading.at >= record.since and reading.idle_since is not None:
        return Eta(early, early + view.snapshot.spec.drain.quiet_seconds)
    rest = None if record.deadline is None else max(record.deadline - view.snapshot.now, 0.0)
    # Where nothing is known of drains that ran so long, the budget ends it.
    return eta.of_drain(_known(view), elapsed).later(early).within(rest)


def predicted(view: View, reading: Reading) -> tuple[float, int, float]:
    """How long a pod that says this would drain, for ranking: in seconds, then by its requests and their age.

    A drain that had begun with its oldest request would have run for that long by now.
    """
    oldest, learnt = reading.oldest_seconds or 0.0, view.snapshot.drain_times
    if not reading.in_flight or not eta.measured(learnt):
        return 0.0, reading.in_flight or 0, oldest
    rest = eta.median_rest(learnt, oldest)
    return math.inf if rest is None else rest, reading.in_flight, oldest


def of_rollout(view: View, start: float | None) -> Eta:
    """Of a rollout that runs; `start` is the seconds that a new pod takes until it counts, None while not known."""
    running = [p for p in view.draining if p.drain is not None and p.drain.reason == DrainReason.ROLLOUT]
    pending = sum(p.state == PodState.SERVING for p in view.old_pods)
    missing = max(view.limits.replicas - len(view.target_available), 0)
    idle = not (running or pending or missing)
    if idle or view.paused or view.cannot_start or view.failing or (missing and not start):
        return Eta(None, None)
    each = view.snapshot.spec.drain.propagation_seconds + (start or 0.0)
    if view.limits.surge == 0:
        each += view.grace.term("teardown")
    etas = tuple(of_drain(view, pod) for pod in running)
    return eta.of_rollout(_known(view), eta.Work(etas, pending, missing, each, view.limits.slots), budget(view))


def _known(view: View) -> eta.Known:
    declared = float(view.grace.term("drain"))
    bound = drains_estimate(view.snapshot.spec, view.snapshot.drain_times).p99_upper
    return eta.Known(view.snapshot.drain_times, declared if bound is None else bound, declared)
