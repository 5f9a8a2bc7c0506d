"""When the status of an LLMService is written, and its Events with it."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegate.api.errors import Denied, Rejected
from tidegate.api.status import LLMServiceStatus, PodStatus, RolloutStatus
from tidegate.cluster.execute import Announces
from tidegate.cluster.port import LLM_SERVICES, Cluster, Object
from tidegate.cluster.store import Store
from tidegate.core.planner.ends import End
from tidegate.core.report import events
from tidegate.core.state.snapshot import Snapshot

from .timing import Clock, Pace

log = logging.getLogger(__name__)

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Written:
    at: float = 0.0
    document: Document = field(default_factory=dict)


class StatusWriter:
    """Writes transitions at once, and what merely moves with time now and then."""

    def __init__(self, cluster: Cluster, store: Store, announce: Announces, clock: Clock, pace: Pace) -> None:
        self._cluster, self._store, self._announce, self._now, self._pace = cluster, store, announce, clock.now, pace
        self._written: dict[str, _Written] = {}

    def forget(self, key: str) -> None:
        """Service `key` is gone, or is another one of the same name."""
        self._written.pop(key, None)

    async def report(
        self, service: Object, snapshot: Snapshot, status: LLMServiceStatus, ends: Iterable[End] = ()
    ) -> float | None:
        """Write the status if it says something new, with its Events; raises `ClusterError`.

        `ends` are those of pods that others took away, which `status` lists for the first time. Returns in how many
        seconds the rest of the news may be written, None when there is none.
        """
        document, held, last = status.document(), snapshot.status, self._last(service)
        if document in (service.get("status") or {}, last.document):
            return None
        if _steady(status) == _steady(held):
            # A promise that only comes nearer is no news.
            nearer = _without_etas(status) == _without_etas(held)
            often = self._pace.eta_seconds if nearer else self._pace.refresh_seconds
            rest = last.at + often - self._now()
            if rest > 0:
                return rest
        await self._write(service, document)
        for event in (*map(events.ended, ends), *events.news(snapshot, status)):
            await self._announce(snapshot, event.reason, event.message, warning=event.warning)
        return None

    async def write(self, service: Object, status: LLMServiceStatus) -> None:
        """Write the status unless it stands there. Raises `ClusterError`, but not for a refusal, which is logged."""
        await self._write(service, status.document())

    async def _write(self, service: Object, document: Document) -> None:
        meta, held = service["metadata"], service.get("status") or {}
        # An older CRD prunes what it does not know: what was written is compared too, not only what is there.
        if document in (held, self._last(service).document):
            return
        change = status_patch(meta["uid"], held, document)
        try:
            answer = await self._cluster.patch_status(LLM_SERVICES, meta["namespace"], meta["name"], change)
        except (Denied, Rejected) as error:
            # A CRD older than this operator, or a role that lacks a verb: the rollout must not stop for its report.
            log.warning("status of %s/%s refused, is the CRD up to date? %s", meta["namespace"], meta["name"], error)
            return
        self._written[_key(service)] = _Written(self._now(), document)
        self._store.put(LLM_SERVICES, answer)

    def _last(self, service: Object) -> _Written:
        return self._written.get(_key(service), _Written())


def status_patch(uid: str, held: Document, wanted: Document) -> list[dict[str, Any]]:
    """The JSON patch from one status to another, for the service of this uid alone: not for the next of its name."""
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    if not held:
        return [*patch, {"op": "add", "path": "/status", "value": wanted}]
    patch += [{"op": "remove", "path": f"/status/{key}"} for key in held if key not in wanted]
    changed = {key: value for key, value in wanted.items() if value != held.get(key)}
    return patch + [{"op": "add", "path": f"/status/{key}", "value": value} for key, value in changed.items()]


_NO_ETA = {"eta_seconds": None, "eta_upper_seconds": None}


def _without_etas(status: LLMServiceStatus) -> LLMServiceStatus:
    rollout = None if status.rollout is None else status.rollout.model_copy(update=_NO_ETA)
    pods = tuple(pod.model_copy(update=_NO_ETA) for pod in status.pods)
    return status.model_copy(update={"rollout": rollout, "pods": pods})


def _steady(status: LLMServiceStatus) -> LLMServiceStatus:
    """The status without what merely moves with time: a change of the rest is a transition."""
    rollout = status.rollout
    return status.model_copy(
        update={
            "message": "",
            "pods": tuple(PodStatus(name=pod.name, state=pod.state, deadline=pod.deadline) for pod in status.pods),
            "conditions": tuple(c.model_copy(update={"message": ""}) for c in status.conditions),
            "rollout": rollout
            and RolloutStatus(
                started_at=rollout.started_at,
                finished_at=rollout.finished_at,
                drained=rollout.drained,
                cut=rollout.cut,
                cut_at_least=rollout.cut_at_least,
                uncounted=rollout.uncounted,
            ),
        }
    )


def _key(service: Object) -> str:
    meta = service["metadata"]
    return f"{meta['namespace']}/{meta['name']}"
