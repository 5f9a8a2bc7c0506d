"""The patch that turns one status into another, as the simulated API server carries it out."""

from functools import reduce
from typing import Any

import pytest

from tidegate.api.errors import Conflict
from tidegate.controller.status_writer import status_patch
from tidegate.preview.patches import operate

HELD = {"phase": "Rolling", "serving": 2, "rollout": {"cut": 1}}
WANTED = {"phase": "Ready", "serving": 2, "message": "3 of 3 serve"}


def carried_out(service: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    return reduce(
        lambda at, step: operate(at, step["op"], tuple(step["path"].strip("/").split("/")), step.get("value")),
        patch,
        service,
    )


@pytest.mark.parametrize("held", [HELD, {}])
def test_it_ends_in_the_wanted_status(held: dict[str, Any]):
    service = {"metadata": {"uid": "u"}} | ({"status": held} if held else {})
    assert carried_out(service, status_patch("u", held, WANTED))["status"] == WANTED


@pytest.mark.parametrize("held", [HELD, {}])
def test_it_is_not_written_onto_the_next_service_of_the_same_name(held: dict[str, Any]):
    """Deleted and made anew between the read and the write, it has another uid and a status of its own."""
    successor = {"metadata": {"uid": "next"}, "status": HELD}
    with pytest.raises(Conflict, match="testing uid failed"):
        carried_out(successor, status_patch("u", held, WANTED))
