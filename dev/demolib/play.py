"""One act: a service under load gets a new image; with Tidegate, or as a plain Deployment."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass

import httpx

from . import manifests
from .api import Api, Object
from .errors import DemoError
from .tally import Tally
from .view import Clock, Screen

OLD, NEW = "v1", "v2"
START_SECONDS = 120.0
LOAD_SECONDS = 60.0
AFTERGLOW_SECONDS = 2.0
BEAT_SECONDS = 5.0
LOG_STATES = ("starting", "serving", "draining")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is played: sizes, and times in seconds. `seconds` is the load's own MIN-MAX."""

    replicas: int
    streams: int
    seconds: str
    settle: float
    budget: int

    @property
    def limit(self) -> float:
        """How long the rollout may take at the very most."""
        return self.replicas * (self.budget + 60.0)


class Act:
    """One of the two rollouts, in a namespace of its own."""

    def __init__(self, api: Api, plan: Plan, namespace: str, *, plain: bool) -> None:
        self._api = api
        self._plan = plan
        self._plain = plain
        self.namespace = namespace
        self.tally = Tally()
        self.clock = Clock.start()
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._group = asyncio.TaskGroup()

    async def play(self, screen: Screen) -> None:
        """From nothing to the end of the rollout; raises DemoError when something does not come about in time."""
        try:
            async with asyncio.TaskGroup() as group:
                # In one group: a watch that breaks ends the act, so that it is never taken for one that sees nothing.
                self._group = group
                watchers = [group.create_task(watch) for watch in self._watches(screen)]
                await self._story(screen)
                for task in (*watchers, *self._readers.values()):
                    task.cancel()
        except* DemoError as errors:
            raise _first(errors) from None
        except* httpx.TransportError as errors:
            raise DemoError(f"the API server could not be reached: {_first(errors)!r}") from None

    async def _story(self, screen: Screen) -> None:
        tally, plan = self.tally, self._plan
        await self._prepare(screen)
        await self._until(lambda: tally.serving(OLD) == plan.replicas, START_SECONDS, "the first pods do not serve")
        screen.say(f"{plan.streams} streams at once through the Service, of {plan.seconds} s each, without retries")
        load = manifests.load(await self._address(), plan.streams, plan.seconds)
        await self._api.apply(self._core(f"pods/{manifests.LOAD}"), load)
        await self._until(lambda: tally.running >= plan.streams, LOAD_SECONDS, "the load does not start")
        await asyncio.sleep(plan.settle)
        screen.say(f"apply: the image {manifests.IMAGE}:{OLD} becomes {manifests.IMAGE}:{NEW}")
        tally.applied = self.clock.now
        await self._apply(NEW)
        await self._until(self._over, plan.limit, "the rollout does not end")
        tally.finished = self.clock.now
        await asyncio.sleep(AFTERGLOW_SECONDS)
        tally.ended = self.clock.now

    def _watches(self, screen: Screen) -> Iterator[Coroutine[None, None, None]]:
        yield self._watch_pods(screen)
        yield self._beat(screen)
        if not self._plain:
            yield self._watch_service(screen)

    # -- what is applied

    async def _prepare(self, screen: Screen) -> None:
        kind = "Deployment" if self._plain else "LLMService"
        screen.say(f"apply: {kind} {manifests.SERVICE}, {self._plan.replicas} replicas, {manifests.IMAGE}:{OLD}")
        await self._api.apply(f"/api/v1/namespaces/{self.namespace}", manifests.namespace(self.namespace))
        if self._plain:
            await self._api.apply(self._core(f"services/{manifests.SERVICE}"), manifests.service())
        await self._apply(OLD)

    async def _apply(self, tag: str) -> None:
        if self._plain:
            body = manifests.deployment(self._plan.replicas, tag)
            await self._api.apply(manifests.deployment_path(self.namespace), body)
        else:
            body = manifests.llmservice(self._plan.replicas, tag, self._plan.budget)
            await self._api.apply(manifests.llmservice_path(self.namespace), body)

    async def _address(self) -> str:
        """The Service's own address: the local cluster has no DNS."""
        found = await self._api.get(self._core(f"services/{manifests.SERVICE}"))
        if found is None:
            raise DemoError(f"there is no Service {manifests.SERVICE} in {self.namespace}{self._why()}")
        return str(found["spec"]["clusterIP"])

    def _core(self, rest: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{rest}"

    # -- what is watched

    async def _watch_pods(self, screen: Screen) -> None:
        async for kind, found in self._api.watch(self._core("pods")):
            now, clock = self.clock.now, time.time()
            if kind == "LIST":
                self.tally.list_pods([pod for pod in found if not _is_load(pod)], now, clock)
            elif not _is_load(found):
                if kind == "DELETED":
                    self.tally.pod_gone(found["metadata"]["name"], now)
                else:
                    self.tally.pod(found, now, clock)
            for pod in found if kind == "LIST" else [found]:
                if kind != "DELETED" and _runs(pod):
                    self._read(pod["metadata"]["name"], screen)
            screen.changed()

    async def _watch_service(self, screen: Screen) -> None:
        async for kind, found in self._api.watch(manifests.llmservice_path(self.namespace).rpartition("/")[0]):
            for body in found if kind == "LIST" else [found]:
                self.tally.llmservice(body)
            screen.changed()

    async def _beat(self, screen: Screen) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            screen.beat()

    def _read(self, pod: str, screen: Screen) -> None:
        if pod not in self._readers:
            self._readers[pod] = self._group.create_task(self._reader(pod, screen))

    async def _reader(self, pod: str, screen: Screen) -> None:
        async for line in self._log(pod):
            if pod == manifests.LOAD:
                self.tally.load_line(line, self.clock.now)
                screen.changed()
            else:
                self.tally.server_line(pod, line, self.clock.now)

    async def _log(self, pod: str) -> AsyncIterator[str]:
        """The log, again from its beginning when the connection was lost: the tally knows what it has seen."""
        while True:
            async for line in self._api.log(self.namespace, pod):
                yield line
            known = self.tally.pods.get(pod)
            if known and known.state not in LOG_STATES:
                return
            await asyncio.sleep(1.0)

    # -- waiting

    def _over(self) -> bool:
        tally, wanted = self.tally, self._plan.replicas
        if len(tally.present) != wanted or tally.serving(NEW) != wanted:
            return False
        return self._plain or bool(self.tally.service.get("status", {}).get("rollout", {}).get("finishedAt"))

    async def _until(self, condition: Callable[[], bool], seconds: float, otherwise: str) -> None:
        deadline = self.clock.now + seconds
        while not condition():
            if self.clock.now > deadline:
                raise DemoError(f"{otherwise} after {seconds:.0f} s{self._why()}")
            await asyncio.sleep(0.1)

    def _why(self) -> str:
        message = self.tally.service.get("status", {}).get("message")
        states = ", ".join(f"{pod.name} {pod.state}" for pod in self.tally.present)
        return f". Pods: {states or 'none'}" + (f". The operator says: {message}" if message else "")


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    first = errors.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


def _is_load(pod: Object) -> bool:
    return bool(pod["metadata"]["name"] == manifests.LOAD)


def _runs(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return any("running" in status.get("state", {}) for status in statuses)
