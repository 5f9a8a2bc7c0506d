"""The load client as a pod: streams through the Service's address, each checked token by token, none retried."""

import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from .kube import PODS, Object, eventually
from .service import IMAGE, LOGS, Namespace

GRACE_SECONDS = 60
Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoadResult:
    """`summary` as the client counts, `streams` one line for each."""

    summary: Line
    streams: list[Line]

    @property
    def failures(self) -> list[Line]:
        return [line for line in self.streams if line["result"] != "complete"]

    def assert_whole(self) -> None:
        """Every stream that was begun came whole: all its tokens once and in order, the finish reason and the end."""
        s = self.summary
        assert s["started"] > 0, s
        assert not self.failures and s["complete"] == s["started"], f"{s}; {self.failures[:10]}"
        assert s["running"] == s["cut"] == s["refused"] == s["abandoned"] == 0, s
        assert all(line["tokens"] == line["expected"] for line in self.streams), s


@dataclass(slots=True)
class Load:
    """Streams to http://ClusterIP of a Service from `start` to `stop`, or as `options` of apps.load say otherwise.

    With `services` they go to these in turn. With `pod_ips` they go to these pods in turn and to no other, as those of
    a router that has chosen them.
    """

    namespace: Namespace
    service: str
    streams: int = 60
    seconds: str = "2-8"
    rate: float = 5
    options: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f"load-{secrets.token_hex(3)}")

    def container(self, urls: tuple[str, ...], out: str) -> Object:
        """The program that makes the streams and writes its lines to `out`."""
        arguments = [
            *(f"--url={url}" for url in urls),
            *("--streams", str(self.streams), "--seconds", self.seconds, "--rate", str(self.rate)),
            *("--progress", "1", "--out", out, *(() if self.pod_ips else ("--patience", "300")), *self.options),
        ]
        return {"image": f"{IMAGE}:v1", "command": ["python", "-m", "apps.load", *arguments]}

    def start(self) -> Self:
        pinned = tuple(f"http://{ip}:8000" for ip in self.pod_ips)
        services = self.services or (self.service,)
        urls = pinned or tuple(f"http://{self.namespace.cluster_ip(name)}:80" for name in services)
        container = {
            "name": "load",
            "imagePullPolicy": "IfNotPresent",
            # Most of the machine's work is here; a starved client holds fewer streams than it was told to.
            "resources": {"requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "logs", "mountPath": LOGS}],
        } | self.container(urls, f"{LOGS}/clients/{self.name}.jsonl")
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [container],
            "volumes": [{"name": "logs", "hostPath": {"path": str(self.namespace.directory), "type": "Directory"}}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name}, "spec": spec}
        answer = self.namespace.kube.call("POST", PODS.format(self.namespace.name), body)
        assert answer.is_success, answer.text
        return self

    def wait_running(self, streams: int | None = None) -> Self:
        """Wait until so many streams (absent: all) run at once."""
        wanted = self.streams if streams is None else streams

        def enough() -> bool:
            assert self._phase() not in ("Failed", "Succeeded"), f"the load has ended: {self._last('summary')}"
            return bool(self._last("progress").get("running", 0) >= wanted)

        eventually(f"{wanted} streams run at once: {self._last('progress')}", enough)
        return self

    def wait_done(self) -> LoadResult:
        """Wait until it ends by itself, as --total or --duration say."""
        eventually("the load ends", lambda: self._phase() in ("Succeeded", "Failed"))
        return self.result()

    def finish(self) -> LoadResult:
        """Of `lasting` streams: let each end whole and now, and return what there was. The test has seen enough."""

        def ended() -> bool:
            # Again and again: a stream that the client has counted may reach its pod after the first word.
            self.namespace.hurry(self._pods())
            return self._phase() not in ("Pending", "Running")

        eventually("the load ends when told to", ended)
        return self.result()

    def stop(self) -> LoadResult:
        """Start nothing more, let every running stream end, and return what there was."""
        path = f"{PODS.format(self.namespace.name)}/{self.name}"
        # Its preStop-less deletion is the client's SIGTERM; it goes when its last stream has ended.
        assert self.namespace.kube.call("DELETE", path).is_success
        eventually("the load has let its streams end", lambda: self.namespace.kube.get(path) is None)
        return self.result()

    def result(self) -> LoadResult:
        """What is written so far. Fails without a summary: a client that died proves nothing."""
        lines = self._lines()
        summary: Line = next((line["summary"] for line in lines if "summary" in line), {})
        assert summary, f"load {self.name} ended without a summary; its last lines: {lines[-3:]}"
        return LoadResult(summary, [line for line in lines if "result" in line])

    def _pods(self) -> list[str]:
        """Names of the pods that may hold a stream of it."""
        pods = self.namespace.pods(labelSelector="app=chat")
        wanted = [pod for pod in pods if not self.pod_ips or pod["status"].get("podIP") in self.pod_ips]
        return [str(pod["metadata"]["name"]) for pod in wanted]

    def _phase(self) -> str:
        pod: Object = self.namespace.kube.get(f"{PODS.format(self.namespace.name)}/{self.name}") or {}
        return str(pod.get("status", {}).get("phase", "Gone"))

    def _last(self, key: str) -> Line:
        return next((line[key] for line in reversed(self._lines()) if key in line), {})

    def _lines(self) -> list[Line]:
        path = self.namespace.directory / "clients" / f"{self.name}.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def lasting(namespace: Namespace, service: str, streams: int, pods: Iterable[Object] = ()) -> Load:
    """So many streams, each begun once, that last until `finish`: nothing that a test does meanwhile has to be quick.

    With `pods` they go to these in turn.
    """
    ips, options = tuple(str(pod["status"]["podIP"]) for pod in pods), ("--total", str(streams))
    return Load(namespace, service, streams=streams, seconds="1200", rate=0.5, options=options, pod_ips=ips)
