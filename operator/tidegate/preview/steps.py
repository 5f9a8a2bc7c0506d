"""What happens to one service, told in steps as the API server in memory stores it."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tidegate.api import names
from tidegate.api.conditions import DrainReason, Outcome, PodState
from tidegate.api.errors import ClusterError, TemplateRefused, TidegateError
from tidegate.cluster.port import CONFIG_MAPS, EVENTS, LLM_SERVICES, PODS, Kind, Object
from tidegate.controller.parts import Executes
from tidegate.core.planner import actions as a
from tidegate.core.report.phrases import count
from tidegate.core.state.snapshot import Snapshot

from .apiserver import Server
from .shapes import active, ready

OPERATOR: Final = "operator"
"""The name under which the operator writes."""
BOOKS: Final = (EVENTS, CONFIG_MAPS, LLM_SERVICES)
"""What the operator writes for itself and for people: no step of a change."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens, `at` seconds after the change."""

    at: float
    text: str
    pods: int
    serving: int


class OneByOne:
    """An executor that says which action of the plan is under way, so that a write can be told by its cause."""

    def __init__(self, inner: Executes) -> None:
        self._inner = inner
        self.action: a.Action | None = None
        """What is being done now."""

    async def execute(self, snapshot: Snapshot, plan: Iterable[a.Action]) -> None:
        """As `Executor.execute`."""
        failure: TidegateError | None = None
        for action in plan:
            self.action = action
            try:
                await self._inner.execute(snapshot, (action,))
            except (ClusterError, TemplateRefused) as error:
                failure = failure or error
            finally:
                self.action = None
        if failure is not None:
            raise failure


_ENDINGS: Final = {
    Outcome.DRAINED: "has no request left",
    Outcome.NO_WORK: "held no request",
    Outcome.EXPIRED: "has spent its budget: what still runs in it is cut",
    Outcome.VANISHED: "has lost its process: nobody can count what it cut",
    Outcome.RELEASED: "is released: nobody can count what it cuts",
}


class Steps:
    """The steps since `begin`, and the extremes that the service went through meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server, doing: Callable[[], a.Action | None]) -> None:
        self._loop, self._server, self._doing = loop, server, doing
        self.withdrawn: Callable[[a.Withdraw], None] = lambda _: None
        """Called when a pod was withdrawn."""
        self.min_ready_seconds = 0
        self.begin()
        server.written.append(self._written)

    def begin(self) -> None:
        """Tell from now on, as at 0 s."""
        self.steps: list[Step] = []
        self.drained = self.replaced = 0
        """Pods that were drained; those of them that a rollout has replaced."""
        self.ended_at = 0.0
        """Seconds until the last step that is not the end of a pod."""
        self._began = self._loop.time()
        self._alive: set[str] = set()
        self._serving: set[str] = set()
        for pod in self._server.all(PODS):
            self._count(pod["metadata"]["uid"], pod)
        self._was_empty = not self._alive
        self.most_pods, self.least_serving = len(self._alive), len(self._serving)

    def _written(self, writer: str, kind: Kind, old: Object | None, new: Object | None) -> None:
        item = new or old
        if kind is PODS and item is not None:
            self._count(item["metadata"]["uid"], new)
            self.most_pods = max(self.most_pods, len(self._alive))
            self.least_serving = 0 if self._was_empty else min(self.least_serving, len(self._serving))
        action = self._doing()
        if writer == OPERATOR and action is not None and kind not in BOOKS:
            self._acted(action, old, new)
        elif kind is PODS and old is not None:
            self._changed(old, new)

    def _acted(self, action: a.Action, old: Object | None, new: Object | None) -> None:
        if isinstance(action, a.MarkDrained):
            self.drained += 1
            self.replaced += action.outcome.reason == DrainReason.ROLLOUT
            self._step(f"{action.pod} {_ENDINGS[action.outcome.outcome]}")
        self._step(text(action, old, new))
        if isinstance(action, a.Withdraw):
            self.withdrawn(action)

    def _changed(self, old: Object, new: Object | None) -> None:
        name = old["metadata"]["name"]
        if new is None:
            self._step(f"{name} is gone", ends=False)
        elif _serves(new) and not _serves(old):
            self._step(f"{name} serves")
            if self.min_ready_seconds:
                self._loop.call_later(self.min_ready_seconds, self._available, new)

    def _available(self, pod: Object) -> None:
        meta = pod["metadata"]
        live = self._server.find(PODS, meta["namespace"], meta["name"])
        if live is not None and live["metadata"]["uid"] == meta["uid"] and _serves(live):
            self._step(f"{meta['name']} counts, after {self.min_ready_seconds} s of minReadySeconds")

    def _step(self, what: str, *, ends: bool = True) -> None:
        # To the second: what is assumed is not known better, and what Kubernetes takes besides is less.
        at = float(round(self._loop.time() - self._began))
        if ends:
            self.ended_at = at
        self.steps.append(Step(at, what, len(self._alive), len(self._serving)))

    def _count(self, uid: str, pod: Object | None) -> None:
        for uids, belongs in ((self._alive, pod is not None and active(pod)), (self._serving, _serves(pod))):
            (uids.add if belongs else uids.discard)(uid)


def _serves(pod: Object | None) -> bool:
    if pod is None:
        return False
    return pod["metadata"]["labels"].get(names.STATE) == PodState.SERVING and active(pod) and ready(pod)


def text(action: a.Action, old: Object | None, new: Object | None) -> str:
    """What an action does to the object `old`, which is `new` then, in a few words."""
    name = (new or old or {"metadata": {"name": ""}})["metadata"]["name"]
    match action:
        case a.CreateRevision(refresh=True):
            return f"write the template of {name} anew, since it is at 0"
        case a.CreateRevision():
            return f"create Deployment {name} with {count(action.replicas, 'replica')}"
        case a.Scale():
            way = "raise" if old is not None and action.replicas > old["spec"]["replicas"] else "lower"
            return f"{way} {name} to {action.replicas} ({action.why})"
        case a.Withdraw():
            return f"withdraw {action.pod} ({action.record.reason}) and drain it"
        case a.UpdateDrain():
            return f"move the deadline of {action.pod}"
        case a.Restore():
            return f"{action.pod} serves again"
        case a.MarkDrained():
            return f"{action.pod} is drained: {action.outcome.outcome} after {action.outcome.seconds:.0f} s"
        case _:
            return _of_child(action)


def _of_child(action: a.Action) -> str:
    match action:
        case a.DeletePod():
            return f"delete {action.pod}"
        case a.DeleteDeployment():
            return f"remove {action.name}: beyond revisionHistoryLimit"
        case a.ApplyChild():
            return f"apply {action.kind} {action.name}"
        case a.DeleteChild():
            return f"delete {action.kind} {action.name}"
        case a.EnsureSecret():
            return f"create Secret {action.name} with the drain key"
        case a.Adopt():
            return f"adopt {action.name}"
    raise TypeError(f"no words for {action}")
