"""Which pods are withdrawn now: those beyond the floor, available - (R - U), and those that serve nobody."""

from tidegate.api.conditions import DrainReason
from tidegate.core.report import sentences
from tidegate.core.state.view import View, by_age

from . import candidates, drains
from .actions import MarkDrained, Withdraw
from .draft import POLL_SECONDS, Draft


def shrink(draft: Draft) -> None:
    view = draft.view
    spare = spare_serving(view)
    surplus = view.target_staying - view.limits.replicas
    for group in candidates.outgoing(view):
        rollout = group.reason is DrainReason.ROLLOUT
        limit = len(group.asked) + len(group.empty) if rollout else surplus
        limit -= release_empty(draft, group, limit)
        # Whoever still starts waits for nobody: it is asked now, not when its turn to drain comes.
        draft.questions.extend(candidates.questions(view, group.starting))
        if draft.counting or limit <= 0:
            # What holds no work goes first and alone, so that the counts below stay true.
            return
        spare -= withdraw(draft, group, limit, spare)


def spare_serving(view: View) -> int:
    """Serving pods beyond the floor. None is to spare after a loss that is not mended, whatever maxUnavailable says."""
    if _wounded(view):
        return 0
    if view.drain_first and not view.starved:
        return 0
    return len(view.available) - view.limits.least_serving


def _wounded(view: View) -> bool:
    """Whether a loss is not mended yet."""
    return bool(view.lost) and len(view.available) < view.limits.replicas


def release_empty(draft: Draft, group: candidates.Candidates, limit: int) -> int:
    """Pods that hold no work go at once, in one PATCH; none goes while the new revision fails to come up."""
    view = draft.view
    if group.reason is DrainReason.ROLLOUT and view.failing:
        return 0
    youngest = by_age(group.empty)[::-1]
    chosen = by_age(youngest[: max(limit, 0)])
    for pod in chosen:
        record = drains.begin(view, pod, group.reason)
        ended = drains.no_work(view, record)
        why = sentences.why(view, pod, ended)
        draft.actions.append(MarkDrained(pod.name, pod.uid, pod.state, None, ended, why, pod.version))
    return len(chosen)


def withdraw(draft: Draft, group: candidates.Candidates, limit: int, spare: int) -> int:
    """Begin drains; returns how many serving pods that takes."""
    view = draft.view
    counts = _allowed(view, group, limit, spare)
    if max(counts) <= 0:
        return 0
    kinds = (group.unready, group.unsteady, group.serving)
    asked = [p for pods, count in zip(kinds, counts, strict=True) if count > 0 for p in pods]
    open_questions = candidates.questions(view, asked)
    draft.questions.extend(q for q in open_questions if q not in draft.questions)
    if not candidates.reachable(view):
        # An answer of any running pod will do: the candidates left may be just those that are broken.
        asked_uids = {p.uid for p in asked}
        others = [p for p in view.serving if p.uid not in asked_uids]
        draft.questions.extend(candidates.questions(view, others))
        # While they are asked again the last answers stand, so that the condition does not flap.
        draft.unreachable = all(p.uid in view.snapshot.troubles or not p.askable for p in (*asked, *others))
        draft.wake.append(POLL_SECONDS)
        return 0
    if open_questions:
        return 0
    unready, unsteady, serving = counts
    chosen = [
        *group.unready[:unready],
        *candidates.choose(view, group.unsteady, unsteady),
        *candidates.choose(view, group.serving, serving),
    ]
    for pod in chosen:
        draft.actions.append(Withdraw(pod.name, pod.uid, drains.begin(view, pod, group.reason), pod.version))
    return sum(p.uid in view.available_uids for p in chosen)


def _allowed(view: View, group: candidates.Candidates, limit: int, spare: int) -> tuple[int, int, int]:
    """How many of the unready, the unsteady and the serving ones may go now; none is below 0."""
    unproven = max(min(_unproven_allowed(view, group.reason), limit), 0)
    unready = min(unproven, len(group.unready))
    unsteady = max(min(unproven - unready, len(group.unsteady), _serving_beyond(view, group)), 0)
    serving = min(spare, limit - unready - unsteady, len(group.serving))
    if group.reason is DrainReason.ROLLOUT and (view.failing or view.held):
        unsteady = serving = 0
    if view.snapshot.locks_missing:
        rest = 1 - len(view.draining)
        unready = min(unready, rest)
        unsteady = min(unsteady, rest - unready)
        serving = min(serving, rest - unready - unsteady)
    return max(unready, 0), max(unsteady, 0), max(serving, 0)


def _unproven_allowed(view: View, reason: DrainReason) -> int:
    """How many pods that nobody counts on may go at once: NotReady ones that may recover, and those that flap.

    Once the new revision stands they go slot by slot. Before that only as many as maxUnavailable allows, and those
    beyond what is wanted at all: else a pod of an abandoned revision would hold the place of the next one for ever.
    """
    if reason is not DrainReason.ROLLOUT:
        return len(view.alive)
    going = len(view.draining)
    if not view.failing and view.target_available:
        return view.limits.slots - going
    beyond = sum(view.staying(d) for d in view.old_deployments) - view.limits.replicas
    return max(view.limits.unavailable - going, beyond)


def _serving_beyond(view: View, group: candidates.Candidates) -> int:
    """Serving pods beyond the floor, those that have only just become Ready among them.

    One that flaps is never NotReady for long enough to be lost, nor Ready for long enough to be available. It goes as
    a NotReady pod does, but as long as it takes traffic, as many as are needed have to be left.
    """
    serving = {p.uid for p in (*view.target_available, *group.unsteady, *group.serving)}
    return len(serving) - (view.limits.replicas if _wounded(view) else view.limits.least_serving)
