"""The whole cluster in memory, with the operator in it and people who use it.

    with World(seed=1) as world:
        world.create()
        world.settle()
        world.edit(image="app:v2")
        world.settle()

Time passes only in `run`, `until` and `settle`. Leaving the block checks every promise of the run.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any

from simulation.apiserver import Paranoia, Server, merged, shipped_policies
from simulation.checks import Checks
from simulation.controllers import ControllerManager, active, ready
from simulation.kubelet import Image, Kubelet
from simulation.pods import Ledger, Network, Process
from simulation.port import Faults, Kill, SimulatedCluster, Write
from simulation.process import FaultsOfOurs, OperatorProcess, Weather
from simulation.traffic import Traffic
from simulation.virtual_time import VirtualLoop
from tidegate.api import names
from tidegate.api.errors import NotFound
from tidegate.cluster import project
from tidegate.cluster.drain_times import KEY, name_of
from tidegate.cluster.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    LLM_SERVICES,
    NAMESPACES,
    PODS,
    POLICIES,
    POLICY_BINDINGS,
    SECRETS,
    Kind,
    Object,
)
from tidegate.core import revision
from tidegate.core.drain_times import DrainTimes, load
from tidegate.core.model import Snapshot

NAMESPACE = "prod"
LONG = 3 * 3600.0
"""Virtual seconds within which everything has to get there."""


@dataclass(frozen=True, slots=True)
class Told:
    """An Event that the operator wrote."""

    reason: str
    message: str


class World:
    """A cluster, an operator, and what goes wrong. Everything follows from `seed`."""

    def __init__(self, seed: int = 0, *, paranoid: bool = False, traced: bool = True) -> None:
        self.seed, self._traced = seed, traced
        random.seed(seed)
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.rng = Random(seed)
        self.server = Server(self.loop.now)
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
        self.network.told = self.checks.told
        self.faults = Faults(Random(seed + 5))
        self.weather = Weather()
        self.sent: list[Write] = []
        self.restart_after = 2.0
        self.gateway_image = names.GATEWAY_IMAGE
        """What the operator that starts next is told."""
        self.deaths = 0
        self.operator: OperatorProcess | None = None
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
        if self.operator is not None:
            self.operator.kill()
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
        spec = {"replicas": 3, "port": "http", "template": _template("app:v1", mode), "drain": {"mode": mode}}
        body = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": _edited(spec, given)}
        self._as_user(lambda: self.server.create(LLM_SERVICES, body))

    def edit(self, name: str = "chat", **given: Any) -> None:
        """A new spec: `image`, `replicas`, and fields of rollout and drain by their names in the resource.

        A new `mode` needs an `image` too, whose template then has the ports of that mode.
        """
        live = self.server.get(LLM_SERVICES, NAMESPACE, name)
        self._as_user(lambda: self.server.replace(LLM_SERVICES, {**live, "spec": _edited(live["spec"], given)}))

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

    def _as_user(self, call: Callable[[], object]) -> None:
        self.server.writer = "user"
        call()

    def image(self, name: str, **behaviour: Any) -> None:
        """How containers of an image behave from now on; see `kubelet.Image`."""
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
        cluster = SimulatedCluster(self.loop, self.server, self.faults, self.sent, self._died)
        number = self.deaths
        self.operator = OperatorProcess(
            self.loop,
            self.server,
            cluster,
            self.network,
            Random(self.seed + 7 + number),
            f"operator-{number}",
            self.gateway_image,
        )
        self.operator.start(lambda: self.weather)

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

    # -- looking

    def service(self, name: str = "chat") -> Object:
        return self.server.get(LLM_SERVICES, NAMESPACE, name)

    def status(self, name: str = "chat") -> Object:
        return self.service(name).get("status") or {}

    def condition(self, kind: str, name: str = "chat") -> Object:
        """A condition, or an empty dict."""
        rows = self.status(name).get("conditions") or []
        return next((row for row in rows if row["type"] == kind), {})

    def pods(self, name: str = "chat", *, image: str = "", state: str = "", alive: bool = True) -> list[Object]:
        """Pods by age; `alive` leaves out terminating and failed ones."""
        found = []
        for pod in self.server.all(PODS):
            labels = pod["metadata"]["labels"]
            if labels.get(names.SERVICE) != name or (alive and not active(pod)):
                continue
            if image and pod["spec"]["containers"][0]["image"] != image:
                continue
            if state and labels.get(names.STATE) != state:
                continue
            found.append(pod)
        return sorted(found, key=lambda p: str(p["metadata"]["name"]))

    def ready_pods(self, name: str = "chat", **which: Any) -> list[Object]:
        return [p for p in self.pods(name, **which) if ready(p)]

    def process(self, pod: Object) -> Process:
        """What runs in the pod."""
        found = self.kubelet.process(pod["metadata"]["uid"])
        assert found is not None, pod["metadata"]["name"]
        return found

    def load(self, pod: Object, *seconds: float) -> None:
        """Streams that end by themselves after so many seconds."""
        for length in seconds:
            self.process(pod).arrive(length)

    def told(self) -> list[Told]:
        """Events so far, oldest first."""
        return [Told(e["reason"], e["message"]) for e in self.server.all(EVENTS)]

    def learnt(self, name: str = "chat") -> DrainTimes:
        """What the ConfigMap of the service says."""
        raw = self.server.find(CONFIG_MAPS, NAMESPACE, name_of(name))
        return DrainTimes() if raw is None else load(raw["data"][KEY])

    def outcomes(self) -> list[tuple[str, str, object]]:
        """(image, outcome, requests cut) of every pod that was marked drained, in order."""
        rows = []
        for pod in self.checks.outcomes.values():
            said = _json(pod["metadata"]["annotations"][names.OUTCOME])
            rows.append((str(pod["spec"]["containers"][0]["image"]), str(said["outcome"]), said["cut"]))
        return rows

    def missing(self, name: str = "chat") -> str | None:
        """What is not yet as the spec says, or None."""
        try:
            service = self.service(name)
        except NotFound:
            return None if not self.pods(name, alive=False) else "pods of a deleted service"
        status = service.get("status") or {}
        conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
        wanted = {"Ready": "True", "Reconciling": "False", "Stalled": "False"}
        for kind, value in wanted.items():
            if conditions.get(kind) != value:
                return f"{kind} is {conditions.get(kind)}: {status.get('message')}"
        if status.get("observedGeneration") != service["metadata"]["generation"]:
            return "the status is of an older spec"
        return self._missing_pods(service)

    def _missing_pods(self, service: Object) -> str | None:
        name, replicas = service["metadata"]["name"], service["spec"]["replicas"]
        standing = self.pods(name, alive=False)
        wanted = revision.source(service["spec"])
        all_mine = [d for d in self.server.all(DEPLOYMENTS) if d["metadata"]["labels"][names.SERVICE] == name]
        deployments = [project.deployment(d, "") for d in all_mine]
        target = revision.find(deployments, wanted)
        if target is None or sum(d.source == target.source for d in deployments) > 1:
            return f"{'no' if target is None else 'more than one'} Deployment of the wanted revision"
        mine = target.revision
        good = [
            p
            for p in standing
            if p["metadata"]["labels"][names.REVISION] == mine
            and p["metadata"]["labels"][names.STATE] == names.SERVING
            and active(p)
            and ready(p)
        ]
        if len(good) != replicas or len(standing) != replicas:
            return f"{len(good)} of {len(standing)} pods are as wanted, {replicas} are wanted"
        routable = self.traffic.endpoints(service["spec"].get("service", {}).get("name") or name)
        if len(routable) != replicas:
            return f"{len(routable)} pods are routable, {replicas} are Ready"
        return None

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
        if self.operator is not None:
            found += [f"the operator ended by itself: {text}" for text in self.operator.failed()]
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

    def _basis(self, key: str) -> Snapshot | None:
        return self.operator.basis.get(key) if self.operator is not None else None

    def _lag(self, _: Kind) -> float:
        low, high = self.controller_lag
        return low + (high - low) * self.rng.random()

    def _drain_keys(self) -> frozenset[str]:
        if self._keys[0] != self.server.version:
            import base64

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
            f"{self.loop.time():10.3f} {writer:22} {kind.kind} {item['metadata']['name']} {_said(old, new)}"
        )


class Failure(AssertionError):
    """A promise is broken, with the story of how."""


def _said(old: Object | None, new: Object | None) -> str:
    if new is None:
        return "gone"
    meta, spec, status = new["metadata"], new.get("spec") or {}, new.get("status") or {}
    parts = [] if old is not None else ["new"]
    if "deletionTimestamp" in meta:
        parts.append("terminating")
    if names.STATE in (meta.get("labels") or {}) and new["kind"] == "Pod":
        parts.append(meta["labels"][names.STATE])
        parts.append(status.get("phase", "") + (" ready" if ready(new) else ""))
        for container in status.get("containerStatuses") or []:
            parts.append(f"started={container['started']} {next(iter(container['state']), '')}")
        outcome = (meta.get("annotations") or {}).get(names.OUTCOME)
        if outcome:
            parts.append(str(_json(outcome)["outcome"]))
    elif "replicas" in spec:
        parts.append(f"replicas={spec['replicas']}")
        if new["kind"] == names.KIND:
            parts.append(f"{status.get('phase')}: {status.get('message')}")
        elif status:
            parts.append(f"observed={status.get('observedGeneration')} of {meta.get('generation')}")
    elif "endpoints" in new:
        parts.append(" ".join(e["targetRef"]["name"][-4:] for e in new["endpoints"]))
    return " ".join(parts)


def _json(text: str) -> dict[str, Any]:
    import json

    return dict(json.loads(text))


_GRACE = frozenset(("initialSeconds", "teardownSeconds", "safetySeconds", "maxSeconds", "rollOnDrift"))
_DRAIN = frozenset(
    ("mode", "budgetSeconds", "onExpiry", "propagationSeconds", "quietSeconds", "flushSeconds", "stalledAfterSeconds")
)
_TOP = frozenset(("replicas", "port", "service", "probes", "engine", "gateway", "disruption"))


def _template(image: str, mode: str) -> Object:
    ports = [{"name": "http", "containerPort": 8000}]
    if mode == "Native":
        ports.append({"name": "admin", "containerPort": 9901})
    return {"metadata": {}, "spec": {"containers": [{"name": "server", "image": image, "ports": ports}]}}


def _edited(spec: Mapping[str, Any], given: Mapping[str, Any]) -> Object:
    change: dict[str, Any] = {"drain": {}, "rollout": {}}
    for key, value in given.items():
        if key == "image":
            change["template"] = _template(value, str(given.get("mode", spec["drain"]["mode"])))
        elif key in _TOP:
            change[key] = value
        elif key in _DRAIN:
            change["drain"][key] = value
        elif key in _GRACE:
            change["drain"].setdefault("grace", {})[key] = value
        else:
            change["rollout"][key] = value
    return merged(spec, {key: value for key, value in change.items() if value != {}})
