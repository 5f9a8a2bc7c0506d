"""Whether the admission policies count as in force: there, bound, and bound by something that denies."""

from typing import Any, cast

import pytest

from tidegate.api.errors import Denied, NotFound, Unavailable
from tidegate.cluster.locks import EXPECTED, missing
from tidegate.cluster.port import POLICIES, Cluster, Kind, Object


class Held:
    """The two lists that are read."""

    def __init__(self, error: Exception | None = None) -> None:
        self.policies: list[Object] = [{"metadata": {"name": name}} for name in EXPECTED]
        self.bindings: list[dict[str, Any]] = [
            {"spec": {"policyName": name, "validationActions": ["Deny"]}} for name in EXPECTED
        ]
        self.error = error

    async def list(self, kind: Kind) -> tuple[list[Object], str]:
        if self.error is not None:
            raise self.error
        return (self.policies if kind is POLICIES else self.bindings), "1"


async def absent(held: Held) -> tuple[str, ...]:
    return await missing(cast(Cluster, held))


async def test_all_that_are_bound_and_deny_are_in_force():
    assert await absent(Held()) == ()


async def test_a_policy_that_is_gone_is_missing_though_its_binding_stands():
    held = Held()
    del held.policies[2]
    assert await absent(held) == (EXPECTED[2],)


async def test_a_policy_without_a_binding_is_missing():
    held = Held()
    del held.bindings[4]
    assert await absent(held) == (EXPECTED[4],)


@pytest.mark.parametrize("actions", [["Warn", "Audit"], [], None])
async def test_a_binding_that_does_not_deny_holds_nothing(actions: list[str] | None):
    held = Held()
    held.bindings[0]["spec"]["validationActions"] = actions
    assert await absent(held) == (EXPECTED[0],)


@pytest.mark.parametrize("error", [Denied("no verb"), NotFound("no such kind")])
async def test_what_cannot_be_read_counts_as_missing(error: Exception):
    assert await absent(Held(error)) == EXPECTED


async def test_an_api_server_that_does_not_answer_says_nothing_of_locks():
    with pytest.raises(Unavailable):
        await absent(Held(Unavailable("no answer")))
