"""What others add beside the operator's objects: containers in its pods, and a second budget over them."""

from collections.abc import Mapping
from typing import Any

import pytest

from simulation.world import NAMESPACE, World
from tidegate.api.errors import Unavailable
from tidegate.cluster.port import EVENTS, PDBS, PODS, Kind, Object

PROXY = {"name": "istio-proxy", "image": "proxy:1"}


def injecting(world: World, monkeypatch: pytest.MonkeyPatch, container: Mapping[str, Any]) -> None:
    """A mutating webhook on new pods from now on: the Deployment does not show what it does."""
    create = world.server.create

    def mutated(kind: Kind, body: Mapping[str, Any], **options: Any) -> Object:
        if kind is PODS:
            spec = {**body["spec"], "containers": [*body["spec"]["containers"], dict(container)]}
            body = {**body, "spec": spec}
        return create(kind, body, **options)

    monkeypatch.setattr(world.server, "create", mutated)


def events(world: World, reason: str) -> list[str]:
    return [event["message"] for event in world.server.all(EVENTS) if event["reason"] == reason]


def test_an_injected_proxy_is_named_until_no_pod_has_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as webhook:
        injecting(world, webhook, PROXY)
        world.create()
        world.settle()
        found = world.condition("InPodLockPartial")
        assert found["reason"] == "ContainerWithoutPreStop"
        assert found["message"].startswith("Container istio-proxy of pods chat-")
        assert found["message"] == world.status()["message"]
        assert world.status()["phase"] == "Ready"
        # The Deployment is compared as rendered, so nothing is rolled for the difference.
        world.run(60)
        assert len(events(world, "ContainerWithoutPreStop")) == 1
    injecting(world, monkeypatch, PROXY | {"lifecycle": {"preStop": {"sleep": {"seconds": 120}}}})
    world.edit(restartedAt="2026-01-01T00:10:00Z")
    world.settle()
    assert not world.condition("InPodLockPartial")


def test_a_second_budget_is_named_once_while_it_is_there(world: World) -> None:
    world.create()
    world.settle()
    selector = {"matchExpressions": [{"key": "tidegate.dev/revision", "operator": "Exists"}]}
    body = {"metadata": {"name": "of-the-chart", "namespace": NAMESPACE}}
    world.server.create(PDBS, body | {"spec": {"minAvailable": 1, "selector": selector}})
    world.until(lambda: world.condition("DisruptionBudgetConflict"))
    assert world.condition("DisruptionBudgetConflict")["reason"] == "SecondBudget"
    assert "PodDisruptionBudget of-the-chart" in world.status()["message"]
    assert world.status()["phase"] == "Ready"
    with pytest.raises(Unavailable, match="500"):
        world.evict(world.pods()[0])
    # Its status moves with the pods of a rollout, which goes on, and says nothing new.
    world.edit(image="app:v2")
    world.settle()
    assert len(events(world, "SecondBudget")) == 1
    world.delete(PDBS, "of-the-chart")
    world.until(lambda: not world.condition("DisruptionBudgetConflict"))
    world.evict(world.pods()[0])
    world.settle()
