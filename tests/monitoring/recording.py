"""Scrapes of a simulated operator, as series over which promtool runs the shipped rules, their durations included."""

import re
from pathlib import Path
from typing import Any

import yaml

from monitoring.shipped import METRIC, alerts, promtool, rules
from simulation.world import World

EVERY = 15
"""Seconds between two scrapes, and between two evaluations."""
USED = frozenset(name for rule in alerts() for name in METRIC.findall(rule["expr"]))
Series = tuple[str, tuple[tuple[str, str], ...]]


class Recording:
    """What Prometheus would have scraped since this was made; its times count from there, as promtool's do."""

    def __init__(self, world: World) -> None:
        self._world, self._began = world, world.loop.now()
        self._scrapes: list[dict[Series, float]] = []

    @property
    def seconds(self) -> int:
        """Time of the last scrape."""
        return (len(self._scrapes) - 1) * EVERY

    def run(self, seconds: float) -> None:
        """Let time pass and scrape."""
        for _ in range(int(seconds / EVERY)):
            self._scrapes.append(self._scrape())
            self._world.run(EVERY)

    def _scrape(self) -> dict[Series, float]:
        operator = self._world.operator
        if operator is None:
            return {}
        # The target's labels: each operator process is a pod of its own.
        target = ("instance", f"operator-{self._world.deaths}")
        samples = (s for family in operator.metrics.registry.collect() for s in family.samples if s.name in USED)
        return {(s.name, (target, *sorted(s.labels.items()))): self._moved(s.name, s.value) for s in samples}

    def _moved(self, name: str, value: float) -> float:
        return value - self._began if name.endswith("_timestamp_seconds") and value else value

    def fired(self, directory: Path, by: int | None = None) -> set[tuple[str, str]]:
        """(alert, service) of all that fired at any time up to a scrape, the last if none is given."""
        (directory / "rules.yaml").write_text(yaml.safe_dump(rules()))
        at = self.seconds if by is None else by
        every = f'count by (alertname, service) (count_over_time(ALERTS{{alertstate="firing"}}[{at + EVERY}s]))'
        test = {
            "interval": f"{EVERY}s",
            "input_series": [{"series": _named(key), "values": self._values(key)} for key in self._keys()],
            "promql_expr_test": [{"expr": every, "eval_time": f"{at}s", "exp_samples": _UNLIKELY}],
        }
        document = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{EVERY}s", "tests": [test]}
        (directory / "test.yaml").write_text(yaml.safe_dump(document, width=10**9))
        done = promtool("test", "rules", str(directory / "test.yaml"))
        said = done.stdout + done.stderr
        # It is made to differ, since promtool tells what it has got only where that is not what is expected.
        assert "exp:" in said and "got:" in said, said
        return {_alert(labels) for labels in re.findall(r"{([^}]*)}", said.partition("got:")[2])}

    def _keys(self) -> list[Series]:
        return sorted({key for scrape in self._scrapes for key in scrape})

    def _values(self, key: Series) -> str:
        """promtool's notation; what was there in the scrape before and is not any more is stale at once."""
        values, there = [], False
        for scrape in self._scrapes:
            values.append(repr(scrape[key]) if key in scrape else "stale" if there else "_")
            there = key in scrape
        return " ".join(values)


_UNLIKELY: list[dict[str, Any]] = [{"labels": '{alertname="NotOurs"}', "value": 0}]


def _named(key: Series) -> str:
    name, labels = key
    told = ",".join(f'{label}="{value}"' for label, value in labels)
    return f"{name}{{{told}}}"


def _alert(labels: str) -> tuple[str, str]:
    found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    return found["alertname"], found.get("service", "")
