"""What others add beside the operator's objects: containers in its pods."""

from collections.abc import Mapping
from typing import Any

import pytest

from simulation.world import World
from tidegate.cluster.port import EVENTS, PODS, Kind, Object

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
