"""What fits into a minute."""

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .graph import Graph

UNKNOWN_SECONDS = 3.0
"""Of a test file that the last whole run does not know."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One test file, and why: the way from the changed file, which is first, to the test, which is last."""

    file: str
    way: tuple[str, ...]
    seconds: float


def concerned(graph: Graph, changed: Iterable[str], seconds: Mapping[str, float]) -> list[Chosen]:
    """All tests that a change concerns, the nearest first. What lies below a changed conftest.py comes last."""
    found: dict[str, Chosen] = {}
    for file in changed:
        for test, way in graph.tests_of(file).items():
            chosen = Chosen(test, tuple(way), seconds.get(test, UNKNOWN_SECONDS))
            if test not in found or _far(chosen) < _far(found[test]):
                found[test] = chosen
    return sorted(found.values(), key=_far)


def _far(chosen: Chosen) -> tuple[bool, int, float, str]:
    return Path(chosen.way[0]).name == "conftest.py", len(chosen.way), chosen.seconds, chosen.file


def fitting(concerned: Iterable[Chosen], most: float) -> tuple[list[Chosen], list[Chosen]]:
    """Those that take `most` seconds together, and the rest. A test that has itself changed is never left out."""
    chosen: list[Chosen] = []
    rest: list[Chosen] = []
    spent = 0.0
    for each in concerned:
        if len(each.way) == 1 or spent + each.seconds <= most:
            chosen.append(each)
            spent += each.seconds
        else:
            rest.append(each)
    return chosen, rest


def recorded(report: Path) -> dict[str, float]:
    """Seconds by test file, of the JUnit report of a run; nothing when there was none."""
    if not report.exists():
        return {}
    seconds: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):
        seconds[f"{case.get('classname', '').replace('.', '/')}.py"] += float(case.get("time", "0"))
    return dict(seconds)
