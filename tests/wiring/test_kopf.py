"""kopf as event source and shell: what is registered, what is set, and where an event goes."""

import asyncio
import itertools
from typing import Any

import kopf
import pytest
from kopf import Resource

from tidegate.api import names
from tidegate.cluster.port import DEPLOYMENTS, LLM_SERVICES, PDBS, PODS, REPLICASETS, SERVICES, Kind
from tidegate.controller import shell
from tidegate.controller.parts import assemble
from tidegate.controller.queue import KeyedQueue
from tidegate.controller.runtime import WATCHED, Operator
from tidegate.controller.timing import STANDARD_PACE, Clock
from tidegate.metrics.instruments import Metrics

KINDS = [kind for kind, _ in WATCHED]


class Empty:
    """A cluster without objects; while `answers` is False, it does not say so."""

    answers = True

    async def list(self, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        return [], "1"


class Hands:
    """A clock that the test moves."""

    seconds = 1000.0

    def read(self) -> float:
        return self.seconds


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def operator(hands: Hands) -> Operator:
    """The real one, with an empty cluster and nobody to talk to."""
    cluster: Any = Empty()
    talk: Any = None
    queue = KeyedQueue(hands.read)
    clock = Clock(hands.read, hands.read)
    return Operator(assemble(cluster, talk, clock, queue, Metrics(queue), "here", names.GATEWAY_IMAGE))


def resource(kind: Kind) -> Resource:
    return Resource(
        group=kind.group, version=kind.version, plural=kind.plural, kind=kind.kind, singular=kind.kind.lower(),
        namespaced=kind.namespaced, preferred=True, verbs=frozenset({"list", "watch"}),
    )  # fmt: skip


async def test_only_handlers_that_write_nothing_are_registered(operator: Operator):
    registry = shell.registry(operator)
    for part in ("_changing", "_spawning", "_indexing", "_webhooks"):
        assert getattr(registry, part).get_all_handlers() == [], f"{part}: kopf would write to objects, or keep ghosts"
    activities = {str(handler.activity) for handler in registry._activities.get_all_handlers()}
    assert activities == {"authentication", "probe"}
    assert len(registry._watching.get_all_handlers()) == len(WATCHED)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.plural)
async def test_every_kind_has_one_event_handler(operator: Operator, kind: Kind):
    handlers = shell.registry(operator)._watching.get_all_handlers()
    matching = [h for h in handlers if h.selector is not None and h.selector.check(resource(kind))]
    assert [h.id for h in matching] == [f"watch-{kind.plural}"]


@pytest.mark.parametrize(("kind", "labels"), WATCHED, ids=lambda value: getattr(value, "plural", value or "all"))
def test_the_watch_of_a_kind_is_narrowed_as_its_list_is(kind: Kind, labels: str):
    assert shell.settings().watching.label_selectors.collect(resource(kind)) == ([labels] if labels else [])


def test_pods_of_others_are_not_watched_and_services_of_others_are():
    by_kind = dict(WATCHED)
    assert by_kind[PODS] == by_kind[DEPLOYMENTS] == by_kind[REPLICASETS] == names.SERVICE
    assert by_kind[SERVICES] == by_kind[LLM_SERVICES] == ""


def test_kopf_posts_nothing_scans_nothing_elects_nobody_and_never_gives_up():
    settings = shell.settings()
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert settings.persistence.finalizer.startswith("tidegate.dev/")
    waits = list(itertools.islice(settings.networking.error_backoffs, 500))
    assert len(waits) == 500 and max(waits) <= 30 * 1.25 and min(waits) > 0.3
    assert next(iter(settings.networking.error_backoffs)) < 1, "each reading begins anew"


def raw(kind: Kind, name: str, version: int = 1, **meta: Any) -> dict[str, Any]:
    known = {"namespace": "shop", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": known | meta}


async def send(operator: Operator, kind: Kind, obj: dict[str, Any], type_: str | None = "ADDED") -> None:
    """As kopf calls the handler that is registered for the kind."""
    handlers = shell.registry(operator)._watching.get_all_handlers()
    (handler,) = [h for h in handlers if h.selector is not None and h.selector.check(resource(kind))]
    await handler.fn(body=kopf.Body(obj), type=type_, name="", logger=None)


async def queued(operator: Operator) -> list[str]:
    """All keys that wait to be worked on."""
    found = []
    while operator.parts.queue.waiting:
        found.append(await operator.parts.queue.take())
        operator.parts.queue.done(found[-1])
    return found


@pytest.mark.parametrize("type_", [None, "ADDED", "MODIFIED"])
async def test_an_event_puts_the_object_into_the_store_and_its_key_into_the_queue(
    operator: Operator, type_: str | None
):
    await send(operator, LLM_SERVICES, raw(LLM_SERVICES, "chat"), type_)
    held = operator.parts.store.get(LLM_SERVICES, "shop", "chat")
    assert held is not None and held["metadata"]["uid"] == "uid-chat"
    assert await queued(operator) == ["shop/chat"]


@pytest.mark.parametrize("kind", [DEPLOYMENTS, REPLICASETS, PODS, PDBS, SERVICES], ids=lambda kind: kind.plural)
async def test_a_child_queues_the_service_that_it_belongs_to(operator: Operator, kind: Kind):
    await send(operator, kind, raw(kind, "chat-v1", labels={names.SERVICE: "chat"}))
    assert await queued(operator) == ["shop/chat"]


async def test_a_deletion_removes_the_object_and_queues_its_service(operator: Operator):
    pod = raw(PODS, "chat-v1-x", labels={names.SERVICE: "chat"})
    await send(operator, PODS, pod)
    await queued(operator)
    await send(operator, PODS, raw(PODS, "chat-v1-x", 2, labels={names.SERVICE: "chat"}), "DELETED")
    assert operator.parts.store.get(PODS, "shop", "chat-v1-x") is None
    assert await queued(operator) == ["shop/chat"]


async def test_an_event_that_is_no_news_queues_nothing(operator: Operator):
    await send(operator, LLM_SERVICES, raw(LLM_SERVICES, "chat", 5))
    await queued(operator)
    for version in (5, 4):
        await send(operator, LLM_SERVICES, raw(LLM_SERVICES, "chat", version), "MODIFIED")
    assert await queued(operator) == []


@pytest.mark.parametrize("kind", [SERVICES, PDBS], ids=lambda kind: kind.plural)
@pytest.mark.parametrize("labels", [{}, {names.SERVICE: "a"}, {names.SERVICE: "nobody"}], ids=["none", "a", "nobody"])
async def test_somebody_s_own_object_queues_every_llmservice_of_its_namespace(
    operator: Operator, kind: Kind, labels: dict[str, str]
):
    """Whatever its labels are, which may be copied, and when it goes too."""
    for name, namespace in (("a", "shop"), ("b", "shop"), ("c", "other")):
        await send(operator, LLM_SERVICES, raw(LLM_SERVICES, name, namespace=namespace))
    await queued(operator)
    for type_ in ("ADDED", "DELETED"):
        await send(operator, kind, raw(kind, "front", labels=labels), type_)
        assert sorted({*await queued(operator)} - {"shop/nobody"}) == ["shop/a", "shop/b"]


async def test_what_belongs_to_no_llmservice_queues_nothing(operator: Operator):
    namespaces = next(kind for kind in KINDS if kind.plural == "namespaces")
    await send(operator, namespaces, raw(namespaces, "shop", namespace=None))
    await send(operator, PDBS, raw(PDBS, "another", labels={"app": "x"}))
    assert await queued(operator) == []


async def test_the_stored_object_is_a_copy_that_kopf_does_not_see(operator: Operator):
    original = raw(LLM_SERVICES, "chat")
    original["spec"] = {"list": [{"a": 1}]}
    await send(operator, LLM_SERVICES, original)
    held = operator.parts.store.get(LLM_SERVICES, "shop", "chat")
    assert held is not None and held["spec"] == original["spec"]
    held["spec"]["list"][0]["a"] = 2
    assert original["spec"] == {"list": [{"a": 1}]}


async def test_nothing_is_decided_before_the_first_list_is_in(operator: Operator):
    cluster: Any = operator.parts.cluster
    cluster.answers = False
    await send(operator, LLM_SERVICES, raw(LLM_SERVICES, "chat"))
    running = asyncio.create_task(operator.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert await queued(operator) == ["shop/chat"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def probed(operator: Operator) -> Any:
    """As kopf calls the one probe that is registered."""
    (probe,) = [h for h in shell.registry(operator)._activities.get_all_handlers() if str(h.activity) == "probe"]
    return probe.fn()


async def test_the_probe_fails_until_the_cluster_was_read_and_when_it_was_not_for_long(
    operator: Operator, hands: Hands
):
    with pytest.raises(kopf.TemporaryError, match="not been listed yet") as unlisted:
        await probed(operator)
    assert unlisted.value.delay == 1, "kopf's own pause would keep the pod NotReady for a minute"
    await operator.sweep()
    hands.seconds += 10 * STANDARD_PACE.sweep_seconds
    assert await probed(operator) == 10 * STANDARD_PACE.sweep_seconds
    hands.seconds += 1
    with pytest.raises(kopf.TemporaryError, match="s old"):
        await probed(operator)
