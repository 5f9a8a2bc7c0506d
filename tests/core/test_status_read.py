"""The status as the operator's memory: what is read is what was written, and damage costs its own row alone."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.stories import drained, draining, serving, several, story
from core.test_drain_times import learnt
from tidegate.api.conditions import ConditionType, DrainReason, Phase
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


def test_several_damages_in_one_part_are_left_out_together():
    damaged = {"gracePeriod": {"terms": [{"name": "a"}]}, "rollout": {"drained": "x", "cut": []}, "phase": "Odd"}
    assert LLMServiceStatus.read(WHOLE | damaged).rollout is not None


def test_a_reason_that_is_not_ours_is_somebody_s_own():
    (row,) = LLMServiceStatus.read({"pods": [{"name": "p", "state": "draining", "reason": ""}]}).pods
    assert row.reason is DrainReason.MANUAL


RUBBISH = st.sampled_from([None, 7, -1, 1.5, True, "", "odd", [], {}, [None], {"a": {}}, [[1]], [{"name": 7}]])


def places(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a document."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [found for key, value in inner for found in ((*at, key), *places(value, (*at, key)))]


@given(st.data())
def test_whatever_is_damaged_something_is_read(data: st.DataObject):
    document = deepcopy(WHOLE)
    for _ in range(data.draw(st.integers(1, 6))):
        *path, last = data.draw(st.sampled_from(places(document)))
        held = document
        for part in path:
            held = held[part]
        if data.draw(st.booleans()):
            held[last] = deepcopy(data.draw(RUBBISH))
        else:
            del held[last]
        if not places(document):
            break
    read = LLMServiceStatus.read(document)
    assert LLMServiceStatus.read(read.document()) == read
