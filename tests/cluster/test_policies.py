"""The admission policies on a real API server: every row of the decision table, against objects that stand there.

Their life among commands and controllers is in test_locks.py.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from live_api import COLLECTIONS, POLICIES, Api, Object, eventually
from policy_table import TABLE, UID, Delete, Row

pytest_plugins = ["live_fixtures"]

FINALIZER = "tidegate.dev/test"


@dataclass(frozen=True, slots=True)
class Placed:
    """An object of the table as it stands in the API server."""

    path: str
    uid: str


def _own(given: Mapping[str, Any], row: Row) -> Object:
    """The object with a label of its own in every selector, so that no controller adopts another row's pods."""
    own = deepcopy(dict(given))
    mark = {"row": f"r{TABLE.index(row)}"}
    own["metadata"] |= {"name": f"row-{TABLE.index(row)}"} | ({"finalizers": [FINALIZER]} if row.terminating else {})
    if "template" in own["spec"]:
        own["spec"]["selector"]["matchLabels"] |= mark
        own["spec"]["template"]["metadata"]["labels"] |= mark
        own["metadata"]["labels"] |= mark
    return own


def _place(api: Api, namespace: str, row: Row) -> Placed:
    own = _own(row.given, row)
    status = own.pop("status", None)
    collection = COLLECTIONS[own["kind"]].format(namespace)
    stored = api.must("POST", collection, own)
    placed = Placed(f"{collection}/{stored['metadata']['name']}", stored["metadata"]["uid"])
    if status:
        # A DisruptionTarget older than two minutes is reset by the disruption controller, and no time at all is older.
        for condition in status.get("conditions", []):
            condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        api.must("PATCH", f"{placed.path}/status", {"status": status})
    if row.terminating:
        # As the garbage collector deletes: the one form that passes for every row.
        options = {"propagationPolicy": "Background", "preconditions": {"uid": placed.uid}}
        api.must("DELETE", placed.path, options)
        assert "deletionTimestamp" in api.must("GET", placed.path)["metadata"]
    return placed


def _send(api: Api, placed: Placed, row: Row) -> httpx.Response:
    if isinstance(row.request, Delete):
        options = json.loads(json.dumps(dict(row.request.options)).replace(UID, placed.uid))
        return api.call("DELETE", placed.path, options)
    path = f"{placed.path}/{row.request.subresource}" if row.request.subresource else placed.path
    return api.call("PATCH", path, row.request.body)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.policy}: {row.name}")
def test_table(live_api: Api, policed_namespace: str, row: Row) -> None:
    placed = _place(live_api, policed_namespace, row)
    try:
        answer = _send(live_api, placed, row)
        if row.refused is None:
            assert answer.is_success, answer.text
        else:
            assert answer.status_code == httpx.codes.FORBIDDEN, answer.text
            message = answer.json()["message"]
            assert f"'{row.policy}'" in message
            assert row.refused in message
    finally:
        if row.terminating:
            live_api.must("PATCH", placed.path, {"metadata": {"finalizers": None}})


def test_policies_type_check(live_api: Api, live_policies: None) -> None:
    """A misspelt field would otherwise show only as a refusal of everything, at the first use."""
    found = [
        item for item in live_api.must("GET", POLICIES)["items"] if item["metadata"]["name"].startswith("tidegate-")
    ]
    assert {item["metadata"]["name"] for item in found} == {row.policy for row in TABLE}
    for policy in found:
        name = policy["metadata"]["name"]
        eventually(
            f"type check of {name}",
            lambda name=name: "typeChecking" in live_api.must("GET", f"{POLICIES}/{name}").get("status", {}),
        )
        assert live_api.must("GET", f"{POLICIES}/{name}")["status"]["typeChecking"] == {}
