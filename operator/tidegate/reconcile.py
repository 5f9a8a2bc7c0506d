"""One pass over one service: gather -> plan -> status -> execute -> look again.

Status goes first: it says what is known and what comes next, and an outcome is in it before the drained pod can be
gone. Everything is recomputed from the cluster at each pass; what this object holds between passes only saves calls.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.api import names
from tidegate.api.conditions import ConditionType, Outcome
from tidegate.api.errors import ClusterError, Denied, InvalidSpec, Rejected, TemplateRefused
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import LLMServiceStatus
from tidegate.cluster import gather, locks
from tidegate.cluster.drain_times import TROUBLED_SECONDS, DrainTimesKeeper
from tidegate.cluster.execute import Executor, Told
from tidegate.cluster.keys import DrainKeys
from tidegate.cluster.port import ENDPOINT_SLICES, LLM_SERVICES, NAMESPACES, Cluster, Object
from tidegate.cluster.store import Store
from tidegate.core.drain_time.drain_times import DrainTimes
from tidegate.core.drain_time.histogram import Sample
from tidegate.core.planner import samples
from tidegate.core.planner.actions import Action, DrainOrder
from tidegate.core.planner.plan import Plan, plan
from tidegate.core.render import objects
from tidegate.core.report import invalid
from tidegate.core.report.status import status
from tidegate.core.state import snapshot
from tidegate.core.state.snapshot import Snapshot
from tidegate.drain.sessions import Sessions
from tidegate.metrics.instruments import Metrics

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 5.0
"""Numbers that only move are written at most so often; transitions are written at once."""
ETA_SECONDS: Final = 30.0
"""How often a status is written in which nothing but the times to go have changed."""
FEW: Final = 3
LONGEST_REPEAT: Final = 60.0
REFUSED_SECONDS: Final = 300.0
"""How long a refused template rests before its next dry run."""
UNCOUNTED_SECONDS: Final = 30.0
"""How long a rollout waits for the API server to take a drain time."""


@dataclass(slots=True)
class _Memory:
    """Of one service, for this process: none of it matters after a restart."""

    uid: str = ""
    raw_spec: Any = None
    spec: LLMServiceSpec | None = None
    refused_generation: int = -1
    refused: tuple[tuple[str, str], ...] = ()
    refused_at: float = 0.0
    written_at: float = 0.0
    refusal: str = ""
    done: tuple[Action, ...] = ()
    repeated: int = 0
    again_at: float = 0.0
    written: dict[str, Any] = field(default_factory=dict)
    uncounted_since: float | None = None
    teardowns: dict[str, Sample] = field(default_factory=dict)
    """By pod, what was watched; kept with the next drain that is counted."""

    def parsed(self, raw: dict[str, Any]) -> LLMServiceSpec:
        """The spec as a model, made anew only when it was edited. Raises `InvalidSpec`."""
        if self.spec is None or raw != self.raw_spec:
            self.spec, self.raw_spec = LLMServiceSpec.parse(raw), raw
        return self.spec

    def rests(self, actions: tuple[Action, ...], now: float) -> bool:
        """Whether to leave these actions for now: the same ones, time and again, have had no effect."""
        if actions != self.done:
            self.done, self.repeated, self.again_at = actions, 0, now
        elif now < self.again_at:
            return True
        else:
            self.repeated += 1
            if self.repeated >= FEW:
                self.again_at = now + min(0.1 * 2**self.repeated, LONGEST_REPEAT)
        return False


class Reconciler:
    """Reconciles keys `namespace/name`."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        keys: DrainKeys,
        sessions: Sessions,
        tell: Told,
        metrics: Metrics,
        now: Callable[[], float],
        gateway_image: str,
    ) -> None:
        self._cluster, self._store, self._keys, self._sessions = cluster, store, keys, sessions
        self._tell, self._metrics, self._now = tell, metrics, now
        self._executor = Executor(cluster, store, keys, tell)
        self._times = DrainTimesKeeper(cluster)
        self._memory: dict[str, _Memory] = {}
        self._gateway_image = gateway_image
        self.locks_missing: tuple[str, ...] = ()

    async def check_locks(self) -> None:
        """Read again which policies are in force. Raises `ClusterError`."""
        self.locks_missing = await locks.missing(self._cluster)

    async def reconcile(self, key: str) -> float | None:
        """One pass; returns in how many seconds to look again at the latest. Raises `ClusterError`."""
        namespace, name = key.split("/", 1)
        service = self._store.get(LLM_SERVICES, namespace, name)
        if service is None or service["metadata"].get("deletionTimestamp") or self._namespace_goes(namespace):
            self._drop(key)
            return None
        memory = self._remember(key, service)
        try:
            spec = memory.parsed(service.get("spec") or {})
        except InvalidSpec as error:
            # Conversations that run go on: what they wait for does not depend on the new spec.
            held, generation = LLMServiceStatus.read(service.get("status")), service["metadata"].get("generation", 1)
            refused = invalid.status(held, generation, str(error), self._now())
            self._metrics.refused(key, refused)
            await self._write(service, memory, refused.document())
            self._metrics.achieved(key)
            return None
        decided = plan(await self._snapshot(key, service, spec, memory))
        s = decided.view.snapshot
        self._sessions.forget(key, {p.uid for p in s.pods if p.alive})
        self._sessions.want(key, decided.orders, decided.questions)
        wanted = status(decided)
        self._metrics.saw(key, decided, wanted)
        if decided.learnt is not None and await self._keep(memory, s, decided.learnt):
            return 0.0
        wait = await self._report(service, memory, decided, wanted.document())
        if decided.actions and not memory.rests(decided.actions, s.now):
            await self._act(memory, decided)
            self._metrics.achieved(key)
            return 0.0
        if not decided.actions:
            self._metrics.achieved(key)
            if memory.refusal:
                # What was refused is not wanted any more.
                memory.refusal = ""
                return 0.0
        rest = memory.again_at - s.now if decided.actions else None
        look = TROUBLED_SECONDS if s.drain_times_trouble else None
        return min((w for w in (wait, rest, look, decided.requeue_after) if w is not None), default=None)

    async def _keep(self, memory: _Memory, s: Snapshot, learnt: DrainTimes) -> bool:
        """Count drains, before their pods can be gone; whether that was done.

        What cannot be counted for `UNCOUNTED_SECONDS`, or at all, does not hold up the rollout: its samples are lost.
        """
        owner = objects.Owner(s.namespace, s.name, s.uid)
        try:
            await self._times.write(owner, learnt, s.now)
        except (Denied, Rejected) as error:
            log.warning("drain times of %s/%s are not kept: %s", s.namespace, s.name, error)
            return False
        except ClusterError as error:
            memory.uncounted_since = s.now if memory.uncounted_since is None else memory.uncounted_since
            if s.now - memory.uncounted_since < UNCOUNTED_SECONDS:
                raise
            log.warning("drain times of %s/%s are not kept, going on: %s", s.namespace, s.name, error)
            return False
        memory.uncounted_since = None
        memory.teardowns = {pod: told for pod, told in memory.teardowns.items() if pod not in learnt.torn}
        return True

    async def _act(self, memory: _Memory, decided: Plan) -> None:
        s = decided.view.snapshot
        try:
            await self._executor.execute(s, decided.actions)
        except TemplateRefused as refused:
            memory.refused_generation, memory.refused, memory.refused_at = s.generation, refused.causes, s.now
        except (Denied, Rejected) as error:
            memory.refusal = str(error)
            raise
        else:
            memory.refusal = ""

    def _namespace_goes(self, namespace: str) -> bool:
        """A terminating namespace takes everything in its own order; whatever we would create is refused there."""
        raw = self._store.get(NAMESPACES, "", namespace)
        return raw is not None and bool(raw["metadata"].get("deletionTimestamp"))

    def _drop(self, key: str) -> None:
        self._sessions.want(key, (), ())
        self._sessions.forget(key, set())
        self._keys.forget(key)
        self._metrics.forget(key)
        self._times.forget(key)
        self._memory.pop(key, None)

    def _remember(self, key: str, service: Object) -> _Memory:
        uid = service["metadata"]["uid"]
        memory = self._memory.get(key)
        if memory is None or memory.uid != uid:
            self._keys.forget(key)
            self._metrics.forget(key)
            self._times.forget(key)
            memory = self._memory[key] = _Memory(uid)
        return memory

    async def _snapshot(self, key: str, service: Object, spec: LLMServiceSpec, memory: _Memory) -> Snapshot:
        now = self._now()
        meta = service["metadata"]
        stands = memory.refused_generation == meta.get("generation", 1) and now - memory.refused_at < REFUSED_SECONDS
        owner = objects.Owner(meta["namespace"], meta["name"], meta["uid"])
        secret, trouble, denied = await self._secret(key, owner)
        kept = await self._times.read(owner, now)
        known = gather.Known(
            now=now,
            readings=self._sessions.readings_of(key),
            troubles=self._sessions.troubles_of(key),
            conflicts=(trouble,) if trouble is not None else (),
            locks_missing=self.locks_missing,
            gateway_image=self._gateway_image,
            has_secret=secret,
            refused=denied or memory.refusal,
            rejected=memory.refused if stands else (),
            drain_times=kept.times,
            drain_times_trouble=kept.trouble,
        )
        s = gather.snapshot(self._store, service, spec, known)
        for pod in s.pods:
            told = samples.teardown(pod)
            if told is not None and pod.name not in kept.times.torn:
                memory.teardowns[pod.name] = told
        return replace(s, teardowns=dict(memory.teardowns))

    async def _secret(self, key: str, owner: objects.Owner) -> tuple[bool, snapshot.Conflict | None, str]:
        """Whether the drain key is there, what stands in its way, and why it may not be read."""
        now = self._now()
        if self._keys.known(key, now):
            return True, None, ""
        try:
            return *await self._keys.refresh(owner, now), ""
        except Denied as error:
            return False, None, str(error)

    async def _report(self, service: Object, memory: _Memory, decided: Plan, document: dict[str, Any]) -> float | None:
        """Write the status if it says something new; returns when the rest of the news may be written."""
        held = service.get("status") or {}
        if document in (held, memory.written):
            return None
        if _steady(document) == _steady(held):
            # A promise that only comes nearer is no news.
            often = ETA_SECONDS if _without_etas(document) == _without_etas(held) else REFRESH_SECONDS
            rest = memory.written_at + often - self._now()
            if rest > 0:
                return rest
        await self._write(service, memory, document)
        await self._announce(decided.view.snapshot, held, document)
        return None

    async def _write(self, service: Object, memory: _Memory, document: dict[str, Any]) -> None:
        meta = service["metadata"]
        # An older CRD prunes what it does not know: what was written is compared too, not only what is there.
        if document in (service.get("status") or {}, memory.written):
            return
        change = _change(meta["uid"], service.get("status") or {}, document)
        try:
            answer = await self._cluster.patch_status(LLM_SERVICES, meta["namespace"], meta["name"], change)
        except (Denied, Rejected) as error:
            # A CRD older than this operator, or a role that lacks a verb: the rollout must not stop for its report.
            log.warning("status of %s/%s refused, is the CRD up to date? %s", meta["namespace"], meta["name"], error)
            return
        memory.written_at, memory.written = self._now(), document
        self._store.put(LLM_SERVICES, answer)

    async def _announce(self, s: Snapshot, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Events for what changed between two statuses."""
        held = {c["type"]: c for c in before.get("conditions") or []}
        for condition in after["conditions"]:
            kind, true = condition["type"], condition["status"] == "True"
            old = held.get(kind, {})
            changed = (old.get("status"), old.get("reason")) != (condition["status"], condition["reason"])
            if true and changed and kind not in (ConditionType.READY, ConditionType.RECONCILING):
                await self._tell(s, condition["reason"], condition["message"], warning=True)
        listed = {row["pod"] for row in before.get("outcomes") or []}
        for row in after["outcomes"]:
            if row["pod"] not in listed and row["outcome"] in (Outcome.VANISHED, Outcome.RELEASED):
                given = next((p.release for p in s.pods if p.name == row["pod"] and p.release), "")
                why = f" by {names.RELEASE}: {given}" if given else " in its drain"
                text = f"Pod {row['pod']}: {row['outcome']}{why}; nobody could count what was cut"
                await self._tell(s, row["outcome"], text, warning=True)
        drained = {row["name"] for row in before.get("pods") or []}
        for row in after.get("pods") or []:
            if row["state"] == names.SERVING and row["name"] not in drained:
                await self._tell(s, "DrainedByOthers", f"Pod {row['name']}: {row['trouble']}", warning=True)
        rollout, past = after.get("rollout") or {}, before.get("rollout") or {}
        if rollout.get("finishedAt") and not past.get("finishedAt"):
            text = f"{after['targetRevision']} serves with {after['serving']} pods"
            if rollout.get("drained"):
                text += f"; {rollout['drained']} pods drained, {rollout['cut']} requests cut, {rollout['seconds']} s"
            await self._tell(s, "RolloutComplete", text)

    async def absent(self, key: str, order: DrainOrder) -> bool:
        """Whether a withdrawn pod is in no slice of a Service that selects the state, read from the API server now.

        NotReady endpoints are listed too, and proxies fall back to them, so they count.
        """
        namespace, name = key.split("/", 1)
        try:
            for service in gather.withdrawing_services(self._store, namespace, name):
                slices, _ = await self._cluster.list(
                    ENDPOINT_SLICES, namespace, labels=f"kubernetes.io/service-name={service}"
                )
                for item in slices:
                    for endpoint in item.get("endpoints") or []:
                        if (endpoint.get("targetRef") or {}).get("uid") == order.uid:
                            return False
        except ClusterError as error:
            log.warning("endpoint slices of %s cannot be read: %s", key, error)
            return False
        return True

    async def drain_keys(self, key: str, fresh: bool) -> tuple[str, ...]:
        """Keys for a call to a pod; none when they cannot be read, which the caller reports."""
        try:
            return await self._keys.keys(key, fresh)
        except ClusterError as error:
            log.warning("drain key of %s cannot be read: %s", key, error)
            return ()


def _change(uid: str, held: dict[str, Any], wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON patch from one status to another, for the service of this uid alone: not for the next of its name."""
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    if not held:
        return [*patch, {"op": "add", "path": "/status", "value": wanted}]
    patch += [{"op": "remove", "path": f"/status/{key}"} for key in held if key not in wanted]
    changed = {key: value for key, value in wanted.items() if value != held.get(key)}
    return patch + [{"op": "add", "path": f"/status/{key}", "value": value} for key, value in changed.items()]


def _without_etas(document: dict[str, Any]) -> dict[str, Any]:
    etas = ("etaSeconds", "etaUpperSeconds")
    rows = [{k: v for k, v in row.items() if k not in etas} for row in document.get("pods") or []]
    rollout = {k: v for k, v in (document.get("rollout") or {}).items() if k not in etas}
    return document | {"pods": rows, "rollout": rollout}


def _steady(document: dict[str, Any]) -> dict[str, Any]:
    """The status without what merely moves with time: a change of the rest is a transition."""
    kept = {k: v for k, v in document.items() if k not in ("message", "pods", "conditions", "rollout")}
    kept["pods"] = [(row.get("name"), row.get("state"), row.get("deadline")) for row in document.get("pods") or []]
    kept["conditions"] = [{k: v for k, v in c.items() if k != "message"} for c in document.get("conditions") or []]
    rollout = document.get("rollout") or {}
    kept["rollout"] = {k: rollout.get(k) for k in ("startedAt", "finishedAt", "drained", "cut")}
    return kept
