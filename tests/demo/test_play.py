"""What the demo applies, when it takes a rollout for over, and how it ends."""

import argparse
import asyncio
import os
import signal
from typing import Any

import pytest
from dev.demolib import cli, installation, manifests
from dev.demolib.errors import DemoError
from dev.demolib.play import NEW, OLD, Act, Plan

from demo.lines import CLOCK, pod
from tidegate.api.resource import LLMService

PLAN = Plan(replicas=2, streams=4, seconds="1-2", settle=0.0, budget=60)


def test_the_service_is_one_that_the_operator_takes() -> None:
    service = manifests.llmservice(3, OLD, 60)
    service["metadata"]["namespace"] = manifests.NAMESPACE
    found = LLMService.model_validate(service)
    assert (found.spec.replicas, found.spec.drain.budget_seconds) == (3, 60)


def test_the_plain_deployment_is_the_same_but_for_who_drains() -> None:
    plain = manifests.deployment(3, OLD)["spec"]["template"]["spec"]["containers"][0]
    ours = manifests.llmservice(3, OLD, 60)["spec"]["template"]["spec"]["containers"][0]
    assert {key: plain[key] for key in ours} == ours
    assert set(plain) - set(ours) == {"readinessProbe", "env"}


def _act(*, plain: bool) -> Act:
    return Act(None, PLAN, "ns", plain=plain)  # type: ignore[arg-type]


@pytest.mark.parametrize("plain", [True, False])
async def test_a_rollout_is_over_when_only_new_pods_are_left_and_the_operator_says_so(plain: bool) -> None:
    act = _act(plain=plain)
    act.tally.list_pods([pod("a", tag=OLD), pod("b", tag=NEW), pod("c", tag=NEW)], 0, CLOCK)
    assert not act._over()
    act.tally.pod_gone("a", 1)
    assert act._over() is plain
    status = {"phase": "Stable", "rollout": {"finishedAt": "2026-11-29T20:00:00Z"}}
    act.tally.llmservice({"metadata": {"name": "chat"}, "status": status})
    assert act._over()
    act.tally.pod(pod("b", tag=NEW, ready=False), 2, CLOCK)
    assert not act._over()


async def test_what_does_not_come_about_is_told_with_the_pods_and_the_operator_s_words() -> None:
    act = _act(plain=False)
    act.tally.pod(pod("a", ready=False), 0, CLOCK)
    act.tally.llmservice({"metadata": {"name": "chat"}, "status": {"phase": "Stuck", "message": "no image"}})
    with pytest.raises(DemoError) as refused:
        await act._until(lambda: False, -1.0, "the first pods do not serve")
    assert str(refused.value) == (
        "the first pods do not serve after -1 s. Pods: a starting. The operator says: no image"
    )


class Cluster:
    """Namespaces and what is in them, by path; a namespace goes once it is deleted, unless it `stays`."""

    def __init__(self, *paths: str, stays: bool = False) -> None:
        self.paths = list(paths)
        self.deleted: list[str] = []
        self.stays = stays

    async def get(self, path: str) -> dict[str, Any] | None:
        return {"items": []} if path.endswith("/pods") else {} | ({"kind": "x"} if path in self.paths else {}) or None

    async def delete(self, path: str) -> None:
        self.deleted.append(path)
        if not self.stays:
            self.paths = [found for found in self.paths if found != path]


async def test_the_load_goes_first_and_the_namespace_last() -> None:
    cluster = Cluster("/api/v1/namespaces/ns")
    await installation.remove(cluster, ["ns"])  # type: ignore[arg-type]
    assert cluster.deleted[0] == "/api/v1/namespaces/ns/pods/load"
    assert cluster.deleted[-1] == "/api/v1/namespaces/ns"
    assert cluster.paths == []


async def test_a_namespace_that_stays_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "GONE_SECONDS", 0.0)
    with pytest.raises(DemoError, match="the namespaces ns are not gone"):
        await installation.remove(Cluster("/api/v1/namespaces/ns", stays=True), ["ns"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ends", "status", "says"),
    [
        (None, 0, ""),
        (DemoError("no cluster answers"), 2, "dev/demo: no cluster answers\n"),
        (asyncio.CancelledError(), 130, "dev/demo: interrupted\n"),
    ],
)
def test_the_exit_status_tells_how_it_ended(
    ends: BaseException | None,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def demo(console: object, options: argparse.Namespace, *, live: bool) -> int:
        assert not live
        if ends:
            raise ends
        return 0

    monkeypatch.setattr(cli, "_demo", demo)
    assert cli.main(["--lines"]) == status
    assert capsys.readouterr().err == says


def test_a_first_signal_cleans_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cleaned = []

    async def demo(console: object, options: argparse.Namespace, *, live: bool) -> int:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)
        return 0

    monkeypatch.setattr(cli, "_demo", demo)
    assert cli.main(["--lines"]) == 130
    assert cleaned == [True]
    assert "cleaning up; again to leave at once" in capsys.readouterr().err
