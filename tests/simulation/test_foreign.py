"""Rollouts of applications with a drain endpoint of their own: the operator's whole code, and pods that speak nothing.

Only what goes over the network is put in by hand: the two calls, answered by the processes of the simulation.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from simulation.world import World
from tidegate.api.errors import PodTrouble
from tidegate.api.foreign import SecretKeyRef
from tidegate.cluster import project
from tidegate.cluster.port import PODS
from tidegate.contract.machine import DrainContract
from tidegate.contract.terms import Settings
from tidegate.drain import foreign
from tidegate.drain.contract import Address, Answer
from tidegate.drain.dialects import Dialects
from tidegate.drain.foreign import ForeignEndpoints
from tidegate.preview.network import Network
from tidegate.preview.pods import Process

DRAIN, STATS = "/internal/drain", "/internal/stats"
COUNT = {"path": STATS, "pointer": "/active", "offset": 1}
BLOCKING = {"method": "GET", "path": DRAIN, "answersWhenOver": True}
COUNTING = {"method": "POST", "path": DRAIN, "count": COUNT}
BOTH = {"method": "POST", "path": DRAIN, "answersWhenOver": True, "count": COUNT}
KINDS = pytest.mark.parametrize("native", [BLOCKING, COUNTING, BOTH], ids=["blocking", "counting", "both"])


class Applications:
    """What the processes answer on the calls that the user named; how often each of them was drained."""

    def __init__(self, world: World) -> None:
        self.world, self.network = world, world.network
        self.drained: dict[Process, int] = {}
        self.patience: float | None = None
        """Seconds after which a blocking call gives up and answers 200 all the same."""

    def speak(self) -> None:
        """The operator that starts next talks to them; it knows nothing of what an operator before it has begun."""
        endpoints = ForeignEndpoints(None, self.secret, self.run)  # type: ignore[arg-type]
        self.world.network = Everything(self.network, endpoints)  # type: ignore[assignment]

    async def secret(self, namespace: str, ref: SecretKeyRef) -> str:
        raise AssertionError("no endpoint here has a header")

    async def run(self, namespace: str, name: str, uid: str) -> str:
        raw = self.world.server.find(PODS, namespace, name)
        return project.pod(raw).container.run if raw is not None and raw["metadata"]["uid"] == uid else ""

    async def exchange(self, client: None, method: str, url: str, *, headers: Any, patience: float | None) -> Answer:
        process = await self.reach(url.split("/")[2].split(":")[0])
        if url.endswith(STATS):
            return Answer(200, json.dumps({"active": process.in_flight + 1}).encode())
        assert url.endswith(DRAIN)
        self.drained[process] = self.drained.get(process, 0) + 1
        try:
            async with asyncio.timeout(min((x for x in (patience, self.patience) if x is not None), default=None)):
                while method == "GET" and process.in_flight and process.alive:  # noqa: ASYNC110  (it has no event)
                    await asyncio.sleep(0.1)
        except TimeoutError:
            if self.patience is None:
                raise PodTrouble("timeout", "connected, but no answer in time") from None
        if not process.alive:
            raise PodTrouble("broken", "the connection was lost (ReadError)")
        return Answer(200)

    async def connect(self, address: Address) -> None:
        await self.reach(address.ip)

    async def reach(self, ip: str) -> Process:
        await asyncio.sleep(0.002)
        process = self.network.hosts.get(ip)
        if process is None:
            raise PodTrouble("refused", "connection refused: nothing listens on that port")
        return process


class Everything(Dialects):
    """The simulation's network for pods that speak the contract, and the operator's own code for those that do not."""

    def __init__(self, network: Network, endpoints: ForeignEndpoints) -> None:
        super().__init__(network, endpoints)  # type: ignore[arg-type]
        self.network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[World, Applications]]:
    world = World(seed=1, paranoid=True)
    apps = Applications(world)
    sound = world.kubelet.of_service

    def of_service(container: dict[str, Any], instance: str) -> DrainContract:
        bare = DrainContract(Settings(grace=125), instance, serves_late=True)
        return sound(container, instance) if container.get("env") else bare

    world.kubelet.of_service = of_service
    monkeypatch.setattr(foreign, "exchange", apps.exchange)
    monkeypatch.setattr(foreign, "_connect", apps.connect)
    apps.speak()
    with world:
        yield world, apps


def standing(world: World, native: dict[str, Any], **spec: object) -> None:
    world.create(native={"foreign": native}, **spec)
    world.settle()
    world.traffic.start(every=1.0, seconds=(5, 40))
    world.run(30)


@KINDS
@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (2, 0), (0, 1)])
def test_a_rollout_drains_every_old_pod_and_cuts_nothing(
    made: tuple[World, Applications], native: dict[str, Any], surge: int, unavailable: int
) -> None:
    world, apps = made
    standing(world, native, maxSurge=surge, maxUnavailable=unavailable)
    world.edit(image="app:v2")
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * 3
    assert len(apps.drained) == 3
    assert world.ledger.served > 20 and world.ledger.tokens == 0 and world.ledger.unserved == 0
    assert set(world.checks.deletes.values()) == {"replicaset-controller"}


@KINDS
def test_an_operator_killed_in_the_middle_of_a_drain_carries_on(
    made: tuple[World, Applications], native: dict[str, Any]
) -> None:
    world, apps = made
    standing(world, native)
    world.edit(image="app:v2")
    world.until(lambda: apps.drained)
    apps.speak()
    world.kill_operator()
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * 3
    assert max(apps.drained.values()) >= 2, "the call was made again"


@KINDS
def test_a_container_that_restarts_in_the_middle_of_its_drain_has_vanished(
    made: tuple[World, Applications], native: dict[str, Any]
) -> None:
    world, apps = made
    standing(world, native)
    world.edit(image="app:v2")
    world.until(lambda: apps.drained)
    (process,) = apps.drained
    assert process.in_flight
    world.kubelet.crash(process.uid)
    world.settle()
    assert sorted(outcome for _, outcome, _ in world.outcomes()) == ["Drained", "Drained", "Vanished"]


def test_an_endpoint_that_gives_up_waiting_is_not_believed_over_its_count(made: tuple[World, Applications]) -> None:
    world, apps = made
    apps.patience = 1.0
    standing(world, BOTH | {"method": "GET"})
    world.edit(image="app:v2")
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * 3
    assert max(apps.drained.values()) >= 2


@KINDS
def test_a_rollback_in_the_middle_replaces_the_pod_that_drains(
    made: tuple[World, Applications], native: dict[str, Any]
) -> None:
    world, apps = made
    standing(world, native)
    world.edit(image="app:v2")
    world.until(lambda: apps.drained)
    world.edit(image="app:v1")
    world.settle()
    drained = [(image, cut) for image, outcome, cut in world.outcomes() if outcome == "Drained"]
    assert ("app:v1", 0) in drained and ("app:v2", 0) in drained
    assert all(cut == 0 for _, cut in drained) and world.ledger.tokens == 0


@KINDS
def test_a_service_moves_to_the_contract_and_each_pod_is_spoken_to_as_it_speaks(
    made: tuple[World, Applications], native: dict[str, Any]
) -> None:
    world, apps = made
    standing(world, native)
    world.edit(image="app:v2", native={"port": 9901, "foreign": None})
    world.settle()
    assert len(apps.drained) == 3
    world.edit(image="app:v3", native={"port": 9901, "foreign": None})
    world.settle()
    assert world.outcomes() == [("app:v1", "Drained", 0)] * 3 + [("app:v2", "Drained", 0)] * 3
    assert len(apps.drained) == 3, "pods of the contract have no such endpoint"
