"""A plan in the making: what the parts of the decision add to."""

from dataclasses import dataclass, field
from typing import Final

from tidegate.core.state.view import View

from .actions import (
    Action,
    CreateRevision,
    DeletePod,
    DrainOrder,
    MarkDrained,
    Question,
    Restore,
    Scale,
    Withdraw,
)

POLL_SECONDS: Final = 5.0
"""How soon to look again while something is awaited that sends no event."""


@dataclass(slots=True)
class Draft:
    view: View
    returning: int = 0
    """Draining pods that are asked to serve again: they count as staying."""
    actions: list[Action] = field(default_factory=list)
    orders: list[DrainOrder] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    unreachable: bool = False
    wake: list[float] = field(default_factory=list)

    @property
    def counting(self) -> bool:
        """Whether an action changes who counts: what is decided on counts then waits for the next pass."""
        return any(
            isinstance(x, CreateRevision | DeletePod | MarkDrained | Restore | Scale | Withdraw) for x in self.actions
        )
