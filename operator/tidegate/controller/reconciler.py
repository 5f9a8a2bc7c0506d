"""One pass over one service: gather > plan > act > report, and when to look again.

The report comes before the acts: it says what is known and what comes next, and an outcome is in it before the drained
pod can be gone. Everything is computed anew from the cluster at each pass.
"""

from dataclasses import replace

from tidegate.api.errors import Denied, InvalidSpec, Rejected, TemplateRefused
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import LLMServiceStatus
from tidegate.cluster import gather
from tidegate.cluster.drain_times import TROUBLED_SECONDS
from tidegate.cluster.port import LLM_SERVICES, NAMESPACES, Object
from tidegate.core.planner.plan import Plan, plan
from tidegate.core.render.objects import Owner
from tidegate.core.report import invalid
from tidegate.core.report.status import status
from tidegate.core.state.snapshot import Snapshot
from tidegate.drain.sessions import Sessions

from .drain_samples import DrainSamples
from .memory import Memory
from .parts import Parts


class Reconciler:
    """Reconciles keys `namespace/name`."""

    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        self._parts, self._sessions = parts, sessions
        self._store, self._metrics, self._now = parts.store, parts.metrics, parts.clock.now
        self._samples, self._status = DrainSamples(parts.drain_times), parts.status
        self._memory: dict[str, Memory] = {}
        self.locks_missing: tuple[str, ...] = ()
        """Admission policies that are not in force, as `cluster.locks` found when it was last read."""

    async def reconcile(self, key: str) -> float | None:
        """One pass; returns in how many seconds to look again at the latest. Raises `ClusterError`."""
        service = self._present(key)
        if service is None:
            self._drop(key)
            return None
        memory = self._remember(key, service["metadata"]["uid"])
        try:
            spec = memory.parsed(service.get("spec") or {})
        except InvalidSpec as error:
            await self._refuse(key, service, error)
            return None
        snapshot = await self._gather(key, service, spec, memory)
        decided = plan(snapshot)
        # What a pod said that others have taken away is wanted until its end is told.
        self._sessions.forget(key, {p.uid for p in snapshot.pods if p.alive} | {*memory.last_seen, *decided.remembered})
        self._sessions.want(key, decided.orders, decided.questions)
        wanted = status(decided)
        self._metrics.saw(key, decided, wanted)
        if decided.learnt is not None and await self._samples.keep(key, snapshot, decided.learnt):
            return 0.0
        wait = await self._status.report(service, snapshot, wanted, decided.ends)
        memory.last_seen = decided.remembered
        if decided.actions and not memory.rests(decided.actions, snapshot.now):
            await self._act(memory, snapshot, decided)
            self._metrics.achieved(key)
            return 0.0
        if not decided.actions:
            self._metrics.achieved(key)
            if memory.refusal:
                # What was refused is not wanted any more.
                memory.refusal = ""
                return 0.0
        rest = memory.again_at - snapshot.now if decided.actions else None
        look = TROUBLED_SECONDS if snapshot.drain_times_trouble else None
        return min((w for w in (wait, rest, look, decided.requeue_after) if w is not None), default=None)

    # -- gather

    def _present(self, key: str) -> Object | None:
        """The service, unless it goes. A terminating namespace refuses all that we would create, so it goes too."""
        namespace, name = key.split("/", 1)
        service, space = self._store.get(LLM_SERVICES, namespace, name), self._store.get(NAMESPACES, "", namespace)
        going = any(raw is not None and raw["metadata"].get("deletionTimestamp") for raw in (service, space))
        return None if going else service

    async def _gather(self, key: str, service: Object, spec: LLMServiceSpec, memory: Memory) -> Snapshot:
        now, meta = self._now(), service["metadata"]
        owner = Owner(meta["namespace"], meta["name"], meta["uid"])
        secret = await self._parts.keys.check(owner, now)
        kept = await self._parts.drain_times.read(owner, now)
        known = gather.Known(
            now=now,
            readings=self._sessions.readings_of(key),
            troubles=self._sessions.troubles_of(key),
            conflicts=(secret.conflict,) if secret.conflict is not None else (),
            locks_missing=self.locks_missing,
            gateway_image=self._parts.gateway_image,
            poll_seconds=self._parts.pace.poll_seconds,
            has_secret=secret.present,
            refused=secret.denied or memory.refusal,
            rejected=memory.rejected(meta.get("generation", 1), now),
            drain_times=kept.times,
            drain_times_trouble=kept.trouble,
            last_seen=memory.last_seen,
        )
        snapshot = gather.snapshot(self._store, service, spec, known)
        return replace(snapshot, teardowns=self._samples.teardowns(key, snapshot))

    # -- act

    async def _act(self, memory: Memory, snapshot: Snapshot, decided: Plan) -> None:
        try:
            await self._parts.executor.execute(snapshot, decided.actions)
        except TemplateRefused as refused:
            memory.reject(refused.causes, snapshot.generation, snapshot.now)
        except (Denied, Rejected) as error:
            memory.refusal = str(error)
            raise
        else:
            memory.refusal = ""

    # -- report

    async def _refuse(self, key: str, service: Object, error: InvalidSpec) -> None:
        """Conversations that run go on: what they wait for does not depend on the new spec."""
        held, generation = LLMServiceStatus.read(service.get("status")), service["metadata"].get("generation", 1)
        refused = invalid.status(held, generation, str(error), self._now())
        self._metrics.refused(key, refused)
        await self._status.write(service, refused)
        self._metrics.achieved(key)

    # -- memory

    def _remember(self, key: str, uid: str) -> Memory:
        memory = self._memory.get(key)
        if memory is None or memory.uid != uid:
            self._forget(key)
            memory = self._memory[key] = Memory(uid)
        return memory

    def _drop(self, key: str) -> None:
        self._sessions.want(key, (), ())
        self._sessions.forget(key, set())
        self._forget(key)

    def _forget(self, key: str) -> None:
        self._parts.keys.forget(key)
        self._metrics.forget(key)
        self._samples.forget(key)
        self._status.forget(key)
        self._memory.pop(key, None)
