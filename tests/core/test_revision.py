"""What makes a revision: exactly the listed fields as the user wrote them."""

import json
from typing import Any

import pytest

from core.stories import container, deployment, raw_spec
from tidegate.api.drain import Drain
from tidegate.api.resource import LLMServiceSpec, Rollout
from tidegate.api.schema import open_api_schema
from tidegate.core.planner import revision
from tidegate.core.state.snapshot import Deployment

IN = {
    "template", "container", "port", "probes", "engine", "drain.mode", "drain.native", "gateway", "rollout.restartedAt",
}  # fmt: skip


def fields() -> set[str]:
    """Every field of the spec, those of `drain` and `rollout` one by one."""
    found = set()
    for model, prefix in ((LLMServiceSpec, ""), (Drain, "drain."), (Rollout, "rollout.")):
        found |= {prefix + (f.alias or name) for name, f in model.model_fields.items()}
    return found - {"drain", "rollout"}


def edited(path: str, value: object) -> dict[str, Any]:
    """The spec with a value at `path`; values are only compared here, so any will do."""
    spec = raw_spec()
    parent, _, key = path.rpartition(".")
    (spec.setdefault(parent, {}) if parent else spec)[key] = value
    return spec


@pytest.mark.parametrize("path", sorted(fields()))
def test_a_field_rolls_pods_exactly_if_it_is_on_the_list(path: str):
    before, first, second = (revision.source(s) for s in (raw_spec(), edited(path, "x"), edited(path, "y")))
    assert (first != second) is (path in IN)
    assert (before != first) is (path in IN)


def test_the_list_names_fields_that_exist():
    assert fields() >= IN


def test_absent_stays_absent_so_a_new_default_rolls_nothing():
    assert json.loads(revision.source(raw_spec())) == {
        "drain": {"mode": "Native", "native": {"port": "admin"}},
        "port": "http",
        "template": {"spec": {"containers": [container()]}},
    }


@pytest.mark.parametrize("path", ["probes", "container", "rollout.restartedAt"])
def test_a_null_is_as_good_as_absent_as_it_is_to_kubernetes(path: str):
    assert revision.source(edited(path, None)) == revision.source(raw_spec())


def test_writing_a_default_down_is_a_change_of_what_the_user_wrote():
    assert revision.source(edited("drain.native.port", 9901)) != revision.source(edited("drain.native", {}))


@pytest.mark.parametrize("part", ["rollout", "drain"])
def test_a_part_that_is_null_or_empty_is_as_if_absent(part: str):
    bare = {k: v for k, v in raw_spec().items() if k != part}
    assert revision.source({**bare, part: None}) == revision.source({**bare, part: {}}) == revision.source(bare)


EMPTY = ("probes", "gateway", "gateway.resources", "gateway.timeouts", "drain.native")


@pytest.mark.parametrize(("path", "empty"), [*((path, {}) for path in EMPTY), ("gateway.routes", [])])
def test_a_part_that_became_null_and_then_empty_is_found_as_the_same_revision(path: str, empty: object):
    """As server-side apply stores one and the same file the first time and the second."""
    null, later = revision.source(edited(path, None)), revision.source(edited(path, empty))
    for held, wanted in ((null, later), (later, null)):
        kept = Deployment("chat-1", "u", "1", 1, held, 0.0)
        assert revision.find([kept], wanted) == kept


def test_the_parts_that_may_come_and_go_are_those_that_the_schema_lets_be_null():
    spec = open_api_schema()["properties"]["spec"]
    inner = {f"{part}.": spec["properties"][part] for part in ("drain", "gateway")}
    found = {
        path + name
        for path, part in {"": spec, **inner}.items()
        for name, child in part["properties"].items()
        if child.get("nullable")
    }
    of_no_revision = {"service", "rollout", "disruption", "drain.grace"}
    assert found - of_no_revision == {*EMPTY, "gateway.routes"}


def test_an_empty_part_that_says_something_is_another_revision():
    kept = Deployment("chat-1", "u", "1", 1, revision.source(raw_spec()), 0.0)
    labelled = raw_spec()
    labelled["template"] = {**labelled["template"], "metadata": {}}
    for wanted in (edited("probes.liveness", {}), labelled):
        assert revision.find([kept], revision.source(wanted)) is None


def test_the_source_is_canonical_whatever_the_order_of_keys():
    spec = raw_spec()
    turned = dict(reversed(spec.items()))
    turned["drain"] = dict(reversed(spec["drain"].items()))
    assert revision.source(turned) == revision.source(spec)
    assert " " not in revision.source(spec)


def test_a_revision_is_found_by_its_source_and_not_by_its_name():
    held = [deployment("v1", 3), deployment("v2", 0, name="any", revision="thing")]
    assert revision.find(held, revision.source(raw_spec("v2"))) is held[1]
    assert revision.find(held, revision.source(raw_spec("v3"))) is None


def test_a_source_in_another_spelling_is_found_as_well_and_rubbish_is_passed_over():
    wanted = revision.source(raw_spec("v1"))
    spaced = deployment("v1", 3, source=json.dumps(json.loads(wanted), indent=1))
    assert revision.find([deployment("x", 0, source="{"), deployment("y", 0, source=""), spaced], wanted) is spaced


def test_a_name_is_salted_when_another_source_has_it():
    first = revision.name_hash("s", [])
    assert len(first) == 10 and set(first) <= set("0123456789abcdef")
    second = revision.name_hash("s", [first])
    assert second not in (first, revision.name_hash("s", [first, second]))
    assert second == revision.name_hash("s", [first])
