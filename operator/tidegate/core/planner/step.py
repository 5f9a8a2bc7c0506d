"""What one phase of the plan asks for. Phases are pure functions, and their steps add up to the plan."""

from dataclasses import dataclass
from typing import Final

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
from .blocked import Blocked

_CHANGE_COUNTS: Final = (CreateRevision, DeletePod, MarkDrained, Restore, Scale, Withdraw)


@dataclass(frozen=True, slots=True)
class Step:
    """Writes in their order, drains to carry on, pods to ask, reasons not to do more, and when to look again (s)."""

    actions: tuple[Action, ...] = ()
    orders: tuple[DrainOrder, ...] = ()
    questions: tuple[Question, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    wake: tuple[float, ...] = ()

    def __add__(self, after: "Step") -> "Step":
        """Both, this one first; whoever is asked is asked once."""
        new = tuple(q for q in dict.fromkeys(after.questions) if q not in self.questions)
        return Step(
            self.actions + after.actions,
            self.orders + after.orders,
            self.questions + new,
            self.blocked + after.blocked,
            self.wake + after.wake,
        )

    @property
    def changes_counts(self) -> bool:
        """Whether an action changes who counts: what is decided on counts then waits for the next pass."""
        return any(isinstance(x, _CHANGE_COUNTS) for x in self.actions)

    @property
    def scaled(self) -> frozenset[str]:
        """Names of the Deployments whose replicas are written."""
        return frozenset(x.deployment for x in self.actions if isinstance(x, Scale))
