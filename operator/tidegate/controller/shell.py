"""The process around the operator: kopf as its event source and shell.

kopf writes nothing: only `on.event`, `on.login` and `on.probe` are used, so no finalizer, no annotation and no status
key of kopf's ever appears on an object.
"""

import asyncio
import itertools
import os
import random
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import kopf

from tidegate import __version__
from tidegate.api import names
from tidegate.cluster.client import connect
from tidegate.cluster.lookups import Lookups
from tidegate.cluster.port import Kind, Object
from tidegate.cluster.store import Store
from tidegate.drain.contract import Contract, http_client
from tidegate.drain.dialects import Dialects
from tidegate.drain.foreign import ForeignEndpoints
from tidegate.metrics import endpoint
from tidegate.metrics.instruments import Metrics

from .parts import assemble
from .queue import KeyedQueue
from .runtime import WATCHED, Operator
from .timing import SYSTEM_CLOCK

PROBE_SECONDS: Final = 1.0
OVERDUE_SWEEPS: Final = 10.0
"""An operator whose last list is so many sweeps old has to be restarted."""


async def run(liveness: str | None, metrics_at: tuple[str, int] | None, gateway_image: str) -> None:
    """Connect and run one operator; raises `ClusterError` when there is no cluster, `CannotListen` for an address."""
    instance = os.environ.get("POD_NAME") or socket.gethostname()
    queue = KeyedQueue()
    metrics = Metrics(queue)
    cluster = await connect(f"tidegate/{__version__}", metrics.called)
    client, lookups = http_client(), Lookups(cluster)
    foreign = ForeignEndpoints(client, lookups.secret_value, lookups.container_run)
    talk = Dialects(Contract(client), foreign)
    try:
        with endpoint.serving(metrics, metrics_at):
            metrics.leads(True)
            parts = assemble(cluster, talk, SYSTEM_CLOCK, queue, metrics, instance, gateway_image)
            await serve(Operator(parts), liveness)
    finally:
        await foreign.close()
        await client.aclose()
        await cluster.close()


async def serve(operator: Operator, liveness: str | None) -> None:
    """Run it in kopf until kopf gets SIGTERM or SIGINT, or one of the two fails for good, which raises."""
    # The operator comes first, and makes its tasks at once: kopf, when it ends, cancels whatever was made after it.
    working = asyncio.create_task(operator.run(), name="operator")
    shell = asyncio.create_task(
        kopf.operator(
            registry=registry(operator),
            settings=settings(),
            clusterwide=True,
            standalone=True,
            liveness_endpoint=liveness,
        ),
        name="kopf",
    )
    try:
        done, _ = await asyncio.wait([shell, working], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (shell, working):
            task.cancel()
        await asyncio.gather(shell, working, return_exceptions=True)


def registry(operator: Operator) -> kopf.OperatorRegistry:
    """The handlers that feed this operator, and tell kopf how to log in and whether it is well."""
    made = kopf.OperatorRegistry()
    for kind, _ in WATCHED:
        kopf.on.event(*_where(kind), id=f"watch-{kind.plural}", registry=made)(_handler(operator.parts.store, kind))
    kopf.on.login(id="login", registry=made)(_login)
    kopf.on.probe(id="sweep-age", registry=made)(_prober(operator))
    return made


def _handler(store: Store, kind: Kind) -> Callable[..., Awaitable[None]]:
    async def event(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002  kopf's name
        raw = _plain(body)
        if type == "DELETED":
            store.remove(kind, raw)
        else:
            store.put(kind, raw)

    return event


def _prober(operator: Operator) -> Callable[..., float]:
    def probe(**_: Any) -> float:
        """Age of the last sweep in seconds; who cannot read the cluster for long has to be restarted."""
        age = operator.sweep_age
        if age is None:
            # Asked again soon: kopf's own pause is a minute, for which the pod would stay NotReady.
            raise kopf.TemporaryError("the cluster has not been listed yet", delay=PROBE_SECONDS)
        if age > OVERDUE_SWEEPS * operator.parts.pace.sweep_seconds:
            raise kopf.TemporaryError(f"the last list of the cluster is {age:.0f} s old", delay=PROBE_SECONDS)
        return age

    return probe


def _where(kind: Kind) -> tuple[str, str] | tuple[str, str, str]:
    return (kind.group, kind.version, kind.plural) if kind.group else (kind.version, kind.plural)


def _plain(body: Any) -> Object:
    """A mutable copy of a kopf body: its views are read-only and shared."""
    if hasattr(body, "items"):
        return {key: _plain(value) for key, value in body.items()}
    if isinstance(body, list | tuple):
        return [_plain(value) for value in body]  # type: ignore[return-value]
    return body  # type: ignore[no-any-return]


def settings() -> kopf.OperatorSettings:
    """As an event source that writes nothing, posts nothing and never gives up."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.peering.standalone = True
    made.networking.request_timeout = 30
    made.networking.connect_timeout = 10
    made.networking.error_backoffs = _Endless()
    made.watching.chunk_size = 500
    # Tuples: the string form matches nothing.
    for kind, labels in WATCHED:
        if labels:
            made.watching.label_selectors[_where(kind)] = labels
    made.process.ultimate_exiting_timeout = 20
    # Unused in this mode; set so that a slip would carry our name.
    made.persistence.finalizer = f"{names.GROUP}/never"
    return made


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
