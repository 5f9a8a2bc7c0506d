"""A namespace that goes: nothing is read or written there for its services any more."""

from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.cluster.port import LLM_SERVICES, NAMESPACES
from tidegate.controller.parts import assemble
from tidegate.controller.queue import KeyedQueue
from tidegate.controller.reconciler import Reconciler
from tidegate.controller.timing import Clock
from tidegate.metrics.instruments import Metrics


class Called(Exception):
    """The API server was."""


class Silent:
    """An API server that nobody may call."""

    def __getattr__(self, verb: str) -> Any:
        async def call(*_: Any, **__: Any) -> None:
            raise Called(verb)

        return call


def made(name: str, namespace: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace, "uid": f"u-{name}", "resourceVersion": "1"} | more}


@pytest.mark.parametrize("goes", [True, False])
async def test_a_service_is_let_be_when_its_namespace_goes(goes: bool):
    forgotten: list[str] = []
    sessions: Any = SimpleNamespace(want=lambda *given: None, forget=lambda key, _: forgotten.append(key))
    cluster: Any = Silent()
    talk: Any = None
    queue = KeyedQueue()
    still = Clock(lambda: 0.0, lambda: 0.0)
    parts = assemble(cluster, talk, still, queue, Metrics(queue), "here", "gateway")
    store, reconciler = parts.store, Reconciler(parts, sessions)
    template = {"spec": {"containers": [{"name": "server", "image": "x"}]}}
    spec = {"port": 8000, "template": template, "drain": {"mode": "Native", "native": {"port": 9901}}}
    store.put(LLM_SERVICES, made("chat", "shop") | {"spec": spec})
    store.put(NAMESPACES, made("shop", "", **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if goes else {})))
    if goes:
        assert await reconciler.reconcile("shop/chat") is None
        assert forgotten == ["shop/chat"]
    else:
        with pytest.raises(Called):
            await reconciler.reconcile("shop/chat")
