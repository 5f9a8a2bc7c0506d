"""Every row of the decision table of the admission policies, as a row of this suite."""

import json
from collections.abc import Awaitable, Callable
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import policy_table
from conformance.kubernetes import Kubernetes, refused
from conformance.rows import Row, Rows
from policy_table import UID, Delete
from tidegate.api.errors import Denied
from tidegate.cluster.port import DEPLOYMENTS, PODS, REPLICASETS, Object

KINDS = {kind.kind: kind for kind in (PODS, DEPLOYMENTS, REPLICASETS)}
FINALIZER = "tidegate.dev/test"


async def place(k8s: Kubernetes, row: policy_table.Row) -> Object:
    """The object as the row gives it, with a label of its own in every selector: no controller shall adopt others'."""
    kind, own = KINDS[row.given["kind"]], deepcopy(dict(row.given))
    own["metadata"] |= {"name": k8s.name} | ({"finalizers": [FINALIZER]} if row.terminating else {})
    if "template" in own["spec"]:
        own["spec"]["selector"]["matchLabels"]["row"] = k8s.name
        own["spec"]["template"]["metadata"]["labels"]["row"] = k8s.name
        own["metadata"]["labels"]["row"] = k8s.name
    status = own.pop("status", None)
    placed = await k8s.create(kind, own)
    if status:
        # A DisruptionTarget older than two minutes is reset by the disruption controller, and no time at all is older.
        for condition in status.get("conditions", []):
            condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        placed = await k8s.merge(kind, k8s.name, {"status": status}, "status")
    if row.terminating:
        # As the garbage collector deletes: the one form that passes for every row.
        uid = placed["metadata"]["uid"]
        await k8s.delete(kind, k8s.name, propagationPolicy="Background", preconditions={"uid": uid})
        placed = await k8s.read(kind, k8s.name)
        assert "deletionTimestamp" in placed["metadata"]
    return placed


async def send(k8s: Kubernetes, placed: Object, row: policy_table.Row) -> object:
    """The row's request."""
    kind = KINDS[row.given["kind"]]
    if isinstance(row.request, Delete):
        text = json.dumps(dict(row.request.options)).replace(UID, placed["metadata"]["uid"])
        options: dict[str, Any] = json.loads(text)
        return await k8s.delete(kind, k8s.name, **options)
    return await k8s.merge(kind, k8s.name, row.request.body, row.request.subresource)


def _check(row: policy_table.Row) -> Callable[[Kubernetes], Awaitable[None]]:
    async def check(k8s: Kubernetes) -> None:
        placed = await place(k8s, row)
        try:
            if row.refused is None:
                await send(k8s, placed, row)
                return
            error = await refused(send(k8s, placed, row), Denied)
            assert f"'{row.policy}'" in str(error)
            assert row.refused in str(error)
        finally:
            if row.terminating:
                await k8s.merge(KINDS[row.given["kind"]], k8s.name, {"metadata": {"finalizers": None}})

    return check


def _sentence(row: policy_table.Row) -> str:
    return f"{row.policy}: {row.name} {'passes' if row.refused is None else 'is refused'}"


ROWS = Rows(Row(_sentence(row), ("cluster.locks:EXPECTED",), _check(row)) for row in policy_table.TABLE)
