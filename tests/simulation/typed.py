"""What server-side apply says to fields that a kind does not have, by the client library's models of the API."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.aio.client import models

from tidegate.api.errors import Rejected
from tidegate.cluster.port import DEPLOYMENTS, Kind

PRIMITIVES = {"str": "string", "int": "integer", "bool": "boolean"}
TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,)}
LIST, MAP = re.compile(r"List\[(.+)\]"), re.compile(r"Dict\[str, (.+)\]")
QUANTITIES = frozenset(("limits", "requests", "sizeLimit"))


def unknown(value: Any, model: str = "V1Deployment", at: str = "") -> Iterator[tuple[str, str]]:
    """(field, message) of what server-side apply cannot type, by the client library's models of the API."""
    of_list, of_map = LIST.fullmatch(model), MAP.fullmatch(model)
    if of_list and isinstance(value, list):
        for item in value:
            key = f'name="{item["name"]}"' if isinstance(item, Mapping) and "name" in item else ""
            yield from unknown(item, of_list[1], f"{at}[{key}]")
    elif of_map and isinstance(value, Mapping):
        for name, item in value.items():
            yield from unknown(item, of_map[1], f"{at}.{name}")
    elif model in TYPES:
        if not isinstance(value, TYPES[model]) or isinstance(value, bool) is not (model == "bool"):
            yield at.lstrip("."), f"expected {PRIMITIVES[model]}"
    elif isinstance(value, Mapping) and hasattr(models, model):
        kind = getattr(models, model)
        types = {kind.attribute_map[name]: inner for name, inner in kind.openapi_types.items()}
        for name, item in value.items():
            if name in QUANTITIES:
                continue
            if name in types:
                yield from unknown(item, types[name], f"{at}.{name}")
            else:
                yield f"{at}.{name}".lstrip("."), "field not declared in schema"


def must_be_typed(kind: Kind, body: Mapping[str, Any]) -> None:
    """Raises Rejected as server-side apply does for a Deployment before anything else is looked at."""
    causes = list(unknown(body)) if kind is DEPLOYMENTS else []
    if causes:
        raise Rejected(f"failed to create typed patch object: {causes}", causes)
