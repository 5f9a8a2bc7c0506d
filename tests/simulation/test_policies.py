"""How the simulation evaluates the stored policies; the decision table itself is in test_conformance.py."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from conformance.policies import place, send
from policy_table import POD_DELETE, TABLE, Row
from simulation.admission import KNOWN, shipped_policies
from simulation.kubernetes import SimulatedKubernetes
from tidegate.api.errors import Denied
from tidegate.cluster.port import POLICIES, POLICY_BINDINGS

ROWS = {row.name: row for row in TABLE if row.policy == POD_DELETE}
REFUSED, PASSES = ROWS["a serving pod by kubectl"], ROWS["a drained pod by kubectl"]
Edit = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize("row", [r for r in TABLE if r.refused], ids=lambda row: f"{row.policy}: {row.name}")
def test_nothing_is_refused_once_its_binding_is_gone(row: Row) -> None:
    k8s = SimulatedKubernetes()

    async def story() -> None:
        placed = await place(k8s, row)
        k8s.server.remove(POLICY_BINDINGS, k8s.server.get(POLICY_BINDINGS, "", row.policy))
        await send(k8s, placed, row)

    k8s.run(story())


def test_policies_hold_no_field_that_is_not_evaluated() -> None:
    specs = [item["spec"] for item in shipped_policies() if item["kind"] == "ValidatingAdmissionPolicy"]
    assert specs
    for spec in specs:
        constraints = spec["matchConstraints"]
        assert set(spec) <= KNOWN["spec"]
        assert spec["failurePolicy"] == "Fail"
        assert set(constraints) <= KNOWN["matchConstraints"]
        assert set(constraints.get("objectSelector", ())) <= KNOWN["objectSelector"]


def _answer(row: Row, edit: Edit) -> str:
    """What the simulation says to the row's request under an edited policy; nothing: it passes."""
    k8s, said = SimulatedKubernetes(), [""]

    async def story() -> None:
        placed = await place(k8s, row)
        policy = deepcopy(k8s.server.get(POLICIES, "", row.policy))
        edit(policy["spec"])
        k8s.server.replace(POLICIES, policy)
        try:
            await send(k8s, placed, row)
        except Denied as error:
            said.append(str(error))

    k8s.run(story())
    return said[-1]


def _validation(**fields: str) -> Edit:
    return lambda spec: spec["validations"][0].update(fields)


def _condition(expression: str) -> Edit:
    return lambda spec: spec.update(matchConditions=[{"name": "c", "expression": expression}])


def _variable(expression: str) -> Edit:
    return lambda spec: spec["variables"].append({"name": "unused", "expression": expression})


@pytest.mark.parametrize(
    ("row", "edit", "says"),
    [
        (REFUSED, _validation(expression="true"), ""),
        (REFUSED, _validation(expression="oldObject.metadata.name == 'other'"), "may hold requests"),
        (REFUSED, _validation(messageExpression="oldObject.spec.nothing"), "denied request: the pod may hold requests"),
        (REFUSED, _validation(messageExpression="' '"), "denied request: the pod may hold requests"),
        (REFUSED, _validation(expression="oldObject.spec.nothing == 1"), 'Key not found in map : "nothing"'),
        (REFUSED, _condition("object == null"), "may hold requests"),
        (REFUSED, _condition("request.operation == 'UPDATE'"), ""),
        (REFUSED, _condition("oldObject.spec.nothing"), 'Key not found in map : "nothing"'),
        (REFUSED, _variable("oldObject.spec.nothing"), "may hold requests"),
        (PASSES, _validation(expression="false"), ""),
    ],
    ids=[
        "the stored expression decides",
        "an expression sees the object",
        "a message that fails",
        "a blank message",
        "an expression that fails refuses",
        "there is no new object in a deletion",
        "a condition that does not match",
        "a condition that fails refuses",
        "a variable that nothing uses is not evaluated",
        "an object that is not selected",
    ],
)
def test_the_stored_policy_is_what_is_evaluated(row: Row, edit: Edit, says: str) -> None:
    answer = _answer(row, edit)
    assert says in answer
    assert bool(answer) == bool(says)
