"""Which pods are withdrawn now: those beyond the floor, available - (R - U), and those that serve nobody."""

from tidegate.api.conditions import BlockedReason, DrainReason
from tidegate.core.state.pods import by_age
from tidegate.core.state.snapshot import Pod
from tidegate.core.state.view import View

from . import candidates, drains
from .actions import MarkDrained, Withdraw
from .blocked import Blocked, Unanswered
from .step import Step


def shrink(view: View, *, changing: bool) -> Step:
    """Withdraw what is not wanted; `changing` says that this pass changes counts, so no drain is begun on them."""
    step = Step()
    spare = spare_serving(view)
    surplus = view.target_staying - view.limits.replicas
    for group in candidates.outgoing(view):
        rollout = group.reason is DrainReason.ROLLOUT
        limit = len(group.asked) + len(group.empty) if rollout else surplus
        released = release_empty(view, group, limit)
        limit -= len(released.actions)
        # Whoever still starts waits for nobody: it is asked now, not when its turn to drain comes.
        step += released + Step(questions=candidates.questions(view, group.starting))
        if group.flapping:
            step += Step(blocked=(Blocked(BlockedReason.FLAPPING, tuple(by_age(group.flapping))),))
        if changing or step.changes_counts or limit <= 0:
            # What holds no work goes first and alone, so that the counts below stay true.
            return step
        step += withdraw(view, group, limit, spare)
    return step


def has_surplus(view: View) -> bool:
    """Whether serving pods have to go: of old revisions, or because there are more than are wanted."""
    return bool(_old_serving(view)) or sum(view.staying(d) for d in view.snapshot.deployments) > view.limits.replicas


def _old_serving(view: View) -> list[Pod]:
    return by_age(p for p in view.serving if view.target is None or p.revision != view.target.revision)


def held_back(view: View) -> tuple[Blocked, ...]:
    """Why no pod that serves is withdrawn now, whatever for; empty when some may go.

    No serving pod is to spare after a loss that is not mended, whatever maxUnavailable says.
    """
    found = []
    if len(view.available) <= view.limits.least_serving:
        found.append(Blocked(BlockedReason.LEAST_SERVING, tuple(_old_serving(view))))
    if _recovering_from_loss(view):
        found.append(Blocked(BlockedReason.RECOVERING_FROM_LOSS, tuple(by_age(view.lost))))
    if view.drain_first and not view.starved:
        found.append(Blocked(BlockedReason.ROOM_FOR_UNSCHEDULABLE, tuple(by_age(view.leaving))))
    return tuple(found)


def spare_serving(view: View) -> int:
    """How many serving pods may go: those beyond the floor, none while something holds them back."""
    return 0 if held_back(view) else len(view.available) - view.limits.least_serving


def _recovering_from_loss(view: View) -> bool:
    return bool(view.lost) and len(view.available) < view.limits.replicas


def release_empty(view: View, group: candidates.Candidates, limit: int) -> Step:
    """Pods that hold no work go at once, in one PATCH; none goes while the new revision fails to come up."""
    if group.reason is DrainReason.ROLLOUT and view.failing:
        return Step()
    youngest = by_age(group.empty)[::-1]
    chosen = by_age(youngest[: max(limit, 0)])
    return Step(tuple(_without_work(view, pod, group.reason) for pod in chosen))


def _without_work(view: View, pod: Pod, reason: DrainReason) -> MarkDrained:
    ended = drains.no_work(view, drains.begin(view, pod, reason))
    return MarkDrained(pod.name, pod.uid, pod.state, None, ended, drains.cause(view, pod), pod.version)


def withdraw(view: View, group: candidates.Candidates, limit: int, spare: int) -> Step:
    """Begin drains, once all that may go have been asked what they hold."""
    counts = _allowed(view, group, limit, spare)
    if max(counts) <= 0:
        return Step(blocked=_no_slot(view, group))
    kinds = (group.not_ready, group.not_available, group.available)
    asked = [p for pods, count in zip(kinds, counts, strict=True) if count > 0 for p in pods]
    open_questions = candidates.questions(view, asked)
    if not candidates.reachable(view):
        return Step(questions=open_questions) + _ask_anybody(view, asked)
    if open_questions:
        return Step(questions=open_questions)
    not_ready, not_available, serving = counts
    chosen = [
        *group.not_ready[:not_ready],
        *candidates.choose(view, group.not_available, not_available),
        *candidates.choose(view, group.available, serving),
    ]
    return Step(
        tuple(Withdraw(pod.name, pod.uid, drains.begin(view, pod, group.reason), pod.version) for pod in chosen)
    )


def _no_slot(view: View, group: candidates.Candidates) -> tuple[Blocked, ...]:
    """Why none of the group goes, where it is not that serving pods are held back."""
    if view.snapshot.locks_missing and view.draining:
        return (Blocked(BlockedReason.ONE_AT_A_TIME, tuple(by_age(view.draining))),)
    unavailable = tuple(by_age((*group.not_ready, *group.not_available)))
    return (Blocked(BlockedReason.NO_FREE_SLOT, unavailable),) if unavailable else ()


def _ask_anybody(view: View, asked: list[Pod]) -> Step:
    """No running pod has answered: an answer of any will do, since those that go may be just the broken ones."""
    asked_uids = {p.uid for p in asked}
    others = [p for p in view.serving if p.uid not in asked_uids]
    step = Step(questions=candidates.questions(view, others), wake=(view.snapshot.poll_seconds,))
    # While they are asked again the last answers stand, so that the condition does not flap.
    if all(p.uid in view.snapshot.troubles or not p.askable for p in (*asked, *others)):
        step += Step(blocked=(_no_answer(view),))
    return step


def _no_answer(view: View) -> Blocked:
    pods = by_age(p for p in view.alive if p.uid in view.snapshot.troubles and p.ip)
    if pods:
        return Blocked(BlockedReason.NO_ANSWER, tuple(pods), Unanswered(view.snapshot.troubles[pods[0].uid]))
    lost = by_age(p for p in view.alive if p.ip and not p.askable)
    detail = Unanswered(None, port_unknown=bool(lost))
    return Blocked(BlockedReason.NO_ANSWER, tuple(lost or by_age(view.alive)), detail)


def _allowed(view: View, group: candidates.Candidates, limit: int, spare: int) -> tuple[int, int, int]:
    """How many that are not Ready, not available, and available may go now; none is below 0."""
    unavailable = max(min(_unavailable_allowed(view, group.reason), limit), 0)
    not_ready = min(unavailable, len(group.not_ready))
    not_available = max(min(unavailable - not_ready, len(group.not_available), _serving_beyond(view, group)), 0)
    serving = min(spare, limit - not_ready - not_available, len(group.available))
    if group.reason is DrainReason.ROLLOUT and (view.failing or view.held):
        not_available = serving = 0
    if view.snapshot.locks_missing:
        rest = 1 - len(view.draining)
        not_ready = min(not_ready, rest)
        not_available = min(not_available, rest - not_ready)
        serving = min(serving, rest - not_ready - not_available)
    return max(not_ready, 0), max(not_available, 0), max(serving, 0)


def _unavailable_allowed(view: View, reason: DrainReason) -> int:
    """How many pods that are not available may go at once: NotReady ones that may recover, and those that flap.

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
    serving = {p.uid for p in (*view.target_available, *group.not_available, *group.available)}
    return len(serving) - (view.limits.replicas if _recovering_from_loss(view) else view.limits.least_serving)
