"""The gateway's three limits: read from its options, per route, with the defaults that the API promises."""

import json
import re
from typing import Any

import pytest

from tidegate.api import gateway as api
from tidegate.gateway.timeouts import Profiles, Timeouts, parse_deadline, parse_routes

GENERAL = Timeouts(connect=2, idle=30, total=60)
EMBEDDINGS = {"pathPrefix": "/v1/embeddings", "timeouts": {"totalSeconds": 10}}


def test_a_route_takes_what_it_leaves_out_from_the_general_limits_and_the_longest_prefix_counts() -> None:
    text = json.dumps([EMBEDDINGS, {"pathPrefix": "/v1"}, {"pathPrefix": "/v1/batch", "timeouts": {"totalSeconds": 0}}])
    profiles = Profiles(GENERAL, parse_routes(text, GENERAL))
    assert profiles.of("/v1/embeddings") == Timeouts(connect=2, idle=30, total=10)
    assert profiles.of("/v1/batch/7").total == 0
    assert profiles.of("/v1/models") == GENERAL
    assert profiles.of("/other") == GENERAL


BAD: dict[str, tuple[Any, str]] = {
    "no list": ({"pathPrefix": "/v1"}, "routes: a JSON list is needed"),
    "no object": (["/v1"], "routes[0]: an object with pathPrefix and timeouts is needed"),
    "unknown field": ([EMBEDDINGS | {"path": "/"}], "routes[0]: an object with pathPrefix and timeouts is needed"),
    "relative path": ([{"pathPrefix": "v1"}], "routes[0].pathPrefix: a path that begins with / is needed"),
    "a query": (
        [{"pathPrefix": "/v1?x"}],
        "routes[0].pathPrefix: a path that begins with / is needed, without ? and # and what follows",
    ),
    "no float": (
        [{"pathPrefix": "/v1", "timeouts": {"totalSeconds": 10**400}}],
        "routes[0].timeouts.totalSeconds: a number of seconds is needed",
    ),
    "unknown limit": (
        [{"pathPrefix": "/v1", "timeouts": {"readSeconds": 1}}],
        "routes[0].timeouts: only connectSeconds, idleSeconds, totalSeconds are known",
    ),
    "no number": (
        [{"pathPrefix": "/v1", "timeouts": {"idleSeconds": True}}],
        "routes[0].timeouts.idleSeconds: a number of seconds is needed",
    ),
    "negative": ([{"pathPrefix": "/v1", "timeouts": {"idleSeconds": -1}}], "routes[0].timeouts: "),
    "twice": (
        [EMBEDDINGS, EMBEDDINGS | {"timeouts": {"totalSeconds": 20}}],
        "routes[1].pathPrefix: /v1/embeddings has an entry already; merge the two",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_route_is_refused_by_the_name_of_its_field(case: str) -> None:
    routes, message = BAD[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_routes(json.dumps(routes), GENERAL)


@pytest.mark.parametrize(("value", "seconds"), [(b"12.5", 12.5), (b"-1", -1), (b"1e3", 1000), (b"1e308", 1e9)])
def test_a_client_s_deadline_is_a_number_that_a_timer_can_count(value: bytes, seconds: float) -> None:
    assert parse_deadline(value) == seconds


@pytest.mark.parametrize("value", [b"1_0", b"nan", b"inf", b"", b".", b"1e", b"0x1", b"\xb2"])
def test_a_client_s_deadline_of_another_kind_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="a number of seconds"):
        parse_deadline(value)


def test_what_is_no_json_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match="routes: not JSON"):
        parse_routes("[", GENERAL)


def test_the_defaults_are_those_that_the_resource_promises() -> None:
    fields = api.Timeouts.model_fields
    promised = {
        name.removesuffix("_seconds"): float(str(field.description).rpartition("absent: ")[2].rstrip("."))
        for name, field in fields.items()
    }
    assert promised == {"connect": Timeouts().connect, "idle": Timeouts().idle, "total": Timeouts().total}
