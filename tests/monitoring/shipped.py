"""manifests/monitoring as tests read it."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml
from dev.devcluster import prometheus

CHECKOUT = Path(__file__).resolve().parents[2]
MONITORING = CHECKOUT / "manifests/monitoring"
RUNBOOKS = CHECKOUT / "docs/how-to/runbooks"
METRIC = re.compile(r"\b(?:tidegate|process)_[a-z_]+\b")


def rules() -> dict[str, Any]:
    """A Prometheus rule file: what the PrometheusRule wraps."""
    return dict(yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"])


def alerts() -> list[dict[str, Any]]:
    return [rule for group in rules()["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return dict(json.loads((MONITORING / "dashboard.json").read_text()))


def queries() -> dict[str, str]:
    """The dashboard's queries by panel and reference, its variables set to all."""
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            found[f"{panel['title']} {target['refId']}"] = re.sub(r"\$(namespace|service)\b", ".*", target["expr"])
    return found


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(prometheus.find("promtool")), *arguments], capture_output=True, text=True, check=False)
