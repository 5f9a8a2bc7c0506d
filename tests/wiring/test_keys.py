"""Which drain keys are taken from a Secret, and which Services a withdrawn pod is waited for."""

import base64

import pytest

from tidegate.api import names
from tidegate.cluster.gather import withdrawing_services
from tidegate.cluster.keys import _decode
from tidegate.cluster.port import SERVICES
from tidegate.cluster.store import Store


def secret(**keys: bytes) -> dict[str, object]:
    return {"data": {name: base64.b64encode(value).decode() for name, value in keys.items()}}


def test_the_keys_come_in_their_order_without_the_white_space_around_them():
    assert _decode(secret(previous=b"old\n", current=b"new\n")) == ("new", "old")
    assert _decode(secret(current=b"new")) == ("new",)


@pytest.mark.parametrize("key", ["schlüssel".encode(), b"\xff\xfe", b"two\nlines", b"bell\x07", b"", b"  "])
def test_a_key_that_no_header_can_carry_is_none(key: bytes):
    assert _decode(secret(current=key)) == ()
    if key:
        assert _decode(secret(current=b"new", previous=key)) == ()


@pytest.mark.parametrize(
    ("selector", "waits"),
    [
        ({names.STATE: "serving", names.SERVICE: "chat"}, True),
        ({names.STATE: "serving", "app": "chat"}, True),
        ({names.STATE: "serving", names.SERVICE: "other"}, False),
        ({names.SERVICE: "chat"}, False),
        # To look at the draining ones: a pod comes into it when it is withdrawn.
        ({names.STATE: "draining", names.SERVICE: "chat"}, False),
    ],
)
def test_a_withdrawn_pod_is_waited_for_where_it_leaves(selector: dict[str, str], waits: bool):
    store = Store()
    meta = {"name": "front", "namespace": "shop", "uid": "u", "resourceVersion": "1"}
    store.put(SERVICES, {"metadata": meta, "spec": {"selector": selector}})
    assert withdrawing_services(store, "shop", "chat") == (["front"] if waits else [])
