"""A conflict of the user's template with what Tidegate adds, and how ports of a template are read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """One conflict: field path, what is wrong, what to do."""

    field: str
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}; {self.remedy}"


def port_number(container: Mapping[str, Any], port: int | str) -> int | None:
    """The number of a container port given by number or name; None when no such name is declared."""
    if isinstance(port, int):
        return port
    return next((p["containerPort"] for p in container.get("ports") or [] if p.get("name") == port), None)
