"""How the operator's figures are put together, from calls as the API server's audit log has them."""

from typing import Any

import pytest
from dev.operatorbench.figures import BETWEEN, FIRST, Figures, Usage, lowerings, moment, steps
from dev.operatorbench.report import page, shares

from cluster.harness.audit import Call
from tidegate.api import names


def _at(second: float) -> str:
    return f"2026-12-01T00:00:{second:09.6f}Z"


ZERO = moment(_at(0))


def _call(resource: str, begins: float, ends: float, released: str | None = None) -> Call:
    annotations = {} if released is None else {names.RELEASED: released}
    entry: dict[str, Any] = {
        "auditID": "x",
        "verb": "patch",
        "user": {"username": "operator"},
        "objectRef": {"resource": resource},
        "requestReceivedTimestamp": _at(begins),
        "stageTimestamp": _at(ends),
        "requestObject": {"metadata": {"annotations": annotations}},
    }
    return Call.parse(entry)


def test_a_lowering_is_the_first_write_that_names_the_pod_as_released() -> None:
    writes = [
        _call("pods", 1, 1.5),
        _call("deployments", 2, 2.5, "uid-a"),
        _call("deployments", 3, 3.5, "uid-a,uid-b,uid-unknown"),
        _call("deployments", 4, 4.5),
    ]
    found = list(lowerings(writes, {"a": ZERO + 1, "b": ZERO + 2}, {"uid-a": "a", "uid-b": "b"}))
    assert found == [(ZERO + 1, pytest.approx(ZERO + 2.5)), (ZERO + 2, pytest.approx(ZERO + 3.5))]


def test_the_steps_add_up_to_the_time_from_the_seal_to_the_lowering() -> None:
    writes = [
        _call("pods", 0.5, 0.6),
        _call("pods", 1.25, 1.5),
        _call("llmservices/status", 2, 2.125),
        _call("deployments", 3, 3.5, "uid-a"),
        _call("pods", 9, 9.5),
    ]
    found = steps(writes, ZERO + 1, ZERO + 3.5)
    assert found[FIRST] == pytest.approx(0.25)
    assert {key: found[key] for key in ("pods", "llmservices/status", "deployments")} == {
        "pods": pytest.approx(0.25),
        "llmservices/status": pytest.approx(0.125),
        "deployments": pytest.approx(0.5),
    }
    assert sum(found.values()) == pytest.approx(2.5)
    assert found[BETWEEN] == pytest.approx(2.5 - 0.25 - 0.875)


def test_a_step_that_not_every_drain_has_counts_as_nothing_in_the_others() -> None:
    assert shares([{"a": 0.1}, {"a": 0.3, "b": 0.1}]) == "a 200 ms, b 50 ms"


def test_the_table_has_the_busiest_rollout_and_a_block_for_each_length_of_streams() -> None:
    def figures(lowering: float) -> Figures:
        return Figures([lowering, 2 * lowering], [{FIRST: lowering}], [0.97, 0.98], [3.5], [2.0], [1.5], 0)

    rolling = [Usage(60.0, 0.04), Usage(61.0, 0.09)]
    text = page("Kubernetes v1.34.4", {2: figures(0.05), 20: figures(0.07)}, Usage(55.0, 0.001), rolling)
    assert text.startswith("Kubernetes v1.34.4\n\n| figure | measured | aim |\n")
    first = (
        "| streams of 2 s: sealed to lowering accepted, n = 2 | median 75 ms, p99 100 ms, max 100 ms | p99 < 150 ms |"
    )
    assert first in text
    assert "| streams of 20 s: bound / rollout time, S 1.5 s, D 2.0 s | 0.97, 0.98 | 0.97 |" in text
    assert "| operator at rest | 55 MiB, 0.1% of a core | |" in text
    assert "| operator in a rollout | 61 MiB, 9.0% of a core | |" in text
