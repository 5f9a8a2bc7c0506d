"""The demo's access to the API server, over an HTTP transport of the test's."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from dev.demolib import api as access
from dev.demolib.api import Api
from dev.demolib.errors import DemoError

Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "PAUSE_SECONDS", 0.0)


def _api(answer: Answer) -> Api:
    return Api(httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://localhost"))


def _answers(*answers: httpx.Response) -> Answer:
    left = iter(answers)
    return lambda request: next(left)


async def test_nothing_there_is_none_and_an_api_server_that_is_not_ready_is_asked_again() -> None:
    found = httpx.Response(200, json={"kind": "Pod"})
    api = _api(_answers(httpx.Response(503), httpx.Response(429), found, httpx.Response(404)))
    assert await api.get("/a") == {"kind": "Pod"}
    assert await api.get("/a") is None


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (httpx.Response(422, json={"message": "spec.port: too high"}), "PATCH /a: 422 spec.port: too high"),
        (httpx.Response(500, text="broken"), "PATCH /a: 500 broken"),
        (httpx.Response(200, json=[]), "PATCH /a: 200"),
    ],
)
async def test_a_refusal_is_passed_on_in_the_api_server_s_words(response: httpx.Response, says: str) -> None:
    with pytest.raises(DemoError, match=says):
        await _api(_answers(response)).apply("/a", {})


async def test_an_apply_is_server_side_and_forces() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    await _api(answer).apply("/a", {"kind": "Pod"})
    (request,) = seen
    assert (request.method, request.url.params["force"]) == ("PATCH", "true")
    assert request.headers["content-type"] == "application/apply-patch+yaml"
    assert json.loads(request.content) == {"kind": "Pod"}


@pytest.mark.parametrize(("status", "passes"), [(200, True), (404, True), (409, True), (403, False)])
async def test_a_deletion_of_nothing_is_well(status: int, passes: bool) -> None:
    deletion = _api(_answers(httpx.Response(status, json={}))).delete("/a")
    if passes:
        await deletion
    else:
        with pytest.raises(DemoError):
            await deletion


async def test_a_watch_lists_again_when_it_was_interrupted() -> None:
    def listed(version: str) -> httpx.Response:
        return httpx.Response(200, json={"items": [version], "metadata": {"resourceVersion": version}})

    def events(*found: dict[str, Any]) -> httpx.Response:
        return httpx.Response(200, text="".join(json.dumps(event) + "\n" for event in found))

    added = {"type": "ADDED", "object": "pod"}
    expired = {"type": "ERROR", "object": {"code": 410}}
    api = _api(_answers(listed("1"), events(added, expired, added), listed("2"), events(added)))
    seen = []
    async for event in api.watch("/pods"):
        seen.append(event)
        if len(seen) == 4:
            break
    assert seen == [("LIST", ["1"]), ("ADDED", "pod"), ("LIST", ["2"]), ("ADDED", "pod")]


async def test_a_log_ends_with_its_container_and_with_its_connection() -> None:
    def broken(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone", request=request)

    assert [line async for line in _api(_answers(httpx.Response(200, text="a\n\nb\n"))).log("ns", "p")] == ["a", "b"]
    assert [line async for line in _api(_answers(httpx.Response(404))).log("ns", "p")] == []
    assert [line async for line in _api(broken).log("ns", "p")] == []


async def test_kubectl_s_own_words_are_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    cluster = tmp_path / "cluster"
    cluster.write_text('#!/bin/sh\ntest "$2" = get && { echo found; exit; }\necho "no such verb: $2" >&2\nexit 1\n')
    cluster.chmod(0o755)
    monkeypatch.setattr(access, "CLUSTER", cluster)
    assert await access.kubectl("get") == "found\n"
    with pytest.raises(DemoError, match="`kubectl break it` failed: no such verb: break"):
        await access.kubectl("break", "it")


async def test_kubectl_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    cluster = tmp_path / "cluster"
    cluster.write_text("#!/bin/sh\nexec sleep 600\n")
    cluster.chmod(0o755)
    monkeypatch.setattr(access, "CLUSTER", cluster)
    monkeypatch.setattr(access, "KUBECTL_SECONDS", 0.0)
    before = len(asyncio.all_tasks())
    with pytest.raises(DemoError, match="took more than 0 s"):
        await access.kubectl("get")
    assert len(asyncio.all_tasks()) == before


def test_the_image_of_a_pod_is_its_first_container_s_tag() -> None:
    assert access.image_of({"spec": {"containers": [{"image": "registry:5000/app:v2"}, {"image": "b:v1"}]}}) == "v2"
