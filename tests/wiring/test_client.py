"""How the client reads an API server's answers: which error, with which fields, and when to come again."""

import json
from typing import Any

import pytest

from tidegate.api.errors import ClusterError, Conflict, Denied, NotFound, Rejected, Unavailable
from tidegate.cluster.client import _error

UNTYPED = "failed to create typed patch object (shop/chat-1; apps/v1, Kind=Deployment): "


def read(status: int, message: str = "no", headers: dict[str, str] | None = None, **details: Any) -> ClusterError:
    return _error(status, json.dumps({"message": message, "details": details}).encode(), headers)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, Denied),
        (403, Denied),
        (404, NotFound),
        (409, Conflict),
        (413, Rejected),
        (422, Rejected),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
def test_a_status_is_read_as_its_branch_of_errors_with_the_servers_words(status: int, kind: type[ClusterError]) -> None:
    error = read(status, "why not")
    assert type(error) is kind
    assert str(error) == "why not"


def test_an_invalid_object_names_its_fields() -> None:
    error = read(422, causes=[{"field": "spec.replicas", "message": "Invalid value", "reason": "FieldValueInvalid"}])
    assert isinstance(error, Rejected)
    assert error.causes == (("spec.replicas", "Invalid value"),)


def test_a_field_that_server_side_apply_cannot_type_is_invalid_though_the_status_is_500() -> None:
    error = read(500, UNTYPED + ".spec.template.spec.volumez: field not declared in schema")
    assert isinstance(error, Rejected)
    assert error.causes == (("spec.template.spec.volumez", "field not declared in schema"),)


def test_several_of_them_are_each_named_and_none_as_the_server_names_its_values() -> None:
    first = '.spec.template.spec.containers[name="c"].image: expected string, got &value.valueUnstructured{Value:7}'
    second = ".spec.template.spec.volumez: field not declared in schema"
    error = read(500, f"{UNTYPED}errors:\n  {first}\n  {second}")
    assert isinstance(error, Rejected)
    assert error.causes == (
        ('spec.template.spec.containers[name="c"].image', "expected string"),
        ("spec.template.spec.volumez", "field not declared in schema"),
    )


def test_another_500_is_no_fault_of_the_object() -> None:
    assert isinstance(read(500, "etcdserver: request timed out"), Unavailable)


@pytest.mark.parametrize(("told", "seconds"), [("7", 7.0), ("soon", None), (None, None)])
def test_the_servers_wish_when_to_come_again_is_kept_if_it_is_a_number(told: str | None, seconds: float | None) -> None:
    error = read(429, headers={} if told is None else {"Retry-After": told})
    assert isinstance(error, Unavailable)
    assert error.retry_after == seconds


@pytest.mark.parametrize("body", [b"", b"<html>", b'"text"', None])
def test_an_answer_that_is_no_status_document_is_read_by_its_number(body: bytes | None) -> None:
    error = _error(502, body, None)
    assert isinstance(error, Unavailable)
    assert str(error) == "HTTP 502"
