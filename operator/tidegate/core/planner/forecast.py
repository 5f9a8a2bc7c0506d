"""What a change would do, step by step: the real plan, played against an ideal cluster.

The decisions are `plan.plan`'s own; only the world is assumed: a pod is Ready `start` seconds after its creation, its
drain ends `drain` seconds after the propagation time, a released pod is gone `teardown` seconds later. Nothing fails.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import BlockedReason, DrainReason
from tidegate.core.drain_time import bound
from tidegate.core.drain_time.grace import grace_period
from tidegate.core.render import objects
from tidegate.core.state.snapshot import ContainerStatus, Deployment, Pod, Reading, ReplicaSet, Snapshot

from . import actions as a
from .blocked import Findings
from .drains import budget as drain_budget
from .plan import plan

MOST_STEPS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Seconds that the forecast takes for granted."""

    start: float
    drain: float
    teardown: float


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, `at` seconds after the change."""

    at: float
    text: str
    pods: int
    serving: int


@dataclass(frozen=True, slots=True)
class Forecast:
    steps: tuple[Step, ...]
    seconds: float
    bound_seconds: float | None
    """None where no pod is replaced."""
    drained: int
    least_serving: int
    most_pods: int
    snapshot: Snapshot
    """The world at the end, from which another change can be played."""


class Stuck(Exception):
    """The plan waits for something that an ideal cluster does not bring; the text says for what."""


class _World:
    """An ideal cluster around one service."""

    def __init__(self, s: Snapshot, assume: Assumptions) -> None:
        self.s, self.assume = s, assume
        self.drained = self.replaced = 0
        self._numbers = itertools.count(len(s.pods) + 1)
        self._gone: dict[str, float] = {p.uid: s.now + assume.teardown for p in s.pods if p.terminating}

    def pods(self, pods: list[Pod]) -> None:
        self.s = replace(self.s, pods=tuple(pods))

    def change(self, uid: str, **fields: object) -> None:
        self.pods([replace(p, **fields) if p.uid == uid else p for p in self.s.pods])  # type: ignore[arg-type]

    def deployments(self, changed: Deployment) -> None:
        kept = [d for d in self.s.deployments if d.uid != changed.uid]
        self.s = replace(self.s, deployments=(*kept, changed))

    def act(self, action: a.Action) -> str:
        """Do it, as the API server and the controllers would; returns what to tell."""
        match action:
            case a.CreateRevision():
                name = f"{self.s.name}-{action.revision}"
                made = Deployment(name, name, action.revision, action.replicas, action.source, self.s.now)
                if action.refresh:
                    return self._refresh(action)
                self.deployments(made)
                return f"create Deployment {name} with {_count(action.replicas)}"
            case a.Scale():
                held = next(d for d in self.s.deployments if d.name == action.deployment)
                self.deployments(replace(held, replicas=action.replicas, released=action.released))
                way = "raise" if action.replicas > held.replicas else "lower"
                return f"{way} {held.name} to {action.replicas} ({action.why})"
            case a.Withdraw():
                self.change(action.uid, state=names.DRAINING, drain=action.record, ready_since=None)
                return f"withdraw {action.pod} ({action.record.reason}) and drain it"
            case a.UpdateDrain():
                self.change(action.uid, drain=action.record)
                return f"move the deadline of {action.pod}"
            case a.Restore():
                self.change(action.uid, state=names.SERVING, drain=None, ready_since=self.s.now)
                return f"{action.pod} serves again"
            case a.MarkDrained():
                self.change(action.uid, state=names.DRAINED, outcome=action.outcome)
                self.drained += 1
                self.replaced += action.outcome.reason == DrainReason.ROLLOUT
                return f"{action.pod} is drained: {action.outcome.outcome} after {action.outcome.seconds:.0f} s"
            case _:
                return self._rest(action)

    def _rest(self, action: a.Action) -> str:
        match action:
            case a.DeletePod():
                self._terminate(action.uid)
                return f"delete {action.pod}"
            case a.DeleteDeployment():
                kept = tuple(d for d in self.s.deployments if d.uid != action.uid)
                self.s = replace(self.s, deployments=kept)
                return f"remove {action.name}: beyond revisionHistoryLimit"
            case a.ApplyChild(kind="Service"):
                self.s = replace(self.s, live_service=dict(action.body))
            case a.ApplyChild():
                self.s = replace(self.s, live_budget=dict(action.body))
            case a.DeleteChild():
                self.s = replace(self.s, live_service=None)
                return f"delete {action.kind} {action.name}"
            case a.EnsureSecret():
                self.s = replace(self.s, has_secret=True)
                return f"create Secret {action.name} with the drain key"
            case a.Adopt():
                held = next(d for d in self.s.deployments if d.uid == action.uid)
                self.deployments(replace(held, adopted=True))
                return f"adopt {action.name}"
        return f"apply {action.kind} {action.name}" if isinstance(action, a.ApplyChild) else ""

    def _refresh(self, action: a.CreateRevision) -> str:
        held = next(d for d in self.s.deployments if d.revision == action.revision)
        owner = objects.Owner(self.s.namespace, self.s.name, self.s.uid)
        rendered = objects.digest(owner, self.s.spec, held.revision)
        grace = grace_period(self.s.spec, self.s.drain_times).seconds
        self.deployments(replace(held, rendered=rendered, grace_seconds=grace))
        return f"write the template of {held.name} anew, since it is at 0"

    def controllers(self) -> None:
        """The ReplicaSets: create what is missing, delete drained pods that are too many."""
        sets = []
        for d in self.s.deployments:
            mine = [p for p in self.s.pods if p.alive and p.revision == d.revision]
            for _ in range(d.replicas - len(mine)):
                name = f"{d.name}-{next(self._numbers)}"
                self.pods([*self.s.pods, _new_pod(name, d.revision, self.s.now)])
            surplus = [p for p in mine if p.state == names.DRAINED][: max(len(mine) - d.replicas, 0)]
            for pod in surplus:
                self._terminate(pod.uid)
            sets.append(ReplicaSet(d.name, d.uid, d.uid, d.replicas, True))
        self.s = replace(self.s, replica_sets=tuple(sets))

    def _terminate(self, uid: str) -> None:
        self.change(uid, terminating=True, ready_since=None)
        self._gone[uid] = self.s.now + self.assume.teardown

    def answer(self, questions: tuple[a.Question, ...]) -> None:
        said = {q.uid: Reading(self.s.now, q.uid, None, "serving", 1) for q in questions}
        self.s = replace(self.s, readings={**self.s.readings, **said})

    def due(self) -> Iterator[tuple[float, str]]:
        """Everything that time alone will bring."""
        for pod in self.s.pods:
            if pod.uid in self._gone:
                yield self._gone[pod.uid], pod.uid
            elif pod.alive and pod.state == names.SERVING and pod.ready_since is None:
                yield max(pod.created + self.assume.start, self.s.now), pod.uid
            elif pod.alive and pod.state == names.SERVING and self._counts_at(pod) > self.s.now:
                yield self._counts_at(pod), pod.uid
            elif pod.state == names.DRAINING and pod.drain is not None:
                yield max(self._sealed_at(pod), self.s.now), pod.uid

    def _counts_at(self, pod: Pod) -> float:
        return (pod.ready_since or 0.0) + self.s.spec.rollout.min_ready_seconds

    def _sealed_at(self, pod: Pod) -> float:
        since = pod.drain.since if pod.drain else self.s.now
        ends = since + self.s.spec.drain.propagation_seconds + self.assume.drain
        return ends if pod.drain is None or pod.drain.deadline is None else min(ends, pod.drain.deadline)

    def advance(self) -> str | None:
        """Go to the next thing that happens by itself; None when nothing will."""
        coming = sorted(self.due())
        if not coming:
            return None
        at, uid = coming[0]
        self.s = replace(self.s, now=max(at, self.s.now))
        pod = next(p for p in self.s.pods if p.uid == uid)
        if uid in self._gone:
            del self._gone[uid]
            self.pods([p for p in self.s.pods if p.uid != uid])
            return f"{pod.name} is gone"
        if pod.state == names.SERVING and pod.ready_since is None:
            self.change(uid, ready_since=self.s.now, container=ContainerStatus(True, True), any_running=True)
            return f"{pod.name} serves"
        if pod.state == names.SERVING:
            return f"{pod.name} counts, after {self.s.spec.rollout.min_ready_seconds} s of minReadySeconds"
        assert pod.drain is not None, "due() yields no other"  # noqa: S101
        sealed = Reading(self.s.now, pod.drain.instance or uid, pod.drain.id, "sealed", 0)
        self.s = replace(self.s, readings={**self.s.readings, uid: sealed})
        if pod.drain.deadline is not None and self.s.now >= pod.drain.deadline:
            return f"{pod.name} has spent its budget: what still runs in it is cut"
        return f"{pod.name} has no request left"


def play(s: Snapshot, assume: Assumptions) -> Forecast:
    """Play until nothing is left to do. Raises `Stuck` when that is not where the spec wants to be."""
    world = _World(s, assume)
    began, steps, done_at = s.now, [], s.now
    before = len([p for p in s.pods if p.alive])
    least, most = len(plan(s).view.serving) if before else 0, before
    for _ in range(MOST_STEPS):
        decided = plan(world.s)
        told = [world.act(action) for action in decided.actions]
        world.answer(decided.questions)
        world.controllers()
        if not told and not decided.questions:
            happened = world.advance()
            if happened is None:
                break
            told = [happened]
        view = plan(world.s).view
        serving, alive = len(view.serving), len(view.alive)
        least = min(least, serving) if before else 0
        most = max(most, alive)
        if any(not text.endswith(" is gone") for text in told):
            done_at = world.s.now
        steps += [Step(world.s.now - began, text, alive, serving) for text in told if text]
    last = plan(world.s)
    view = last.view
    if last.blocked_by(BlockedReason.PAUSED) is not None:
        raise Stuck("spec.rollout.paused holds it: set it to false, or plan with false to see what would follow")
    if view.target is None or view.old_pods or len(view.serving) != view.limits.replicas:
        conflict = last.blocked_by(BlockedReason.TEMPLATE_CONFLICT)
        found = conflict.detail.found if conflict is not None and isinstance(conflict.detail, Findings) else ()
        raise Stuck("; ".join(str(f) for f in found) or "the plan waits although nothing fails")
    e = world.s.spec.drain.propagation_seconds
    limit = drain_budget(view)
    longest = assume.drain if limit is None else min(assume.drain, max(limit - e, 0.0))
    drains = bound.Drained(world.replaced, longest * world.replaced, longest if world.replaced else 0.0)
    start = assume.start + world.s.spec.rollout.min_ready_seconds
    best = bound.rollout_bound(start, e, drains, view.limits.slots) if world.replaced else None
    return Forecast(tuple(steps), done_at - began, best, world.drained, least, most, world.s)


def _new_pod(name: str, revision: str, now: float) -> Pod:
    return Pod(
        name=name,
        uid=name,
        revision=revision,
        state=names.SERVING,
        phase="Running",
        created=now,
        ip="192.0.2.1",  # TEST-NET-1: nobody is called in a forecast
        contract_port=names.CONTRACT_PORT,
        any_running=True,
        container=ContainerStatus(running=True, started=False),
    )


def _count(replicas: int) -> str:
    return f"{replicas} replica" if replicas == 1 else f"{replicas} replicas"
