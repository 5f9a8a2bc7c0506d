"""The status as the operator's memory: what is read is what was written, and damage costs its own row alone."""

from typing import Any

import pytest

from core.stories import drained, draining, serving, several, story
from core.test_drain_times import learnt
from tidegate.api.conditions import ConditionType, Phase
from tidegate.api.status import NO_STATUS, LLMServiceStatus
from tidegate.core.planner.plan import plan
from tidegate.core.report.status import status

WHOLE = status(
    plan(
        story("v2", draining("v1-1"), drained("v1-2"), serving("v2-1"), *several("v1", 3)[2:], drain_times=learnt(9.0))
    )
).document()


def test_a_status_is_read_as_it_was_written():
    assert {"pods", "outcomes", "rollout", "drainTimes", "gracePeriod", "conditions"} <= set(WHOLE)
    assert LLMServiceStatus.read(WHOLE).document() == WHOLE


@pytest.mark.parametrize("stored", [None, {}, [], "rubbish", 7])
def test_where_there_is_none_nothing_is_known(stored: object):
    assert LLMServiceStatus.read(stored) == NO_STATUS


@pytest.mark.parametrize(
    ("damage", "lost"),
    [
        ({"pods": [{"name": "alone"}, *WHOLE["pods"]]}, {}),
        ({"outcomes": [*WHOLE["outcomes"], {"pod": "p", "outcome": "Levitated"}, 7, None]}, {}),
        ({"conditions": [{"type": "FromTheFuture", "status": "True"}, *WHOLE["conditions"]]}, {}),
        ({"serving": "many"}, {"serving"}),
        ({"phase": "Odd"}, {"phase"}),
        ({"rollout": "odd"}, {"rollout"}),
        ({"outcomes": {"pod": "p"}}, {"outcomes"}),
        ({"drainTimes": WHOLE["drainTimes"] | {"p50Seconds": []}}, {"drainTimes.p50Seconds"}),
        ({"gracePeriod": {"terms": []}}, {"gracePeriod"}),
        ({"later": 1}, {}),
    ],
)
def test_what_cannot_be_read_is_left_out_and_nothing_beside_it(damage: dict[str, Any], lost: set[str]):
    expected = LLMServiceStatus.read(WHOLE).document()
    for place in lost:
        first, _, inner = place.partition(".")
        if inner:
            expected[first] = {key: value for key, value in expected[first].items() if key != inner}
        else:
            del expected[first]
    found = LLMServiceStatus.read(WHOLE | damage)
    assert found.document() | {"phase": 0} == expected | {"phase": 0}
    assert found.phase is (Phase.PENDING if "phase" in lost else Phase(WHOLE["phase"]))


def test_reading_changes_nothing_in_what_is_stored():
    stored = WHOLE | {"outcomes": [{"pod": "p"}]}
    LLMServiceStatus.read(stored)
    assert stored["outcomes"] == [{"pod": "p"}]


def test_a_condition_is_found_by_its_type():
    read = LLMServiceStatus.read(WHOLE)
    assert read.condition(ConditionType.READY) is not None
    assert read.condition(ConditionType.LOCKS_MISSING) is None
