"""The admission policies as the API server compiles them; the rows of their decision table are in test_conformance.py.

Their life among commands and controllers is in test_locks.py.
"""

from live_api import POLICIES, Api, eventually
from policy_table import TABLE

pytest_plugins = ["live_fixtures"]


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
