"""The admission policies as the API server compiles them; the rows of their decision table are in test_conformance.py.

Their life among commands and controllers is in test_locks.py.
"""

from cluster.harness import policies
from cluster.harness.kube import POLICIES, Kube, Object, eventually
from policy_table import TABLE


def test_policies_type_check(kube: Kube) -> None:
    """A misspelt field would otherwise show only as a refusal of everything, at the first use."""
    policies.install(kube)
    found = {item["metadata"]["name"] for item in kube.items(POLICIES)}
    ours = {name for name in found if name.startswith("tidegate-")}
    assert ours == {row.policy for row in TABLE}
    for name in ours:

        def checked(name: str = name) -> Object | None:
            status = kube.request("GET", f"{POLICIES}/{name}").get("status", {})
            return status if "typeChecking" in status else None

        assert eventually(f"type check of {name}", checked)["typeChecking"] == {}
