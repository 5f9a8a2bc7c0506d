"""/metrics over real sockets, what the client counts of its calls, and addresses that cannot be had."""

import argparse
import asyncio
import socket
import urllib.request
from collections.abc import AsyncIterator

import pytest
from kubernetes.aio.client import ApiClient, Configuration
from prometheus_client.parser import text_string_to_metric_families

from apps.running import held_port
from tidegate.api.errors import CannotListen, ClusterError
from tidegate.cli.operator import _address
from tidegate.cluster.client import ApiCluster
from tidegate.cluster.port import LLM_SERVICES, PODS
from tidegate.controller.queue import KeyedQueue
from tidegate.metrics import endpoint
from tidegate.metrics.instruments import Metrics


def scrape(port: int) -> dict[str, float]:
    """Samples without labels, and the sums of those with."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


def test_a_scrape_is_answered_while_inside_and_not_after() -> None:
    queue = KeyedQueue()
    metrics = Metrics(queue)
    metrics.leads(True)
    metrics.list_failed()
    metrics.list_failed()
    metrics.passed("prod/chat", "ok", 0.02)
    metrics.passed("prod/chat", "fault", 0.02)
    queue.add("prod/chat")
    with held_port() as port:
        with endpoint.serving(metrics, ("127.0.0.1", port)):
            found = scrape(port)
        with pytest.raises(OSError, match="refused"):
            scrape(port)
    assert found["tidegate_operator_leader"] == found["tidegate_operator_info"] == 1
    assert found["tidegate_operator_failed_lists"] == 2
    assert found["tidegate_reconcile_total"] == found["tidegate_reconcile_seconds_count"] == 2
    assert found["tidegate_queue_keys"] == 1
    assert found["tidegate_queue_oldest_seconds"] >= 0
    assert found["process_resident_memory_bytes"] > 0
    assert not [name for name in found if name.endswith("_created")]


def test_nowhere_is_nowhere() -> None:
    with endpoint.serving(Metrics(KeyedQueue()), None):
        pass


def test_an_address_that_is_taken_is_one_sentence_with_the_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(CannotListen, match=rf"metrics on 127.0.0.1:{port}: .* with --metrics"),
            endpoint.serving(Metrics(KeyedQueue()), ("127.0.0.1", port)),
        ):
            pass


@pytest.mark.parametrize(
    ("text", "address"),
    [("0.0.0.0:8081", ("0.0.0.0", 8081)), ("[::]:9", ("::", 9)), ("localhost:65535", ("localhost", 65535)), ("", None)],
)
def test_addresses_as_the_command_takes_them(text: str, address: tuple[str, int] | None) -> None:
    assert _address(text) == address


@pytest.mark.parametrize("text", ["8081", ":8081", "here:", "here:0", "here:65536", "here:http"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"write HOST:PORT, for example"):
        _address(text)


def test_the_queue_tells_how_long_its_first_key_waits() -> None:
    async def run() -> None:
        queue = KeyedQueue()
        assert (queue.waiting, queue.oldest_seconds) == (0, 0.0)
        queue.add("prod/a")
        await asyncio.sleep(0.05)
        queue.add("prod/b")
        queue.add("prod/a")
        assert queue.waiting == 2
        assert queue.oldest_seconds >= 0.05
        first = await queue.take()
        assert (first, queue.waiting) == ("prod/a", 1)

    asyncio.run(run())


ANSWERS = {
    "GET /api/v1/pods": b'200 OK\r\nContent-Length: 12\r\n\r\n{"items":[]}',
    "GET /api/v1/namespaces/prod/pods/a": b"404 Not Found\r\nContent-Length: 0\r\n\r\n",
    "PATCH /apis/tidegate.dev/v1alpha1/namespaces/prod/llmservices/chat/status": b"500 No\r\nContent-Length: 0\r\n\r\n",
    "DELETE /api/v1/namespaces/prod/pods/a": b"",
}


@pytest.fixture
async def server() -> AsyncIterator[int]:
    """Answers each call once as written above; nothing written: it hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path, _ = head.split(" ", 2)
        said = ANSWERS[f"{method} {path.partition('?')[0]}"]
        writer.write(b"HTTP/1.1 " + said if said else b"")
        writer.close()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()


async def test_calls_are_counted_by_verb_resource_and_code(server: int) -> None:
    metrics = Metrics(KeyedQueue())
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server}"
    cluster = ApiCluster(ApiClient(configuration=configuration), metrics.called)
    try:
        await cluster.list(PODS)
        for call in (
            cluster.get(PODS, "prod", "a"),
            cluster.patch_status(LLM_SERVICES, "prod", "chat", []),
            cluster.delete(PODS, "prod", "a", uid="u"),
        ):
            with pytest.raises(ClusterError):
                await call
    finally:
        await cluster.close()
    (family,) = (f for f in metrics.registry.collect() if f.name == "tidegate_api_requests")
    seen = {tuple(s.labels[k] for k in ("verb", "resource", "code")): s.value for s in family.samples}
    assert seen == {
        ("list", "pods", "200"): 1,
        ("get", "pods", "404"): 1,
        ("patch", "llmservices/status", "500"): 1,
        ("delete", "pods", "none"): 1,
    }
