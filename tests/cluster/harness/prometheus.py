"""A real Prometheus beside the cluster: scrapes the operator as the shipped PodMonitor says, with the shipped rules."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml
from dev.devcluster import prometheus

from monitoring.shipped import MONITORING, rules

from .kube import PODS, Kube, Object, eventually

EVERY = "2s"
SOONER = "10s"
"""In place of what an alert has to last: five scrapes, so that those lost while a process gets no turn fire nothing."""


class Prometheus:
    """Ask it with PromQL; times are Unix seconds."""

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=30, trust_env=False)
        self.began = time.time()

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, **params: Any) -> Any:
        answer = self._http.get(f"/api/v1/{path}", params=params)
        assert answer.is_success, f"{path} {params}: {answer.text}"
        return answer.json()["data"]

    def is_up(self) -> bool:
        try:
            return self._http.get("/-/ready").is_success
        except httpx.TransportError:
            return False

    def query(self, expr: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """(labels, value) of each series of an instant vector, now or at a time."""
        found = self.get("query", query=expr, **({} if at is None else {"time": at}))["result"]
        return [(row["metric"], float(row["value"][1])) for row in found]

    def value(self, expr: str) -> float | None:
        found = self.query(expr)
        return found[0][1] if found else None

    def range(
        self, expr: str, start: float, end: float, step: float = 2
    ) -> list[tuple[dict[str, str], list[list[Any]]]]:
        """(labels, [[time, value], ...]) of each series between two times."""
        found = self.get("query_range", query=expr, start=start, end=end, step=step)["result"]
        return [(row["metric"], row["values"]) for row in found]

    def firing(self) -> set[tuple[str, str]]:
        """(alert, service) of what fires now; of the operator's own alerts the service is empty."""
        alerts = self.get("alerts")["alerts"]
        found = [alert["labels"] for alert in alerts if alert["state"] == "firing"]
        return {(labels["alertname"], labels.get("service", "")) for labels in found}

    def broken_rules(self) -> list[str]:
        """Rules that Prometheus could not evaluate."""
        found = [rule for group in self.get("rules")["groups"] for rule in group["rules"]]
        return [f"{rule['name']}: {rule.get('lastError')}" for rule in found if rule["health"] != "ok"]


@contextmanager
def running(directory: Path, kube: Kube, port: int) -> Iterator[Prometheus]:
    """Run one until the block ends; its data goes with `directory`."""
    (directory / "rules.yaml").write_text(yaml.safe_dump(_sooner(rules())))
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(_configuration()))
    (directory / "targets.json").write_text("[]")
    command = [
        *(str(prometheus.find("prometheus")), f"--config.file={directory}/prometheus.yaml"),
        *(f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
    ]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=directory)
    found, ended = Prometheus(f"http://127.0.0.1:{port}"), threading.Event()
    discovery = threading.Thread(target=_discover, args=(kube, directory / "targets.json", ended))

    def is_up() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        return found.is_up()

    discovery.start()
    try:
        eventually("Prometheus runs", is_up, 60)
        yield found
    finally:
        ended.set()
        discovery.join()
        found.close()
        process.terminate()
        process.wait(30)


def _discover(kube: Kube, path: Path, ended: threading.Event) -> None:
    """Keep the targets as the Prometheus Operator would: Debian's Prometheus is built without Kubernetes' discovery."""
    monitor = _monitor()
    (endpoint,) = monitor["podMetricsEndpoints"]
    selector = ",".join(f"{key}={value}" for key, value in monitor["selector"]["matchLabels"].items())
    written: list[Object] = []
    while not ended.wait(0.5):
        try:
            pods = kube.items(PODS.format(_namespace()), labelSelector=selector)
        except (httpx.TransportError, AssertionError):
            # Late or refused, as by an API server that is busy: asked again.
            continue
        targets = [target for pod in pods for target in _targets(pod, endpoint["port"])]
        if targets != written:
            path.with_suffix(".new").write_text(json.dumps(targets))
            path.with_suffix(".new").rename(path)
            written = targets


def _targets(pod: Object, port: str) -> Iterator[Object]:
    status, meta = pod.get("status") or {}, pod["metadata"]
    if not status.get("podIP") or status.get("phase") in ("Failed", "Succeeded"):
        return
    for container in pod["spec"]["containers"]:
        for declared in container.get("ports", ()):
            if declared.get("name") == port:
                labels = {"namespace": meta["namespace"], "pod": meta["name"], "container": container["name"]}
                yield {"targets": [f"{status['podIP']}:{declared['containerPort']}"], "labels": labels}


def _monitor() -> dict[str, Any]:
    return dict(yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())["spec"])


def _namespace() -> str:
    return str(yaml.safe_load((MONITORING / "kustomization.yaml").read_text())["namespace"])


def _sooner(shipped: dict[str, Any]) -> dict[str, Any]:
    """The very expressions, that fire after a shorter while; nothing else is changed."""
    for group in shipped["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = SOONER
    return shipped


def _configuration() -> dict[str, Any]:
    """What the Prometheus Operator makes of the PodMonitor, the discovery aside."""
    (endpoint,) = _monitor()["podMetricsEndpoints"]
    job = {
        "job_name": f"{_namespace()}/tidegate-operator",
        "honor_labels": endpoint["honorLabels"],
        "file_sd_configs": [{"files": ["targets.json"]}],
    }
    return {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [job],
    }
