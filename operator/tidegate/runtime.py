"""The process: kopf as event source and shell, our store, queue and workers around it.

kopf writes nothing: only `on.event`, `on.login`, `on.startup`, `on.cleanup` and `on.probe` are used, so no finalizer,
no annotation and no status key of kopf's ever appears on an object.
"""

import asyncio
import itertools
import logging
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import kopf

from tidegate import __version__
from tidegate.api import names
from tidegate.api.errors import ClusterError, Unavailable
from tidegate.cluster import gather
from tidegate.cluster.client import ApiCluster, connect
from tidegate.cluster.events import EventRecorder
from tidegate.cluster.keys import DrainKeys
from tidegate.cluster.lookups import Lookups
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, NAMESPACES, PDBS, PODS, REPLICASETS, SERVICES, Kind, Object
from tidegate.cluster.store import Store
from tidegate.drain.contract import Contract, http_client
from tidegate.drain.dialects import Dialects
from tidegate.drain.foreign import ForeignEndpoints
from tidegate.drain.sessions import Sessions
from tidegate.metrics import endpoint
from tidegate.metrics.instruments import Metrics
from tidegate.queue import KeyedQueue
from tidegate.reconcile import Reconciler

log = logging.getLogger(__name__)

WORKERS: Final = 16
SWEEP_SECONDS: Final = 120.0
PROBE_SECONDS: Final = 1.0
# By the label that the policies protect, not by managed-by, which anybody may change.
OURS: Final = names.SERVICE
WATCHED: Final[tuple[tuple[Kind, str], ...]] = (
    (LLM_SERVICES, ""),
    (DEPLOYMENTS, OURS),
    (REPLICASETS, OURS),
    (PODS, OURS),
    (PDBS, ""),
    (NAMESPACES, ""),
    # Users' own count too: a withdrawn pod has to leave every Service, and a name may be taken.
    (SERVICES, ""),
)


class Operator:
    """Everything of one operator process; `run` ends with the process."""

    def __init__(
        self,
        cluster: ApiCluster,
        queue: KeyedQueue,
        metrics: Metrics,
        instance: str,
        liveness: str | None,
        gateway_image: str,
    ) -> None:
        self._cluster, self._queue, self._metrics = cluster, queue, metrics
        self._liveness = liveness
        self._store = Store(self._changed)
        self._client = http_client()
        keys, lookups = DrainKeys(cluster), Lookups(cluster)
        self._foreign = ForeignEndpoints(self._client, lookups.secret_value, lookups.container_run)
        self._sessions = Sessions(
            Dialects(Contract(self._client), self._foreign),
            lambda key, fresh: self._reconciler.drain_keys(key, fresh),
            lambda key, order: self._reconciler.absent(key, order),
            self._queue.add,
            time.time,
        )
        tell = EventRecorder(cluster, "tidegate", instance, time.time)
        self._reconciler = Reconciler(
            cluster, self._store, keys, self._sessions, tell, metrics, time.time, gateway_image
        )
        self._swept = asyncio.Event()
        self._last_sweep = time.monotonic()

    async def run(self) -> None:
        """Until kopf gets SIGTERM or SIGINT, or a part of it fails for good, which raises."""
        # Made before kopf starts, since it cancels whatever was made after it when it ends.
        tasks = [asyncio.create_task(self._sweep_forever(), name="sweep")]
        tasks += [asyncio.create_task(self._work(), name=f"worker {n}") for n in range(WORKERS)]
        shell = asyncio.create_task(
            kopf.operator(
                registry=self._registry(),
                settings=_settings(),
                clusterwide=True,
                standalone=True,
                liveness_endpoint=self._liveness,
            ),
            name="kopf",
        )
        try:
            done, _ = await asyncio.wait([shell, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in [shell, *tasks]:
                task.cancel()
            await asyncio.gather(shell, *tasks, return_exceptions=True)
            await self._sessions.close()
            await self._foreign.close()
            await self._client.aclose()

    def _changed(self, kind: Kind, raw: Object) -> None:
        if kind is SERVICES and names.SERVICE not in (raw["metadata"].get("labels") or {}):
            for service in self._store.select(LLM_SERVICES, raw["metadata"]["namespace"]):
                self._queue.add(f"{service['metadata']['namespace']}/{service['metadata']['name']}")
            return
        key = gather.service_key(kind, raw)
        if key is not None:
            self._queue.add(key)

    async def _work(self) -> None:
        await self._swept.wait()
        while True:
            key = await self._queue.take()
            result, began = "fault", time.monotonic()
            try:
                wait = await self._reconciler.reconcile(key)
            except ClusterError as error:
                result = "error"
                after = error.retry_after if isinstance(error, Unavailable) else None
                seconds = self._queue.failed(key, after)
                log.warning("service=%s will be tried again in %.2f s: %s", key, seconds, error)
            except Exception:
                # A fault of ours in one service must not stop the others.
                seconds = self._queue.failed(key)
                log.exception("service=%s failed by a fault, tried again in %.1f s", key, seconds)
            else:
                result = "ok"
                self._queue.done(key)
                if wait is not None:
                    self._queue.add_after(key, wait)
            self._metrics.passed(key, result, time.monotonic() - began)

    async def _sweep_forever(self) -> None:
        """LIST each kind: before anything is decided, and now and then after, since a watch can lose a deletion."""
        backoff = 0.5
        for count in itertools.count():
            try:
                for kind, labels in WATCHED:
                    listed, version = await self._cluster.list(kind, labels=labels)
                    ghosts = self._store.replace(kind, listed, version)
                    if ghosts and count:
                        log.warning("kind=%s ghosts=%d dropped: their deletion was never seen", kind.plural, ghosts)
                await self._reconciler.check_locks()
            except ClusterError as error:
                self._metrics.list_failed()
                log.warning("cannot read the cluster, tried again in %.1f s: %s", backoff, error)
                await asyncio.sleep(backoff)
                backoff = min(backoff * 2, 30.0)
                continue
            backoff = 0.5
            self._last_sweep = time.monotonic()
            self._metrics.listed()
            if not self._swept.is_set():
                log.info("first list is in: services=%d", len(list(self._store.all(LLM_SERVICES))))
                for name in self._reconciler.locks_missing:
                    log.warning("policy %s is not in force; apply manifests/cluster", name)
                self._swept.set()
            for service in self._store.all(LLM_SERVICES):
                meta = service["metadata"]
                spread = random.uniform(0, SWEEP_SECONDS if count else 0.0)
                self._queue.add_after(f"{meta['namespace']}/{meta['name']}", spread)
            await asyncio.sleep(SWEEP_SECONDS)

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        for kind, _ in WATCHED:
            kopf.on.event(*_where(kind), id=f"watch-{kind.plural}", registry=registry)(self._handler(kind))
        kopf.on.login(id="login", registry=registry)(_login)
        kopf.on.probe(id="sweep-age", registry=registry)(self._probe)
        return registry

    def _handler(self, kind: Kind) -> Callable[..., Awaitable[None]]:
        async def event(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002  kopf's name
            raw = _plain(body)
            if type == "DELETED":
                self._store.remove(kind, raw)
            else:
                self._store.put(kind, raw)

        return event

    def _probe(self, **_: Any) -> float:
        """Age of the last sweep in seconds; an operator that cannot read the cluster for long has to be restarted."""
        if not self._swept.is_set():
            # Asked again soon: kopf's own pause is a minute, for which the pod would stay NotReady.
            raise kopf.TemporaryError("the cluster has not been listed yet", delay=PROBE_SECONDS)
        age = time.monotonic() - self._last_sweep
        if age > 10 * SWEEP_SECONDS:
            raise kopf.TemporaryError(f"the last list of the cluster is {age:.0f} s old", delay=PROBE_SECONDS)
        return age


def _where(kind: Kind) -> tuple[str, str] | tuple[str, str, str]:
    return (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)


def _plain(body: Any) -> Object:
    """A mutable copy of a kopf body: its views are read-only and shared."""
    if hasattr(body, "items"):
        return {key: _plain(value) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [_plain(value) for value in body]  # type: ignore[return-value]
    return body  # type: ignore[no-any-return]


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = _Endless()
    settings.watching.chunk_size = 500
    # Tuples: the string form matches nothing.
    for kind, labels in WATCHED:
        if labels:
            settings.watching.label_selectors[_where(kind)] = labels
    settings.process.ultimate_exiting_timeout = 20
    # Unused in this mode; set so that a slip would carry our name.
    settings.persistence.finalizer = f"{names.GROUP}/never"
    return settings


class _Endless:
    """Backoffs without end: kopf's own list ends after 54 s and the operator with it."""

    def __iter__(self) -> Any:
        for count in itertools.count():
            yield min(0.5 * 2 ** min(count, 6), 30.0) * random.uniform(0.75, 1.25)


async def _login(settings: kopf.OperatorSettings, **_: Any) -> kopf.ConnectionInfo | None:
    """The ServiceAccount by the environment's address, since the cluster may have no DNS; else the kubeconfig."""
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if not host or "KUBECONFIG" in os.environ:
        return kopf.login_with_kubeconfig(settings=settings)
    port = os.environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    info = kopf.login_with_service_account(settings=settings)
    if info is None:
        return None
    name = f"[{host}]" if ":" in host else host
    return kopf.ConnectionInfo(
        server=f"https://{name}:{port}", ca_path=info.ca_path, token=info.token, scheme=info.scheme
    )


async def run(liveness: str | None, metrics_at: tuple[str, int] | None, gateway_image: str) -> None:
    """Connect and run one operator; raises `ClusterError` when there is no cluster, `CannotListen` for an address."""
    instance = os.environ.get("POD_NAME") or socket.gethostname()
    queue = KeyedQueue()
    metrics = Metrics(queue)
    cluster = await connect(f"tidegate/{__version__}", metrics.called)
    try:
        with endpoint.serving(metrics, metrics_at):
            metrics.leads(True)
            await Operator(cluster, queue, metrics, instance, liveness, gateway_image).run()
    finally:
        await cluster.close()
