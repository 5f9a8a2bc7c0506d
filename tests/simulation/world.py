"""The whole cluster in memory, with the operator in it and people who use it.

    with World(seed=1) as world:
        world.create()
        world.settle()
        world.edit(image="app:v2")
        world.settle()

Time passes only in `run`, `until` and `settle`. Leaving the block checks every promise of the run.
"""

import asyncio
import base64
import logging
import random
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Any

from simulation.admission import ShippedGate, shipped_policies
from simulation.checks import Checks
from simulation.paranoia import Paranoia
from simulation.port import OPERATOR, RIVAL, Faults, Kill, SimulatedCluster, Write
from simulation.process import FaultsOfOurs, OperatorProcess, Weather
from simulation.sight import NAMESPACE as NAMESPACE
from simulation.sight import Sight
from simulation.specs import edited, template
from simulation.trace import summary
from simulation.traffic import Traffic
from tidegate.api import names
from tidegate.cluster.port import (
    EVENTS,
    LLM_SERVICES,
    NAMESPACES,
    POLICIES,
    POLICY_BINDINGS,
    SECRETS,
    Kind,
    Object,
)
from tidegate.core.state.snapshot import Snapshot
from tidegate.preview.apiserver import Server
from tidegate.preview.controllers import ControllerManager
from tidegate.preview.kubelet import Kubelet
from tidegate.preview.network import Network
from tidegate.preview.pods import Ledger
from tidegate.preview.runs import Image
from tidegate.preview.virtual_time import VirtualLoop

LONG = 3 * 3600.0
"""Virtual seconds within which everything has to get there."""


class World(Sight):
    """A cluster, an operator, and what goes wrong. Everything follows from `seed`."""

    def __init__(self, seed: int = 0, *, paranoid: bool = False, traced: bool = True) -> None:
        self.seed, self._traced = seed, traced
        random.seed(seed)
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.rng = Random(seed)
        self.server = Server(self.loop.now, ShippedGate())
        self._paranoia = Paranoia(self.server) if paranoid else None
        self.trace: list[str] = []
        if traced:
            self.server.written.append(self._log)
        self.ledger = Ledger()
        self.network = Network(self.loop, Random(seed + 1))
        self.network.keys = lambda _: self._drain_keys()
        self.kubelet = Kubelet(self.loop, self.server, Random(seed + 2), self.network, self.ledger)
        self.controller_lag = (0.001, 0.02)
        self.manager = ControllerManager(self.loop, self.server, Random(seed + 3), self._lag)
        self.traffic = Traffic(self.loop, self.server, Random(seed + 4), self.network, self.ledger)
        self.checks = Checks(self.server, self.kubelet, self._basis)
        self.network.posted = self.checks.posted
        self.faults = Faults(Random(seed + 5))
        self.weather = Weather()
        self.sent: list[Write] = []
        self.restart_after = 2.0
        self.gateway_image = names.GATEWAY_IMAGE
        """What the operator that starts next is told."""
        self.deaths = 0
        self.operator: OperatorProcess | None = None
        self._processes: dict[str, OperatorProcess] = {}
        """All that ran, by the names under which they write."""
        self._ours = FaultsOfOurs()
        self._keys: tuple[int, frozenset[str]] = (-1, frozenset())
        self._names: dict[str, str] = {}
        self.steady = True
        """Whether leaving the block also proves that nothing is written any more."""
        self.server.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.install_policies()

    def __enter__(self) -> "World":
        logger = logging.getLogger("tidegate")
        logger.addHandler(self._ours)
        self._level, self._propagates = logger.level, logger.propagate
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        self.start_operator()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self.verify()
            elif not isinstance(error, Failure):
                raise Failure(self.report(str(error) or type(error).__name__)) from error
        finally:
            self.close()

    def close(self) -> None:
        logger = logging.getLogger("tidegate")
        logger.removeHandler(self._ours)
        logger.setLevel(self._level)
        logger.propagate = self._propagates
        for process in self._processes.values():
            if not process.cluster.dead:
                process.kill()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()
        asyncio.set_event_loop(None)

    # -- time

    def run(self, seconds: float) -> None:
        """Let time pass, and stop at the first broken promise."""
        self.loop.run_until_complete(asyncio.sleep(seconds))
        self.assert_kept()

    def until(self, what: Callable[[], object], limit: float = LONG, every: float = 0.25) -> None:
        """Let time pass until `what` holds; it has to within `limit` seconds."""
        end = self.loop.time() + limit
        while not what():
            if self.loop.time() >= end:
                raise Failure(self.report(f"not so after {limit:.0f} s: {getattr(what, '__name__', what)}"))
            self.run(every)

    def settle(self, name: str = "chat", limit: float = LONG) -> None:
        """Until the service has got there."""
        end = self.loop.time() + limit
        pause = 0.5
        while (missing := self.missing(name)) is not None:
            if self.loop.time() >= end:
                raise Failure(self.report(f"{name} did not get there in {limit:.0f} s: {missing}"))
            self.run(pause)
            pause = min(pause * 1.3, 20.0)

    # -- people

    def create(self, name: str = "chat", **given: Any) -> None:
        """kubectl apply of an LLMService; see `edit` for what can be given."""
        mode = str(given.get("mode", "Native"))
        spec = {"replicas": 3, "port": "http", "template": template("app:v1", mode), "drain": {"mode": mode}}
        body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": edited(spec, given)}
        self._as_user(lambda: self.server.create(LLM_SERVICES, body))

    def edit(self, name: str = "chat", **given: Any) -> None:
        """A new spec: `image`, `replicas`, and fields of rollout and drain by their names in the resource.

        A new `mode` needs an `image` too, whose template then has the ports of that mode.
        """
        live = self.server.get(LLM_SERVICES, NAMESPACE, name)
        self._as_user(lambda: self.server.replace(LLM_SERVICES, {**live, "spec": edited(live["spec"], given)}))

    def annotate(self, kind: Kind, name: str, **values: str | None) -> None:
        """Annotations of ours, by the last part of their names with `_` for `-`."""
        keys = {f"{names.GROUP}/{key.replace('_', '-')}": value for key, value in values.items()}
        change = {"metadata": {"annotations": keys}}
        self._as_user(lambda: self.server.merge(kind, NAMESPACE, name, change))

    def delete(self, kind: Kind, name: str) -> None:
        """kubectl delete. Raises Denied as the policies do."""
        options = {"propagationPolicy": "Background"}
        self._as_user(lambda: self.server.delete(kind, NAMESPACE, name, options))

    def evict(self, pod: Object) -> None:
        """As kubectl drain does. Raises Unavailable for 429."""
        self._as_user(lambda: self.server.evict(NAMESPACE, pod["metadata"]["name"]))

    def load(self, pod: Object, *seconds: float) -> None:
        """Streams that end by themselves after so many seconds."""
        for length in seconds:
            self.process(pod).arrive(length)

    def _as_user(self, call: Callable[[], object]) -> None:
        self.server.writer = "user"
        call()

    def image(self, name: str, **behaviour: Any) -> None:
        """How containers of an image behave from now on; see `runs.Image`."""
        self.kubelet.images[name] = Image(**behaviour)

    def install_policies(self) -> None:
        for policy in shipped_policies():
            kind = POLICIES if policy["kind"] == POLICIES.kind else POLICY_BINDINGS
            self.server.create(kind, policy)

    def remove_policies(self) -> None:
        for binding in self.server.all(POLICY_BINDINGS):
            self._as_user(lambda binding=binding: self.server.remove(POLICY_BINDINGS, binding))

    # -- the operator

    def start_operator(self) -> None:
        name = f"{OPERATOR}{self.deaths}"
        self.operator = self._process(name, self.seed + 7 + self.deaths, self._died, lambda: self.weather)

    def start_rival(self, weather: Weather) -> None:
        """A second operator that takes itself for the only one; `weather` is that of its own watches."""
        self._process(RIVAL, self.seed + 6, lambda: None, lambda: weather)

    def _process(
        self, name: str, seed: int, died: Callable[[], None], weather: Callable[[], Weather]
    ) -> OperatorProcess:
        cluster = SimulatedCluster(self.loop, self.server, self.faults, self.sent, died, name)
        process = OperatorProcess(self.loop, self.server, cluster, self.network, Random(seed), name, self.gateway_image)
        self._processes[name] = process
        process.start(weather)
        return process

    def kill_at(self, number: int, *, after: bool) -> None:
        """Kill the operator at its `number`-th write from the start of the run."""
        assert self.operator is not None
        self.operator.cluster.kill = Kill(number, after)

    def kill_operator(self, back_after: float | None = None) -> None:
        """SIGKILL; another one starts `back_after` seconds later (`restart_after` when not given)."""
        self._died(back_after)

    def stop_operator(self) -> None:
        """It dies and stays away until `start_operator`."""
        assert self.operator is not None
        self.operator.kill()
        self.deaths += 1
        self.operator = None

    def _died(self, back_after: float | None = None) -> None:
        self.stop_operator()
        self.loop.call_later(self.restart_after if back_after is None else back_after, self._restart)

    def _restart(self) -> None:
        if self.operator is None:
            self.start_operator()

    # -- judging

    def assert_kept(self) -> None:
        """No promise is broken so far."""
        broken = self.broken()
        if broken:
            raise Failure(self.report("; ".join(broken[:5])))

    def broken(self) -> list[str]:
        found = self.checks.broken + [f"the operator logged a fault: {text}" for text in self._ours.texts]
        for at, uid, what in self.ledger.resets:
            if uid not in self.kubelet.doomed:
                found.append(f"{at:.3f} a client of {uid} saw: {what}")
        for process in self._processes.values():
            found += [f"the operator ended by itself: {text}" for text in process.failed()]
        return found

    def verify(self) -> None:
        """Everything that has to hold when a story is over."""
        self.assert_kept()
        if self.steady:
            self._prove_steady()
        if self._paranoia is not None:
            self._paranoia.check()

    def _prove_steady(self) -> None:
        """Two sweeps and more without a single write, and a new operator that finds nothing to do."""
        self.faults.rate, self.weather = 0.0, Weather()
        self.traffic.stop()
        self.run(400.0)
        before = len(self.sent)
        self.run(400.0)
        if len(self.sent) != before:
            raise Failure(self.report(f"it writes in steady state: {self.sent[before]}"))
        self.kill_operator()
        self.run(150.0)
        if len(self.sent) != before:
            raise Failure(self.report(f"a new operator writes where nothing is to do: {self.sent[before]}"))

    def report(self, what: str) -> str:
        """What failed, and how it came to it."""
        status = {}
        for service in self.server.all(LLM_SERVICES):
            status[service["metadata"]["name"]] = (service.get("status") or {}).get("message")
        lines = [what, f"seed {self.seed}, at {self.loop.time():.1f} s", f"status: {status}", *self.trace[-70:]]
        return "\n".join(lines)

    # -- inside

    def _basis(self, operator: str, key: str) -> Snapshot | None:
        return self._processes[operator].basis.get(key)

    def _lag(self, _: Kind) -> float:
        low, high = self.controller_lag
        return low + (high - low) * self.rng.random()

    def _drain_keys(self) -> frozenset[str]:
        if self._keys[0] != self.server.version:
            found = set()
            for secret in self.server.all(SECRETS):
                found |= {base64.b64decode(value).decode() for value in secret["data"].values()}
            self._keys = (self.server.version, frozenset(found))
        return self._keys[1]

    def _log(self, writer: str, kind: Kind, old: Object | None, new: Object | None) -> None:
        if kind is EVENTS or kind is SECRETS:
            return
        item = new or old
        assert item is not None
        self.trace.append(
            f"{self.loop.time():10.3f} {writer:22} {kind.kind} {item['metadata']['name']} {summary(old, new)}"
        )


class Failure(AssertionError):
    """A promise is broken, with the story of how."""
