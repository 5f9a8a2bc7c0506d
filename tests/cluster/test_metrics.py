"""A real Prometheus scrapes the operator: what it sees of a healthy rollout, and each shipped alert in its situation.

The rules are the shipped ones; only how long an alert has to last is shortened.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.harness import prometheus
from cluster.harness.kube import Kube, eventually
from cluster.harness.load import Load
from cluster.harness.nodes import vanish
from cluster.harness.operator import Operator
from cluster.harness.prometheus import Prometheus
from cluster.harness.service import Namespace, Service
from monitoring.shipped import METRIC, alerts, queries
from tidegate.api import names
from tidegate.api.conditions import PodState

ENDLESS = ("--total", "2")

# The alerts of the operator itself rest on the whole of it.
pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def watching(kube: Kube, operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus, from the first scrape of the operator on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = int(found.getsockname()[1])
    directory = tmp_path_factory.mktemp("prometheus")
    with prometheus.running(directory, kube, port) as made:
        eventually("the operator is scraped", lambda: made.value("tidegate_operator_leader") == 1)
        yield made


def draining(service: Service) -> list[str]:
    pods = service.namespace.pods(labelSelector=f"{service.labels},{names.STATE}={PodState.DRAINING}")
    return [str(pod["metadata"]["name"]) for pod in pods]


def test_a_healthy_rollout_is_shown_and_alerts_nobody(watching: Prometheus, namespace: Namespace) -> None:
    service = Service(namespace, replicas=2).apply()
    service.wait_settled()
    load = Load(namespace, service.name, streams=20, seconds="6-14").start().wait_running()
    began = time.time()
    service.apply(tag="v2")
    service.wait_settled()
    load.stop().assert_whole()
    mine = f'{{namespace="{namespace.name}",service="{service.name}"}}'
    drained = f"sum(tidegate_drains_total{mine})"
    eventually("the drains are scraped", lambda: watching.value(drained) == 2)
    shown = service.status
    # The last drain is scraped before the end of its rollout, which is another pass of the operator.
    took = f"tidegate_rollout_seconds{mine}"
    eventually("the end is scraped", lambda: watching.value(took) == shown["rollout"]["seconds"])
    ended = time.time()

    told = [labels for labels, _ in watching.range(f'ALERTS{{service=~"{service.name}|"}}', began, ended)]
    # A scrape lost on a busy machine makes the operator's own alerts pending at once: of those only what fires counts.
    ours = [labels for labels in told if labels.get("namespace") == namespace.name]
    operators = [labels for labels in told if "namespace" not in labels and labels["alertstate"] == "firing"]
    assert ours + operators == []
    assert watching.broken_rules() == []
    assert (
        watching.value(f'tidegate_drains_total{{outcome="Drained",reason="Rollout",namespace="{namespace.name}"}}') == 2
    )
    assert watching.value(f"tidegate_requests_cut_total{mine}") == 0
    assert watching.value(f"tidegate_rollout_bound_seconds{mine}") == shown["rollout"]["boundSeconds"]
    assert watching.value(f"tidegate_grace_period_seconds{mine}") == shown["gracePeriod"]["seconds"]
    assert watching.value(f'tidegate_pods{{state="serving",namespace="{namespace.name}"}}') == 2
    assert_drains_were_seen(watching, namespace, {row["pod"] for row in shown["outcomes"]}, began, ended)
    record(watching, namespace, began - 10, ended)


def assert_drains_were_seen(
    watching: Prometheus, namespace: Namespace, pods: set[str], began: float, ended: float
) -> None:
    """Of each drained pod: since when, until when, and a count of what it held that fell to nothing or nearly so."""
    where = f'{{namespace="{namespace.name}"}}'
    for metric in ("drain_started_timestamp_seconds", "drain_deadline_timestamp_seconds"):
        seen = {labels["pod"] for labels, _ in watching.range(f"tidegate_{metric}{where}", began, ended)}
        assert seen == pods, metric
    held = f"tidegate_pod_in_flight_requests{where} and on (pod) tidegate_drain_started_timestamp_seconds{where}"
    for labels, values in watching.range(held, began, ended):
        counts = [float(value) for _, value in values]
        assert max(counts) >= counts[-1], labels
    most = max(float(value) for _, values in watching.range(held, began, ended) for _, value in values)
    assert most >= 3


def record(watching: Prometheus, namespace: Namespace, began: float, ended: float) -> None:
    """With TIDEGATE_RECORD=FILE, what the dashboard's queries gave, for docs/img; see dev/plots/dashboard.py."""
    target = os.environ.get("TIDEGATE_RECORD")
    if target:
        found = {name: watching.range(expr, began, ended, 1) for name, expr in queries().items()}
        Path(target).write_text(json.dumps({"began": began, "ended": ended, "queries": found}))


def test_every_metric_that_rules_and_dashboard_name_is_really_scraped(watching: Prometheus) -> None:
    """What only a situation brings is left to the test of that situation."""
    text = " ".join([*queries().values(), *(rule["expr"] for rule in alerts())])
    scraped = set(watching.get("label/__name__/values"))
    sometimes = {"tidegate_reconcile_consecutive_failures", "tidegate_drain_estimate_seconds"}
    assert set(METRIC.findall(text)) - scraped <= sometimes


@pytest.mark.long
def test_drains_that_go_wrong_alert(watching: Prometheus, namespace: Namespace) -> None:
    """One service whose drain is held beyond its budget, one whose drain is cut by it, one whose pod goes meanwhile."""
    held = Service(namespace, "held", replicas=1, drain={"budgetSeconds": 4, "onExpiry": "Hold"}).apply()
    cut = Service(namespace, "cut", replicas=1, drain={"budgetSeconds": 4}).apply()
    gone = Service(namespace, "gone", replicas=1).apply()
    services = (held, cut, gone)
    for service in services:
        service.wait_settled()
        Load(namespace, service.name, streams=2, seconds="600", options=ENDLESS).start().wait_running()
    mine = {service.name for service in services}
    assert not {alert for alert in watching.firing() if alert[1] in mine}
    for service in services:
        service.apply(tag="v2")
    (name,) = eventually("a pod of gone drains", lambda: draining(gone))
    vanish(next(pod for pod in gone.pods() if pod["metadata"]["name"] == name), gone)
    wanted = {
        ("TidegateDrainStuck", "held"),
        ("TidegateRolloutStalled", "held"),
        ("TidegateBudgetTruncating", "cut"),
        ("TidegatePodVanished", "gone"),
    }
    eventually("each situation has its alert", lambda: wanted <= watching.firing())
    assert {alert for alert in watching.firing() if alert[1] in mine} == wanted
    stuck = watching.query(f'ALERTS{{alertname="TidegateDrainStuck",namespace="{namespace.name}"}}')
    assert [labels["pod"] for labels, _ in stuck] == draining(held)

    held.apply(drain={"budgetSeconds": 4})
    solved = {("TidegateDrainStuck", "held"), ("TidegateRolloutStalled", "held")}
    eventually("the held pod is let go and its alerts end", lambda: not solved & watching.firing())


@pytest.mark.long
def test_an_operator_that_cannot_work_alerts(watching: Prometheus, operator: Operator, namespace: Namespace) -> None:
    service = Service(namespace, replicas=1).apply()
    service.wait_settled()
    failing = ("TidegateServiceFailing", service.name)
    assert failing not in watching.firing()
    with operator.without_role():
        service.apply(tag="v2")
        eventually("the service's passes fail", lambda: failing in watching.firing())
        operator.stop()
        down = ("TidegateOperatorDown", "")
        eventually("no operator is seen", lambda: down in watching.firing())
        operator.start_unready()
        blind = ("TidegateOperatorNotReconciling", "")
        eventually("the operator cannot list", lambda: blind in watching.firing())
    operator.wait_running()
    service.wait_settled()
    eventually("all is well again", lambda: not {failing, down, blind} & watching.firing())
