"""The CustomResourceDefinition, generated from the models.

Kubernetes accepts only *structural* schemas: every node has a type, there are no references and no
`additionalProperties: false`, and logical operators contain only validation. pydantic writes JSON Schema 2020-12.
`structural` rewrites it and refuses keywords that it does not know, which the API server would drop silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.api import names
from tidegate.api.resource import LLMService

JsonSchema = Mapping[str, Any]

_DROPPED = {"title", "default", "examples", "$defs", "anyOf", "const"}
_KEPT = (
    "description", "type", "nullable", "enum", "format", "pattern", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "required", "properties", "items", "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type", "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)  # fmt: skip


class NotStructuralError(TypeError):
    """A model uses a feature that has no structural form; the message names the field and the feature."""


def structural(schema: JsonSchema, definitions: JsonSchema, path: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """The structural form of `schema`, with every reference into `definitions` replaced by its definition.

    `path` is the path of the node, for messages; `seen` names the definitions that enclose it. Raises
    NotStructuralError.
    """
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name in seen:
            raise NotStructuralError(f"{path}: {name} contains itself; a structural schema cannot recurse")
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return structural({**definitions[name], **siblings}, definitions, path, (*seen, name))
    if "anyOf" in schema:
        return structural(_optional(schema, path), definitions, path, seen)
    if unknown := schema.keys() - _DROPPED - {*_KEPT, "additionalProperties"}:
        raise NotStructuralError(f"{path}: {', '.join(sorted(unknown))} has no structural form here; use a Rule")
    node = {key: schema[key] for key in _KEPT if key in schema}
    if isinstance(schema.get("default"), Mapping | list):
        # Server-side apply turns a part that has become empty into null, for example `rollout: {}` after it had keys,
        # and then refuses null as not an object (kubernetes/kubernetes#135841). Empty, null and absent mean the same.
        node["nullable"] = True
    if "const" in schema:
        node["enum"] = [schema["const"]]
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if schema.get("additionalProperties") is True:
        node["x-kubernetes-preserve-unknown-fields"] = True
    elif isinstance(schema.get("additionalProperties"), Mapping):
        raise NotStructuralError(f"{path}: a map of values; give its keys names")
    if "properties" in node:
        node["properties"] = {
            key: structural(child, definitions, f"{path}.{key}", seen) for key, child in node["properties"].items()
        }
    if "items" in node:
        node["items"] = structural(node["items"], definitions, f"{path}[]", seen)
    if "type" not in node and not node.get("x-kubernetes-int-or-string"):
        raise NotStructuralError(f"{path}: has no type")
    if not node.get("properties", True):
        del node["properties"]
    return node


def _optional(schema: JsonSchema, path: str) -> dict[str, Any]:
    """`X | None` is X: absent and null mean the same."""
    branches = [branch for branch in schema["anyOf"] if branch.get("type") != "null"]
    if len(branches) != 1:
        raise NotStructuralError(f"{path}: a union of several types; write it as optional siblings with a Rule")
    return {**branches[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


def _open_words(node: dict[str, Any]) -> None:
    """Turn enumerations of status into descriptions, and allow null for a value that is not known."""
    if words := node.pop("enum", None):
        node["description"] = f"{node.get('description', '')} One of {', '.join(words)}.".strip()
    for name, child in node.get("properties", {}).items():
        if name not in node.get("required", ()) and child["type"] not in ("object", "array"):
            child["nullable"] = True
        _open_words(child)
    if "items" in node:
        _open_words(node["items"])


def open_api_schema() -> dict[str, Any]:
    """The OpenAPI v3 schema of an LLMService."""
    raw = LLMService.model_json_schema(by_alias=True)
    schema = structural(raw, raw["$defs"], "")
    schema["properties"]["spec"]["properties"]["replicas"]["default"] = 1
    schema["properties"]["metadata"].pop("description")  # the API server has its own and takes no other
    _open_words(schema["properties"]["status"])
    schema["properties"]["status"].pop("required")
    return schema


def _column(name: str, json_path: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": json_path, **more}


def printer_columns() -> list[dict[str, Any]]:
    """The columns of `kubectl get`; those with priority 1 appear with `-o wide`."""
    return [
        _column("Phase", ".status.phase"),
        _column("Serving", ".status.serving", "integer"),
        _column("Updated", ".status.updated", "integer"),
        _column("Draining", ".status.draining", "integer"),
        _column("Revision", ".status.targetRevision"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Grace", ".status.gracePeriod.seconds", "integer", priority=1),
        _column("Cut", ".status.rollout.cut", "integer", priority=1),
        _column("Message", ".status.message", priority=1),
    ]


def custom_resource_definition() -> dict[str, Any]:
    """The complete CustomResourceDefinition."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.PLURAL}.{names.GROUP}"},
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.KIND.lower(),
                "shortNames": ["llm", "llms"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": open_api_schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": printer_columns(),
                }
            ],
        },
    }
