"""Rollouts on the cluster, measured from the records of others."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from cluster.harness.audit import OPERATOR, Audit
from cluster.harness.kube import Kube, eventually
from cluster.harness.load import Load
from cluster.harness.operator import Operator
from cluster.harness.service import Namespace, Service
from tidegate.core.drain_time.bound import Drained, rollout_bound

from .figures import Figures, Usage, lowerings, moment, steps

PROPAGATION = 1


def version(kube: Kube) -> str:
    """Of Kubernetes."""
    return str(json.loads(kube.raw("version"))["gitVersion"])


@contextlib.contextmanager
def namespace(kube: Kube) -> Iterator[Namespace]:
    """A namespace with its directories on the nodes, while the block runs."""
    found = Namespace(kube, f"bench-{secrets.token_hex(4)}")
    for directory in (found.directory, found.directory / "pods", found.directory / "clients"):
        directory.mkdir()
        directory.chmod(0o1777)
    kube.must("create", "namespace", found.name)
    try:
        yield found
    finally:
        kube.must("delete", "namespace", found.name, "--wait=false")
        eventually("the namespace is gone", lambda: kube.get(f"api/v1/namespaces/{found.name}") is None)
        shutil.rmtree(found.directory)


def measure(space: Namespace, operator: Operator, replicas: int, rounds: int, seconds: int) -> tuple[Figures, Usage]:
    """`rounds` rollouts under streams of `seconds` seconds, and what the operator used in them."""
    service = Service(space, replicas=replicas).apply()
    service.wait_settled()
    load = Load(space, service.name, streams=8 * replicas, seconds=f"{seconds}-{seconds}").start().wait_running()
    figures = Figures()
    before = _cpu_seconds(operator), time.monotonic()
    for number in range(rounds):
        service.wait_busy()
        audit = Audit(space.kube.audit_log)
        service.apply(tag=f"v{number % 4 + 2}")
        service.wait_settled()
        _note(figures, space, service, audit, replicas)
    used = Usage(_rss(operator), (_cpu_seconds(operator) - before[0]) / (time.monotonic() - before[1]))
    summary = load.stop().summary
    figures.cut = summary["cut"] + summary["refused"]
    return figures, used


def usage(operator: Operator, seconds: float) -> Usage:
    """Over the next `seconds` seconds."""
    before = _cpu_seconds(operator)
    time.sleep(seconds)
    return Usage(_rss(operator), (_cpu_seconds(operator) - before) / seconds)


def _note(figures: Figures, space: Namespace, service: Service, audit: Audit, replicas: int) -> None:
    rollout = service.status["rollout"]
    took = moment(rollout["finishedAt"]) - moment(rollout["startedAt"])
    drained = Drained(rollout["drained"], rollout["drainSeconds"], rollout["longestDrainSeconds"])
    figures.ratios.append(rollout_bound(rollout["startSeconds"], PROPAGATION, drained, 1) / took)
    figures.drains.append(rollout["drainSeconds"] / max(rollout["drained"], 1))
    figures.starts.append(rollout["startSeconds"])
    quiet = ("events", "llmservices/status", "configmaps")
    everything = audit.writes(space.name, user=OPERATOR)
    writes = [c for c in everything if c.resource not in quiet]
    figures.writes.append(len(writes) / replicas)
    seals = {line["pod"]: line["at"] for line in space.logs.find("sealed")}
    uids = {c.entry["responseObject"]["metadata"]["uid"]: c.name for c in writes if c.resource == "pods"}
    for seal, lowered in lowerings(writes, seals, uids):
        figures.lowering.append(lowered - seal)
        figures.steps.append(steps(everything, seal, lowered))


def _cpu_seconds(operator: Operator) -> float:
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for pid in operator.processes():
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / ticks
    return total


def _rss(operator: Operator) -> float:
    found = 0.0
    for pid in operator.processes():
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                found += int(line.split()[1]) / 1024
    return found
