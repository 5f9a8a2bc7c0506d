"""Alerts and dashboard: whether Prometheus takes them, when they fire, and whether they speak of metrics there are."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from monitoring.shipped import CHECKOUT, METRIC, MONITORING, RUNBOOKS, alerts, dashboard, promtool, queries, rules
from tidegate.controller.queue import KeyedQueue
from tidegate.metrics.instruments import Metrics
from tidegate.metrics.services import _FAMILIES

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
HEADINGS = ("**Meaning.**", "**Impact.**", "**Diagnosis.**", "**Mitigation.**")
FINAL_WIDTH = 24


def exposed() -> dict[str, tuple[str, ...]]:
    """Every metric of ours with its labels."""
    found = {f"tidegate_{name}": labels for name, (_, labels) in _FAMILIES.items()}
    metrics = Metrics(KeyedQueue())
    for family in metrics.registry.collect():
        for suffix in SUFFIXES.get(family.type, ("",)):
            found.setdefault(family.name + suffix, ())
    return found


def test_prometheus_takes_the_rules(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rules()))
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_in_its_situation_and_in_no_other(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules()))
    shutil.copy(Path(__file__).parent / "alerts.yaml", tmp_path)
    done = promtool("test", "rules", str(tmp_path / "alerts.yaml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_is_tried() -> None:
    text = (Path(__file__).parent / "alerts.yaml").read_text()
    assert [rule["alert"] for rule in alerts() if rule["alert"] not in text] == []


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_each_alert_leads_to_a_runbook(rule: dict[str, Any]) -> None:
    page = RUNBOOKS / rule["annotations"]["runbook_url"].rpartition("/docs/how-to/runbooks/")[2]
    text = page.read_text()
    assert text.startswith(f"# {rule['alert']}\n")
    places = [text.find(heading) for heading in HEADINGS]
    assert -1 not in places and places == sorted(places), f"{page.name} lacks one of {HEADINGS}, or their order"
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"] and rule["annotations"]["description"]


def test_no_runbook_is_left_over() -> None:
    linked = {rule["annotations"]["runbook_url"].rpartition("/")[2] for rule in alerts()}
    assert {page.name for page in RUNBOOKS.iterdir()} == linked


def test_alerts_speak_of_metrics_there_are() -> None:
    used = {name for rule in alerts() for name in METRIC.findall(rule["expr"])}
    assert used and used <= exposed().keys()


def test_prometheus_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    records = [{"record": f"query:{number}", "expr": expr} for number, expr in enumerate(queries().values())]
    path = tmp_path / "queries.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))
    done = promtool("check", "rules", "--lint=none", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(records) > 20


def test_the_dashboard_speaks_of_metrics_there_are() -> None:
    text = " ".join(queries().values())
    text += " ".join(str(item.get("definition")) for item in dashboard()["templating"]["list"])
    assert set(METRIC.findall(text)) <= exposed().keys()


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= FINAL_WIDTH
        cells = {(x + place["x"], y + place["y"]) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
    assert all(p["datasource"]["uid"] == "${datasource}" for p in panels if p["type"] != "row")


def test_every_metric_is_documented_and_no_other() -> None:
    lines = (CHECKOUT / "docs/reference/metrics.md").read_text().splitlines()
    rows = [line.split("|") for line in lines if line.startswith("| `tidegate_")]
    said = {cells[1].strip().strip("`"): cells[2].replace("`", "").replace(",", " ").split() for cells in rows}
    names = {name.removesuffix("_bucket") for name in exposed() if not name.endswith(("_sum", "_count"))}
    assert set(said) == {name for name in names if name.startswith("tidegate_")}
    labels = {name: list(found) for name, found in exposed().items() if found}
    assert {name: said[name] for name in labels} == labels


def test_the_pod_monitor_finds_the_operator_s_port() -> None:
    monitor = yaml.safe_load((MONITORING / "podmonitor.yaml").read_text())
    pod = yaml.safe_load((CHECKOUT / "manifests/operator/deployment.yaml").read_text())["spec"]["template"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= pod["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in [port["name"] for port in pod["spec"]["containers"][0]["ports"]]
    assert endpoint["honorLabels"] is True
