"""A real engine, unmodified, and real client libraries through the gateway: what each client itself sees."""

import pytest

from cluster.harness.engine import Clients, EngineService
from cluster.harness.kube import LLMSERVICES, eventually
from cluster.harness.operator import Operator
from cluster.harness.record import MakeRecord
from cluster.harness.service import Namespace
from cluster.test_evictions import evict

CLIENTS = {"openai", "openai-async", "langchain"}

# Their image alone, with the clients in it, takes as long as some ten other tests.
pytestmark = pytest.mark.long


@pytest.fixture
def engine() -> type[EngineService]:
    """llama.cpp's own server inside a Python process; lane_llama_server.py has the program that people run."""
    return EngineService


def test_every_answer_comes_whole_whatever_takes_the_pods(
    operator: Operator, namespace: Namespace, record: MakeRecord, engine: type[EngineService]
) -> None:
    """A new image, a scale-in, an eviction and the deletion of the whole service, one after the other."""
    service = engine(namespace, replicas=2).apply()
    service.wait_settled()
    watched = record(service.labels)
    clients = Clients(namespace, service.name, streams=2).start().wait_running(6)
    before = {pod["metadata"]["name"] for pod in service.pods()}

    service.apply(tag="v2")
    service.wait_settled()
    watched.catch_up()
    assert set(watched.drained_pods()) == before

    evicted = service.serving_pod()
    eventually("the budget lets one pod go", lambda: evict(namespace, evicted).is_success)
    eventually("the evicted pod is gone", lambda: evicted not in {p["metadata"]["name"] for p in service.pods()})
    service.wait_settled()

    service.scale(1)
    service.wait_settled()

    # The Service goes with it, so nothing new is begun; what runs then ends in place, by preStop alone.
    last = Clients(namespace, service.name, streams=2, tokens="400-400", options=("--total", "1"))
    clients.stop().assert_whole()
    last.start().wait_running(6)
    service.kubectl("delete", "llmservice", service.name, "--wait=false")
    last.wait_done().assert_whole()
    eventually(
        "it is gone", lambda: not namespace.kube.items(LLMSERVICES.format(namespace.name)) and not service.pods()
    )

    for result in (clients.result(), last.result()):
        assert {line["client"] for line in result.streams} == CLIENTS
        assert {line["finishReason"] for line in result.streams} == {"length"}


def test_an_answer_that_is_cut_is_an_error_of_each_client_and_carries_the_token(
    operator: Operator, namespace: Namespace, engine: type[EngineService]
) -> None:
    """The budget is spent long before such an answer would end: nobody takes it for whole."""
    service = engine(namespace, replicas=1, drain={"budgetSeconds": 6}).apply()
    service.wait_settled()
    clients = Clients(namespace, service.name, streams=1, tokens="8000-8000", options=("--total", "1"))
    clients.start().wait_running(3)
    service.apply(tag="v2")
    service.wait_settled()
    lines = clients.wait_done().streams

    assert {line["client"] for line in lines} == CLIENTS
    for line in lines:
        assert (line["result"], line["apiError"], line["status"]) == ("cut", True, None), line
        token = line["body"]
        assert (token["type"], token["code"]) == ("shutdown", "server_shutdown")
        assert token["requestId"] and token["resumeToken"]
        assert token["generatedTokens"] == line["tokens"] > 0
    (outcome,) = service.status["outcomes"]
    assert (outcome["outcome"], outcome["cut"]) == ("Expired", 3)
