"""The adapter of the conformance rows: one API server with its controllers, in memory or real.

A row calls the operator's own port wherever the operator does, so that the reading of errors is tried as well. What
people, schedulers and tests do beside it goes through the rest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from tidegate.api.errors import ClusterError
from tidegate.cluster.port import Cluster, Kind, Object

T = TypeVar("T")
Conduct = Literal["still", "prompt", "never-ready", "unstarted", "crashing", "no-image", "homeless", "alone"]
"""What becomes of a pod. still: no scheduler takes it, so its status is what the row writes; prompt: Ready soon;
never-ready: started, never Ready; unstarted: runs, its startup probe never passes; crashing: exits with code 1 at once;
no-image: its image is not to be had; homeless: no node fits; alone: as prompt, and only one of the row fits."""
PATIENCE_SECONDS = 300.0
"""Until something must have happened: a bound for a hung cluster, no claim about speed."""


@dataclass(slots=True)
class Heard:
    """What a watch has told so far: DELETED, or SEEN for everything else."""

    events: list[tuple[str, Object]] = field(default_factory=list)

    def of(self, name: str) -> list[tuple[str, Object]]:
        return [(event, raw) for event, raw in self.events if raw["metadata"]["name"] == name]


class Kubernetes(Protocol):
    """What a row may do. Everything raises `ClusterError` as the port does."""

    cluster: Cluster
    namespace: str
    name: str
    """The row's own: names and labels of what it makes begin with it, since other rows run in the same namespace."""

    async def create(self, kind: Kind, body: Mapping[str, Any]) -> Object: ...

    async def merge(self, kind: Kind, name: str, change: Mapping[str, Any], subresource: str = "") -> Object:
        """JSON merge patch, as kubectl sends it."""

    async def delete(self, kind: Kind, name: str, **options: Any) -> None: ...

    async def evict(self, pod: str) -> None:
        """The eviction subresource, as `kubectl drain` uses it."""

    async def read(self, kind: Kind, name: str) -> Object: ...

    async def find(self, kind: Kind, labels: str = "") -> list[Object]: ...

    async def watch(self, kind: Kind) -> Heard:
        """Hear what the operator's watch of this kind hears, with its selector of labels."""

    def template(self, conduct: Conduct) -> Object:
        """A pod template as a user writes it, whose pods behave so."""

    async def behave(self, pod: str, conduct: Literal["well", "not-ready", "crash"]) -> None:
        """Tell a running pod to be Ready, NotReady, or to exit with code 1."""

    async def forbid_pods(self) -> None:
        """From here on a quota admits no new pod in this namespace."""

    async def elsewhere(self) -> "Kubernetes":
        """The same in a namespace of the row's own."""


async def eventually(what: str, look: Callable[[], Awaitable[T]]) -> T:
    """Look until the answer is true and return it. A look may fail by `AssertionError` or `ClusterError` meanwhile."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + PATIENCE_SECONDS
    while True:
        trouble: Exception | None = None
        try:
            found = await look()
            if found:
                return found
        except (AssertionError, ClusterError) as error:
            trouble = error
        assert loop.time() < give_up, f"waited {PATIENCE_SECONDS:.0f} s in vain: {what} ({trouble})"
        await asyncio.sleep(0.2)


async def for_a_while(what: str, look: Callable[[], Awaitable[object]], seconds: float = 1.5) -> None:
    """What must not happen has this long to happen: controllers that would do it have been seen to act before."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        assert await look(), f"no longer so: {what}"
        await asyncio.sleep(0.2)


async def refused(call: Awaitable[object], kind: type[ClusterError]) -> ClusterError:
    """The error with which a call is refused; any other error, or none, fails the row."""
    try:
        answer = await call
    except ClusterError as error:
        assert type(error) is kind, f"refused as {type(error).__name__} and not as {kind.__name__}: {error}"
        return error
    raise AssertionError(f"accepted instead of refused as {kind.__name__}: {answer}")
