"""Each rule is declared once and checked in two places: as CEL in the CRD, and in Python.

The API server refuses an invalid resource at apply. The operator still meets resources that were stored under another
version of the CRD, and `tidegate` commands read files that no server has checked: they give the same messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError, core_schema

from tidegate.api.errors import InvalidSpec, Problem

VALIDATIONS = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field, or an object as a whole, must satisfy.

    In `Annotated` it is a rule of that field. In `Model.rules` it relates several fields, and `field` is the one that
    the refusal names. `holds` checks the parsed value; `cel` checks the same on `self`.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""
    message_expression: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        schema.setdefault(VALIDATIONS, []).append(self.as_validation())
        return schema

    def as_validation(self) -> dict[str, Any]:
        """The entry of `x-kubernetes-validations`."""
        validation = {"rule": self.cel, "message": self.message}
        if self.message_expression:
            validation["messageExpression"] = self.message_expression
        if self.field:
            validation["fieldPath"] = "." + self.field
        return validation

    def _checked(self, value: Any) -> Any:
        if not self.holds(value):
            raise PydanticCustomError("rule", "{message}", {"message": self.message})
        return value


def _with_rules(schema: dict[str, Any], model: type[BaseModel]) -> None:
    if issubclass(model, Model) and model.rules:
        schema[VALIDATIONS] = [rule.as_validation() for rule in model.rules]


class Model(BaseModel):
    """Base of every part of the resource: frozen, with camelCase names in JSON.

    Unknown fields are ignored and not refused, so that an older operator works with a newer CRD.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        json_schema_extra=_with_rules,
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, raw: Any) -> Any:
        """Null means absent, as for the API server, which drops most nulls but keeps those of server-side apply."""
        return {key: value for key, value in raw.items() if value is not None} if isinstance(raw, Mapping) else raw

    @classmethod
    def parse_at(cls, path: str, raw: Mapping[str, Any]) -> Self:
        """The model of `raw`; `path` is its path in the resource.

        Raises InvalidSpec with every problem found.
        """
        try:
            parsed = cls.model_validate(raw)
        except ValidationError as error:
            raise InvalidSpec(_problems(path, error.errors(include_url=False))) from None
        if problems := list(_broken(parsed, path)):
            raise InvalidSpec(problems)
        return parsed


def unknown_fields(model: type[BaseModel], raw: Mapping[str, Any]) -> list[Problem]:
    """Every field that `model` does not have, also in parts of it that accept other fields."""
    try:
        model.model_validate(raw, extra="forbid")
    except ValidationError as error:
        found = [e for e in error.errors(include_url=False) if e["type"] == "extra_forbidden"]
        return [_problem("", details) for details in found]
    return []


def _broken(model: Model, path: str) -> Iterator[Problem]:
    for rule in model.rules:
        if not rule.holds(model):
            yield Problem(f"{path}.{rule.field}".strip("."), rule.message)
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, Model):
            yield from _broken(value, f"{path}.{field.alias}")


_MESSAGES = {
    "missing": "is required: add it",
    "int_type": "must be a whole number without quotes",
    "bool_type": "must be true or false without quotes",
    "string_type": "must be a string: put it in quotes",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "enum": "must be {expected}",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} entry",
    "too_long": "must have at most {max_length} entries",
    "rule": "{message}",
    "extra_forbidden": "is not a field of LLMService: see `kubectl explain llmservice`",
}


DAY = 86_400
WEEK = 7 * DAY
"""In seconds: bounds that nobody reaches on purpose, so that a mistake such as milliseconds is refused."""


def matching(pattern: str, message: str) -> Rule:
    """A rule of a string: it matches `pattern` completely.

    `pattern` includes the anchors, and uses only syntax that RE2 and Python's `re` share.
    """
    return Rule(
        cel=f"self.matches(r'{pattern}')", message=message, holds=lambda text: bool(re.fullmatch(pattern, text))
    )


def bounded(default: int, low: int, high: int) -> Any:
    """An integer field with a default, a minimum and a maximum; strings and floats are refused."""
    return Field(default, ge=low, le=high, strict=True)


def _problems(path: str, errors: list[ErrorDetails]) -> list[Problem]:
    # pydantic also calls a list too short when its entries are invalid.
    inner = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    return [_problem(path, error) for error in errors if error["loc"] not in inner]


def _problem(path: str, details: ErrorDetails) -> Problem:
    field = path
    for part in details["loc"]:
        field += f"[{part}]" if isinstance(part, int) else f".{part}"
    text = _MESSAGES.get(details["type"])
    return Problem(field.strip("."), text.format(**details.get("ctx", {})) if text else details["msg"])
