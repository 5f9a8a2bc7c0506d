"""The decision table of the policies against their Python twins; tests/cluster runs it against the real ones."""

import json
from copy import deepcopy

import pytest

from policy_table import TABLE, UID, Delete, Row
from simulation.apiserver import Server, shipped_policies
from tidegate.api.errors import Denied
from tidegate.cluster.port import DEPLOYMENTS, PODS, POLICIES, POLICY_BINDINGS, REPLICASETS, Kind, Object

KINDS = {kind.kind: kind for kind in (PODS, DEPLOYMENTS, REPLICASETS)}


@pytest.fixture
def server() -> Server:
    made = Server(lambda: 1_767_225_600.0)
    for policy in shipped_policies():
        made.create(POLICIES if policy["kind"] == POLICIES.kind else POLICY_BINDINGS, policy)
    return made


def _place(server: Server, row: Row) -> tuple[Kind, Object]:
    kind, given = KINDS[row.given["kind"]], deepcopy(dict(row.given))
    given["metadata"] |= {"name": "row", "namespace": "prod"}
    if row.terminating:
        given["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return kind, server.create(kind, given)


def _send(server: Server, kind: Kind, placed: Object, row: Row) -> None:
    if isinstance(row.request, Delete):
        options = json.loads(json.dumps(dict(row.request.options)).replace(UID, placed["metadata"]["uid"]))
        server.delete(kind, "prod", "row", options)
    else:
        server.merge(kind, "prod", "row", row.request.body, row.request.subresource)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.policy}: {row.name}")
def test_table(server: Server, row: Row) -> None:
    kind, placed = _place(server, row)
    if row.refused is None:
        _send(server, kind, placed, row)
        return
    with pytest.raises(Denied) as caught:
        _send(server, kind, placed, row)
    assert f"'{row.policy}'" in str(caught.value)
    assert row.refused in str(caught.value)


@pytest.mark.parametrize("row", [r for r in TABLE if r.refused], ids=lambda row: f"{row.policy}: {row.name}")
def test_nothing_is_refused_once_its_binding_is_gone(server: Server, row: Row) -> None:
    kind, placed = _place(server, row)
    server.remove(POLICY_BINDINGS, server.get(POLICY_BINDINGS, "", row.policy))
    _send(server, kind, placed, row)
