"""Ports by number or by the name that a container gives them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from tidegate.api.rules import Rule


def _int_or_string(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise PydanticCustomError("int_or_string", "must be a number or a string")
    return value


IntOrString = Annotated[
    int | str,
    BeforeValidator(_int_or_string),
    WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": 63}),
]
"""A number or a string, as Kubernetes has it. The schema gives it no type, so its rules are CEL."""


def is_port_name(name: str) -> bool:
    """Whether Kubernetes accepts `name` as the name of a container port (an IANA service name)."""
    return bool(
        re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", name)
        and re.search("[a-z]", name)
        and "--" not in name
        and len(name) <= 15
    )


def is_port_number(number: int) -> bool:
    """Whether `number` can be a TCP port."""
    return 1 <= number <= 65_535


PortRef = Annotated[
    IntOrString,
    Rule(
        cel="type(self) == int ? self >= 1 && self <= 65535 : size(self) <= 15 && self.matches('[a-z]') && "
        "!self.contains('--') && self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        message="must be a port number from 1 to 65535 without quotes, or the name of a container port: at most 15 "
        "lower-case letters, digits and single '-', with at least one letter",
        holds=lambda port: is_port_number(port) if isinstance(port, int) else is_port_name(port),
    ),
]
