"""The policies' Python twins refuse nothing by themselves; the decision table itself is in test_conformance.py."""

import pytest

from conformance.policies import place, send
from policy_table import TABLE, Row
from simulation.kubernetes import SimulatedKubernetes
from tidegate.cluster.port import POLICY_BINDINGS


@pytest.mark.parametrize("row", [r for r in TABLE if r.refused], ids=lambda row: f"{row.policy}: {row.name}")
def test_nothing_is_refused_once_its_binding_is_gone(row: Row) -> None:
    k8s = SimulatedKubernetes()

    async def story() -> None:
        placed = await place(k8s, row)
        k8s.server.remove(POLICY_BINDINGS, k8s.server.get(POLICY_BINDINGS, "", row.policy))
        await send(k8s, placed, row)

    k8s.run(story())
