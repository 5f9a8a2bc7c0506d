"""The operator's door to the API server in memory: its verbs, its latency, its faults, and its death.

Only what the operator really does is known here; a new verb, kind or field manager raises `NotImplementedError`, and a
write to the spec of an LLMService is a broken promise.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tidegate.api import names
from tidegate.api.errors import ClusterError, Conflict, Denied, Unavailable
from tidegate.cluster.port import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    EVENTS,
    LLM_SERVICES,
    NAMESPACES,
    PDBS,
    PODS,
    POLICIES,
    POLICY_BINDINGS,
    REPLICASETS,
    SECRETS,
    SERVICES,
    Kind,
    Object,
)
from tidegate.preview.apiserver import Server
from tidegate.preview.client import MemoryCluster, T

LISTED = frozenset(
    (
        LLM_SERVICES,
        DEPLOYMENTS,
        REPLICASETS,
        PODS,
        PDBS,
        SERVICES,
        NAMESPACES,
        ENDPOINT_SLICES,
        POLICIES,
        POLICY_BINDINGS,
    )
)
GOT = frozenset((SECRETS, CONFIG_MAPS, PODS, DEPLOYMENTS, REPLICASETS, NAMESPACES))
CREATED = frozenset((SECRETS, CONFIG_MAPS, EVENTS))
APPLIED = {
    (DEPLOYMENTS, names.FIELD_MANAGER),
    (DEPLOYMENTS, names.FIELD_MANAGER_SCALE),
    (SERVICES, names.FIELD_MANAGER),
    (PDBS, names.FIELD_MANAGER),
}
PATCHED = frozenset((PODS, DEPLOYMENTS, CONFIG_MAPS, SECRETS))
DELETED = frozenset((PODS, DEPLOYMENTS, SERVICES))
OPERATOR = "operator-"
"""How the names begin under which operators write."""
RIVAL = f"{OPERATOR}rival"
"""A second one that takes itself for the only one."""


class UnknownCallError(NotImplementedError):
    """The simulation does not know this call of the operator's: teach it, and add a row to the conformance tests."""


@dataclass(slots=True)
class Faults:
    """What goes wrong with calls: conflict (409), 429, 500, or timeout, which is stored and never answered."""

    rng: Random
    rate: float = 0.0
    """Probability of a random fault per call."""
    latency: tuple[float, float] = (0.001, 0.006)
    kinds: tuple[str, ...] = ("conflict", "429", "500", "timeout")
    refused: set[Kind] = field(default_factory=set)
    """Kinds that the operator's role does not cover any more."""
    at_write: dict[int, str] = field(default_factory=dict)
    """By number of the write, counted from 1 over all that the operator sends; each is used once."""
    scripted: list[tuple[Callable[[str, Kind], bool], str]] = field(default_factory=list)
    """(matcher, kind of fault): each is used once, at the first call that matches."""

    def pick(self, verb: str, kind: Kind, write: int) -> str:
        """The fault of this call, or nothing. `write` is its number, 0 for a read."""
        if write in self.at_write:
            return self.at_write.pop(write)
        for entry in self.scripted:
            if entry[0](verb, kind):
                self.scripted.remove(entry)
                return entry[1]
        if self.rate and self.rng.random() < self.rate:
            fault = self.rng.choice(self.kinds)
            return "500" if fault == "conflict" and verb in ("list", "get") else fault
        return ""

    def next_call(self, verb: str, kind: Kind, fault: str) -> None:
        """One fault (conflict, 429, 500, timeout) at the next call of `verb` on `kind`."""
        self.scripted.append((lambda v, k: v == verb and k is kind, fault))


@dataclass(frozen=True, slots=True)
class Write:
    """One write that the operator sent, for traces and for the crash matrix."""

    at: float
    verb: str
    kind: Kind
    name: str
    detail: Any

    def __str__(self) -> str:
        return f"{self.at:9.3f} operator {self.verb} {self.kind.kind} {self.name} {self.detail}"


@dataclass(slots=True)
class Kill:
    """Ends the operator at its `number`-th write, before it is sent, or after it was stored and unanswered."""

    number: int
    after: bool


class SimulatedCluster(MemoryCluster):
    """The port with latency, faults and death."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        server: Server,
        faults: Faults,
        sent: list[Write],
        die: Callable[[], None],
        name: str,
    ) -> None:
        super().__init__(server, name)
        self._loop, self._faults, self._sent, self._die = loop, faults, sent, die
        self.kill: Kill | None = None
        self.dead = False
        self.unknown: list[str] = []

    # -- the port

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", chunk: int = 500
    ) -> tuple[list[Object], str]:
        self._known(kind in LISTED, f"list {kind.plural}")
        return await super().list(kind, namespace, labels=labels, chunk=chunk)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        self._known(kind in GOT, f"get {kind.plural}")
        return await super().get(kind, namespace, name)

    async def create(self, kind: Kind, namespace: str, body: Mapping[str, Any]) -> Object:
        self._known(kind in CREATED, f"create {kind.plural}")
        return await super().create(kind, namespace, body)

    async def apply(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        *,
        manager: str,
        dry_run: bool = False,
    ) -> Object:
        self._known((kind, manager) in APPLIED, f"apply {kind.plural} as {manager}")
        return await super().apply(kind, namespace, name, body, manager=manager, dry_run=dry_run)

    async def patch_status(
        self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]
    ) -> Object:
        self._known(kind is LLM_SERVICES, f"patch the status of {kind.plural}")
        self._know_uid(kind, operations)
        return await super().patch_status(kind, namespace, name, operations)

    async def patch(self, kind: Kind, namespace: str, name: str, operations: Sequence[Mapping[str, Any]]) -> Object:
        self._known(kind in PATCHED, f"patch {kind.plural}")
        self._know_uid(kind, operations)
        return await super().patch(kind, namespace, name, operations)

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str) -> None:
        self._known(kind in DELETED, f"delete {kind.plural}")
        await super().delete(kind, namespace, name, uid=uid)

    # -- inside

    def _know_uid(self, kind: Kind, operations: Sequence[Mapping[str, Any]]) -> None:
        tests = [o["path"] for o in operations if o["op"] == "test"]
        self._known("/metadata/uid" in tests, f"patch {kind.plural} without a test of the uid")

    def _known(self, known: bool, call: str) -> None:
        if not known:
            self.unknown.append(call)
            raise UnknownCallError(call)

    async def call(self, verb: str, kind: Kind, do: Callable[[], T], name: str = "", detail: Any = None) -> T:
        """One call: there, done, and back; `name` makes it a write."""
        low, high = self._faults.latency
        rng = self._faults.rng
        await self._travel(low + (high - low) * rng.random())
        if name:
            self._sent.append(Write(self._loop.time(), verb, kind, name, detail))
            await self._perhaps_die(after=False)
        fault = self._faults.pick(verb, kind, len(self._sent) if name else 0)
        if fault == "429":
            raise Unavailable("too many requests (429)", 1.0)
        if fault == "500":
            raise Unavailable("internal error (500)")
        if fault == "conflict":
            raise Conflict("the object has been modified (409)")
        if kind in self._faults.refused:
            raise Denied(f"{kind.plural} is forbidden (403)")
        try:
            answer = self.make(do)
        except ClusterError:
            if not name:
                raise
            await self._perhaps_die(after=True)
            raise
        if name:
            await self._perhaps_die(after=True)
        if fault == "timeout":
            await self._travel(30.0)
            raise Unavailable("no answer from the API server: TimeoutError")
        await self._travel(low + (high - low) * rng.random())
        return answer

    async def _travel(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.dead:
            await self._hang()

    async def _perhaps_die(self, *, after: bool) -> None:
        kill = self.kill
        if kill is not None and kill.number == len(self._sent) and kill.after == after:
            self.kill = None
            self._die()
            await self._hang()

    async def _hang(self) -> None:
        await self._loop.create_future()
