"""Label selectors mean what they mean to the API server."""

from typing import Any

import pytest

from tidegate.cluster.selectors import selects

POD = {"app": "chat", "tier": "gpu"}


def where(key: str, operator: str, *values: str) -> dict[str, Any]:
    expression: dict[str, Any] = {"key": key, "operator": operator}
    return {"matchExpressions": [expression | ({"values": list(values)} if values else {})]}


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (None, False),
        ({}, True),
        ({"matchLabels": {}, "matchExpressions": []}, True),
        ({"matchLabels": None, "matchExpressions": None}, True),
        ({"matchLabels": {"app": "chat"}}, True),
        ({"matchLabels": {"app": "chat", "tier": "cpu"}}, False),
        ({"matchLabels": {"zone": ""}}, False),
        (where("app", "In", "x", "chat"), True),
        (where("app", "In", "x"), False),
        (where("zone", "In", "x"), False),
        (where("app", "NotIn", "x"), True),
        (where("app", "NotIn", "x", "chat"), False),
        (where("zone", "NotIn", "x"), True),
        (where("app", "Exists"), True),
        (where("zone", "Exists"), False),
        (where("app", "DoesNotExist"), False),
        (where("zone", "DoesNotExist"), True),
        ({"matchLabels": {"app": "chat"}} | where("tier", "NotIn", "gpu"), False),
        ({"matchLabels": {"app": "x"}} | where("tier", "Exists"), False),
        ({"matchExpressions": [{"key": key, "operator": "Exists"} for key in ("app", "zone")]}, False),
        (where("app", "Of a later Kubernetes", "chat"), False),
    ],
)  # fmt: skip
def test_a_selector(selector: dict[str, Any] | None, selected: bool) -> None:
    assert selects(selector, POD) is selected
