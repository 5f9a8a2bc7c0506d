"""The CustomResourceDefinition: structural by Kubernetes' rules, bounded, and the same as the file in crds/."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field

from refusal_table import REFUSALS
from tidegate.__main__ import main
from tidegate.api.conditions import ConditionStatus, ConditionType, Phase, Reason
from tidegate.api.rules import Model
from tidegate.api.schema import NotStructuralError, custom_resource_definition, open_api_schema, structural
from tidegate.api.status import Condition, GracePeriod, LLMServiceStatus

ROOT = Path(__file__).parents[2]
FILE = ROOT / "crds" / "tidegate.dev_llmservices.yaml"
REFERENCE = ROOT / "docs" / "reference" / "llmservice.md"

Node = dict[str, Any]
KEYWORDS = {
    "description", "type", "nullable", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "required", "properties", "items", "default", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
}  # fmt: skip


def nodes(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")


def faults(path: str, node: Node) -> Iterator[str]:
    """What Kubernetes would refuse in this node, or drop in silence."""
    if unknown := node.keys() - KEYWORDS:
        yield f"{path}: {unknown} is no keyword of a structural schema that we use"
    if node.get("x-kubernetes-int-or-string"):
        if "type" in node:
            yield f"{path}: int-or-string has no type"
    elif node.get("type") not in {"object", "array", "string", "integer", "number", "boolean"}:
        yield f"{path}: type {node.get('type')}"
    if node.get("type") == "array" and "items" not in node:
        yield f"{path}: a list without items"
    if missing := set(node.get("required", ())) - node.get("properties", {}).keys():
        yield f"{path}: requires {missing}, which it does not have"
    if node.get("x-kubernetes-list-type") == "map":
        entry = node["items"]
        for key in node["x-kubernetes-list-map-keys"]:
            if key not in entry.get("required", ()) or entry["properties"][key].get("nullable"):
                yield f"{path}: list key {key} must be required and not nullable"
    for validation in node.get("x-kubernetes-validations", ()):
        if not validation.get("message") or "\n" in validation["message"]:
            yield f"{path}: a rule needs a message of one line"
        if not pointed_at(node, validation.get("fieldPath", "")):
            yield f"{path}: {validation['fieldPath']} is not there"


def pointed_at(node: Node, path: str) -> bool:
    for step in path.split(".")[1:]:
        if step not in node.get("properties", {}):
            return False
        node = node["properties"][step]
    return True


def walked_by_cel(node: Node) -> Iterator[tuple[str, Node]]:
    """What rules read: their own node if it is a value, and the lists and names of the template."""
    for path, child in nodes(node):
        if "x-kubernetes-validations" in child and "properties" not in child:
            yield path, child
    yield from nodes(node["properties"]["spec"]["properties"]["template"]["properties"]["spec"], "template.spec")


def test_every_node_is_structural():
    assert [fault for path, node in nodes(open_api_schema()) for fault in faults(path, node)] == []


def test_every_node_is_described():
    undescribed = [path for path, node in nodes(open_api_schema()) if not node.get("description")]
    # Kubernetes describes metadata itself; an entry's list is described where the list is, unless it is an object.
    assert undescribed == [".metadata", ".metadata.name"]


def test_replicas_has_the_only_default():
    assert [(path, node["default"]) for path, node in nodes(open_api_schema()) if "default" in node] == [
        (".spec.replicas", 1)
    ]


def nullable(node: Node) -> set[str]:
    return {path for path, child in nodes(node) if child.get("nullable")}


def test_a_part_that_means_nothing_when_empty_may_be_null():
    """Server-side apply of `rollout: {}` over keys of before makes a null, which the user never wrote.

    Where an empty part says something, as `probes.liveness: {}` does, null would not be the same, and is refused.
    """
    parts = {".service", ".rollout", ".drain.grace", ".drain.native", ".probes", ".gateway", ".disruption"}
    assert nullable(open_api_schema()["properties"]["spec"]) == parts | {
        ".gateway.resources", ".gateway.timeouts", ".gateway.routes",
    }  # fmt: skip


def test_every_number_of_the_spec_is_bounded():
    spec = open_api_schema()["properties"]["spec"]
    unbounded = [
        p for p, n in nodes(spec) if n.get("type") in ("integer", "number") and not {"minimum", "maximum"} <= n.keys()
    ]
    assert unbounded == []


def test_what_rules_read_is_bounded_so_that_their_cost_is():
    unbounded = [
        path
        for path, node in walked_by_cel(open_api_schema())
        if (node.get("type") == "array" and "maxItems" not in node)
        or ((node.get("type") == "string" or "x-kubernetes-int-or-string" in node) and "maxLength" not in node)
    ]
    assert unbounded == []


def test_only_the_template_keeps_what_the_schema_does_not_know():
    kept = {path for path, node in nodes(open_api_schema()) if node.get("x-kubernetes-preserve-unknown-fields")}
    assert kept == {
        f".spec.template{path}"
        for path in ("", ".metadata", ".spec", ".spec.containers[]", ".spec.containers[].ports[]")
    }


def test_status_enumerates_nothing_so_that_a_newer_operator_can_write_it():
    status = open_api_schema()["properties"]["status"]
    assert [path for path, node in nodes(status) if "enum" in node] == []
    assert "One of Pending, Ready, Rolling, Scaling, Paused, Stalled." in status["properties"]["phase"]["description"]


def test_every_rule_of_the_spec_has_a_spec_that_it_refuses():
    rules = {
        (path.removeprefix(".") + validation.get("fieldPath", ""), validation["message"])
        for path, node in nodes({"properties": {"spec": open_api_schema()["properties"]["spec"]}})
        for validation in node.get("x-kubernetes-validations", ())
    }
    tried = [(re.sub(r"\[\d+\]", "[]", row.at), row.says) for row in REFUSALS]
    untried = {(at, text) for at, text in rules if not any(at == field and says in text for field, says in tried)}
    assert untried == set() and len(rules) >= 20


def test_the_checker_itself_sees_what_is_wrong():
    broken: list[Node] = [
        {"type": "object", "additionalProperties": False},
        {"properties": {}},
        {"type": "array"},
        {"type": "string", "x-kubernetes-int-or-string": True},
        {"type": "object", "required": ["a"]},
        {"type": "object", "x-kubernetes-validations": [{"rule": "true"}]},
        {"type": "object", "x-kubernetes-validations": [{"rule": "true", "message": "m", "fieldPath": ".a"}]},
        {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    ]
    assert [len(list(faults("", node))) for node in broken] == [1] * len(broken)


class Inner(Model):
    """Inner."""

    word: str = "w"
    """Its word."""


class Word(StrEnum):
    """Words."""

    ONE = "One"


class Rewritten(Model):
    """What pydantic writes in another way than Kubernetes reads."""

    reference: Inner = Inner()
    """Said
    where it stands."""
    optional: int | None = None
    constant: Literal["x"] = "x"
    word: Word = Word.ONE
    several: tuple[Inner, ...] = ()


def test_what_pydantic_writes_is_rewritten():
    raw = Rewritten.model_json_schema(by_alias=True)
    inner = {"description": "Inner.", "type": "object"}
    inner["properties"] = {"word": {"description": "Its word.", "type": "string"}}
    assert structural(raw, raw["$defs"], "")["properties"] == {
        "reference": {**inner, "description": "Said where it stands.", "nullable": True},
        "optional": {"type": "integer"},
        "constant": {"type": "string", "enum": ["x"]},
        "word": {"description": "Words.", "type": "string", "enum": ["One"]},
        "several": {"type": "array", "items": inner, "nullable": True},
    }


class Tree(Model):
    """Contains itself."""

    branches: tuple[Tree, ...] = ()


class Union(Model):
    """Two types."""

    field: int | str


class Mapped(Model):
    """A map."""

    field: dict[str, int]


class Untyped(Model):
    """Anything."""

    field: Any


class Multiple(Model):
    """A keyword nobody has thought about here."""

    field: Annotated[int, Field(multiple_of=2)]


class Exclusive(Model):
    """A bound that Kubernetes writes differently."""

    field: Annotated[int, Field(gt=2)]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Tree, "contains itself"),
        (Union, ".field: a union"),
        (Mapped, ".field: a map"),
        (Untyped, ".field: has no type"),
        (Multiple, ".field: multipleOf"),
        (Exclusive, ".field: exclusiveMinimum"),
    ],
)
def test_what_has_no_structural_form_is_an_error_that_names_the_field(model: type[Model], says: str):
    raw = model.model_json_schema(by_alias=True)
    with pytest.raises(NotStructuralError, match=says.replace(".", r"\.")):
        structural(raw, raw.get("$defs", {}), "")


def test_the_file_in_the_repository_is_the_generated_one():
    assert yaml.safe_load(FILE.read_text()) == custom_resource_definition()
    assert main(["crd", "--check", "--output", str(FILE.parent), "--reference", str(REFERENCE)]) == 0


def test_a_written_file_passes_the_check_and_a_changed_or_missing_one_fails_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    reference = tmp_path / "docs" / "reference.md"
    arguments = ["crd", "--output", str(tmp_path), "--reference", str(reference)]
    assert main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err.count("is missing: run `tidegate crd --output crds") == 2
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    assert capsys.readouterr().err == ""
    written = tmp_path / FILE.name
    written.write_text(written.read_text().replace("maximum: 10000", "maximum: 10001"))
    assert main([*arguments, "--check"]) == 1
    assert f"{written} differs from the models: run `tidegate crd" in capsys.readouterr().err


def test_without_options_it_is_printed(capsys: pytest.CaptureFixture[str]):
    assert main(["crd"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == custom_resource_definition()


def test_the_console_script_loads_nothing_before_a_command_is_chosen():
    heavy = ("kopf", "kubernetes", "pydantic", "httpx", "yaml")
    code = f"import sys, tidegate.__main__; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "operator")},
    )
    assert found.stdout.strip() == "[]"


def test_a_status_document_leaves_out_what_is_not_known():
    ready = Condition(
        type=ConditionType.READY,
        status=ConditionStatus.TRUE,
        last_transition_time="2026-11-29T20:00:00Z",
        reason=Reason.AS_DESIRED,
        message="3 of 3 serve",
    )
    status = LLMServiceStatus(
        observed_generation=1, phase=Phase.READY, conditions=(ready,), grace_period=GracePeriod(seconds=140, terms=())
    )
    document = status.document()
    assert document["gracePeriod"] == {"seconds": 140, "terms": []}
    assert document["conditions"][0]["lastTransitionTime"] == "2026-11-29T20:00:00Z"
    assert "rollout" not in document and "targetRevision" not in document
    assert document.keys() <= open_api_schema()["properties"]["status"]["properties"].keys()
