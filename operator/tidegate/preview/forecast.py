"""What a change would do: the operator itself, at work in a cluster in memory in which nothing fails.

A pod is Ready `start` seconds after its creation, its drain ends `drain` seconds after the propagation time, a released
pod is gone `teardown` seconds later. What Kubernetes' controllers and the operator take for themselves comes on top:
some tenths of a second for each pod.
"""

import asyncio
import base64
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from types import TracebackType
from typing import Any, Final

from tidegate.api import names
from tidegate.api.conditions import ConditionStatus, ConditionType
from tidegate.api.drain import OnExpiry
from tidegate.api.resource import LLMServiceSpec
from tidegate.api.status import LLMServiceStatus
from tidegate.cluster.locks import EXPECTED
from tidegate.cluster.port import LLM_SERVICES, NAMESPACES, PODS, POLICIES, POLICY_BINDINGS, SECRETS, Kind, Object
from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Settings
from tidegate.controller.parts import assemble
from tidegate.controller.queue import KeyedQueue
from tidegate.controller.runtime import Operator
from tidegate.controller.timing import Clock, Pace
from tidegate.core.drain_time import bound
from tidegate.core.planner.actions import Withdraw
from tidegate.core.state import limits
from tidegate.metrics.instruments import Metrics

from .apiserver import Server
from .client import MemoryCluster
from .controllers import ControllerManager
from .gate import OpenGate
from .kubelet import Kubelet
from .network import Network
from .pods import Ledger, of_service
from .runs import Image
from .shapes import active
from .steps import OPERATOR, OneByOne, Step, Steps
from .virtual_time import VirtualLoop
from .watches import Receives, Watches

NEVER: Final = 1e8
"""Seconds: nothing that the operator does now and then of itself changes what a cluster without faults does."""
BATCH_SECONDS: Final = 0.02
SETTLED_SECONDS: Final = 1.0
PATIENCE: Final = 600.0
"""Seconds beside those of a start, a drain and a budget, after which nothing is expected to happen any more."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Seconds that the forecast takes for granted."""

    start: float
    drain: float
    teardown: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a change does, from its beginning until it has got there."""

    steps: tuple[Step, ...]
    seconds: float
    """Until the last step but the end of pods that are released."""
    bound_seconds: float | None
    """Seconds that no schedule could beat; None where no pod is replaced."""
    drained: int
    least_serving: int
    most_pods: int


class Stuck(Exception):
    """The operator waits for something that a cluster without faults does not bring; the text says for what."""


class _Least(Random):
    """Takes the least of each range of delays."""

    def random(self) -> float:
        return 0.0


def _service(container: Mapping[str, Any], instance: str) -> DrainContract:
    """What a serving container speaks; one with a drain endpoint of its own is told no numbers."""
    speaks_contract = any(row["name"].startswith("TIDEGATE_") for row in container.get("env") or [])
    return of_service(container, instance) if speaks_contract else DrainContract(Settings(), instance, serves_late=True)


class _Batches(Watches):
    """Tells what has changed once in a while: one pass of the operator then takes up what would have made many."""

    def __init__(self, loop: VirtualLoop, server: Server, store: Receives) -> None:
        self._loop = loop
        self._waiting: list[tuple[str, Kind, Object]] = []
        super().__init__(server, store)

    def arrive(self, event: str, kind: Kind, raw: Object) -> None:
        if not self._waiting:
            self._loop.call_later(BATCH_SECONDS, self._flush)
        self._waiting.append((event, kind, raw))

    def _flush(self) -> None:
        batch, self._waiting = self._waiting, []
        for event, kind, raw in batch:
            self.deliver(event, kind, raw)


class Preview:
    """A cluster with one LLMService, and the operator in it; time passes in `settle` and `run` alone."""

    def __init__(self, namespace: str, name: str, assume: Assumptions) -> None:
        self.namespace, self.name = namespace, name
        self._assume = assume
        self._loop = VirtualLoop()
        rng = _Least()
        self._server = Server(self._loop.now, OpenGate())
        network, ledger = Network(self._loop, rng), Ledger()
        network.wait_seconds = NEVER
        network.keys = lambda _: self._drain_keys()
        self._kubelet = Kubelet(self._loop, self._server, rng, network, ledger)
        self._kubelet.of_service = _service
        self._kubelet.ordinary = Image(pull=0.0, boot=0.0, load=assume.start, stop=assume.teardown)
        ControllerManager(self._loop, self._server, rng, lambda _: 0.0)
        self._install()
        queue, now = KeyedQueue(self._loop.time), self._loop.now
        parts = assemble(
            MemoryCluster(self._server, OPERATOR),
            network,
            Clock(now, self._loop.time),
            queue,
            Metrics(queue, now),
            OPERATOR,
            names.GATEWAY_IMAGE,
            Pace(workers=1, sweep_seconds=NEVER, poll_seconds=NEVER, refresh_seconds=NEVER, eta_seconds=NEVER),
        )
        doing = OneByOne(parts.executor)
        self._steps = Steps(self._loop, self._server, lambda: doing.action)
        self._steps.withdrawn = self._load
        self._news = asyncio.Event()
        self._server.written.append(lambda *_: self._news.set())
        _Batches(self._loop, self._server, parts.store)
        self._task = self._loop.create_task(Operator(replace(parts, executor=doing)).run(), name="operator")

    def __enter__(self) -> "Preview":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    # -- what people do

    def apply(self, spec: Mapping[str, Any]) -> None:
        """Create the LLMService with this spec, or give it this spec; the forecast begins here."""
        self._spec = LLMServiceSpec.parse(spec)
        self._steps.begin()
        self._steps.min_ready_seconds = self._spec.rollout.min_ready_seconds
        live = self._server.find(LLM_SERVICES, self.namespace, self.name)
        if live is None:
            meta = {"namespace": self.namespace, "name": self.name}
            self._server.create(LLM_SERVICES, {"metadata": meta, "spec": dict(spec)})
        else:
            self._server.replace(LLM_SERVICES, {**live, "spec": dict(spec)})

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def settle(self) -> Forecast:
        """Let time pass until the service is as its spec says. Raises `Stuck` when it does not get there."""
        self._loop.run_until_complete(self._settled())
        record = self._steps
        return Forecast(
            tuple(record.steps), record.ended_at, self._bound(), record.drained, record.least_serving, record.most_pods
        )

    # -- what is there

    def objects(self, kind: Kind) -> list[Object]:
        """The objects of a kind, in the order in which they were made."""
        return list(self._server.all(kind))

    # -- inside

    def _install(self) -> None:
        """The namespace, and the policies: without them the operator drains one pod at a time."""
        self._server.create(NAMESPACES, {"metadata": {"name": self.namespace}})
        for name in EXPECTED:
            self._server.create(POLICIES, {"metadata": {"name": name}})
            binding = {"policyName": name, "validationActions": ["Deny"]}
            self._server.create(POLICY_BINDINGS, {"metadata": {"name": name}, "spec": binding})

    def _load(self, action: Withdraw) -> None:
        """One request in the pod that is withdrawn, which ends when its drain shall."""
        process = self._kubelet.process(action.uid)
        if process is not None and self._assume.drain:
            process.arrive(self._spec.drain.propagation_seconds + self._assume.drain)

    def _drain_keys(self) -> frozenset[str]:
        values = itertools.chain.from_iterable(secret["data"].values() for secret in self._server.all(SECRETS))
        return frozenset(base64.b64decode(value).decode() for value in values)

    async def _settled(self) -> None:
        spec, assume = self._spec, self._assume
        longest = assume.start + assume.drain + assume.teardown + spec.drain.propagation_seconds
        patience = PATIENCE + longest + spec.rollout.min_ready_seconds
        while not self._there():
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), patience)
            except TimeoutError:
                raise Stuck(self._why()) from None
            # The status is written before the last acts of a pass.
            await asyncio.sleep(SETTLED_SECONDS)

    def _there(self) -> bool:
        service = self._server.get(LLM_SERVICES, self.namespace, self.name)
        status = LLMServiceStatus.read(service.get("status"))
        found = {row.type: row.status is ConditionStatus.TRUE for row in status.conditions}
        wanted = {ConditionType.READY: True, ConditionType.RECONCILING: False, ConditionType.STALLED: False}
        return (
            status.observed_generation == service["metadata"]["generation"]
            and all(found.get(kind) is value for kind, value in wanted.items())
            and all(active(pod) for pod in self._server.all(PODS))
        )

    def _why(self) -> str:
        service = self._server.get(LLM_SERVICES, self.namespace, self.name)
        status = LLMServiceStatus.read(service.get("status"))
        stalled = status.condition(ConditionType.STALLED)
        if stalled is not None and stalled.status is ConditionStatus.TRUE:
            return stalled.message
        if self._spec.rollout.paused:
            return "spec.rollout.paused holds it: set it to false, or plan with false to see what would follow"
        return status.message or "the plan waits although nothing fails"

    def _bound(self) -> float | None:
        """What no schedule could beat, of the pods that a rollout has replaced."""
        spec, count = self._spec, self._steps.replaced
        if not count:
            return None
        longest, propagation = self._assume.drain, float(spec.drain.propagation_seconds)
        if spec.drain.on_expiry is not OnExpiry.HOLD:
            # Requests are ended so long before the deadline that their tokens still arrive.
            cut_at = float(spec.drain.budget_seconds - spec.drain.flush_seconds)
            longest = min(longest, max(cut_at - propagation, 0.0))
        slots = limits.resolve(spec.replicas, spec.rollout.max_surge, spec.rollout.max_unavailable).slots
        drains = bound.Drained(count, longest * count, longest)
        return bound.rollout_bound(self._assume.start + spec.rollout.min_ready_seconds, propagation, drains, slots)
