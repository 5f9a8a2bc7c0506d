"""What one process remembers of a service between passes. A successor goes on without it.

Most of it only saves calls. Without the pods that it has seen, a successor cannot count for those that went meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidegate.api.resource import LLMServiceSpec
from tidegate.core.planner.actions import Action
from tidegate.core.state.snapshot import Pod

REPEATS: Final = 3
"""After so many passes that wanted the same actions again, they wait longer and longer."""
LONGEST_REPEAT_SECONDS: Final = 60.0
REFUSED_SECONDS: Final = 300.0
"""How long a refused template rests before its next dry run."""


@dataclass(slots=True)
class Memory:
    """Of the service with this uid."""

    uid: str = ""
    refusal: str = ""
    """The API server's last refusal of a write, while what was refused is still wanted."""
    again_at: float = 0.0
    """When the actions that rest may be tried again, in Unix seconds."""
    last_seen: Mapping[str, Pod] = field(default_factory=dict)
    """By uid, the pods that might hold requests when the status was last reported."""
    _raw_spec: Mapping[str, Any] | None = None
    _spec: LLMServiceSpec | None = None
    _rejected: tuple[tuple[str, str], ...] = ()
    _rejected_generation: int = -1
    _rejected_at: float = 0.0
    _done: tuple[Action, ...] = ()
    _repeated: int = 0

    def parsed(self, raw: Mapping[str, Any]) -> LLMServiceSpec:
        """The spec as a model, made anew only when it was edited. Raises `InvalidSpec`."""
        if self._spec is None or raw != self._raw_spec:
            self._spec, self._raw_spec = LLMServiceSpec.parse(raw), raw
        return self._spec

    def rests(self, actions: tuple[Action, ...], now: float) -> bool:
        """Whether to leave these actions for now: the same ones, time and again, have had no effect."""
        if actions != self._done:
            self._done, self._repeated, self.again_at = actions, 0, now
        elif now < self.again_at:
            return True
        else:
            self._repeated += 1
            if self._repeated >= REPEATS:
                self.again_at = now + min(0.1 * 2**self._repeated, LONGEST_REPEAT_SECONDS)
        return False

    def reject(self, causes: tuple[tuple[str, str], ...], generation: int, now: float) -> None:
        """The dry run refused the template of this generation, for these causes of (field, message)."""
        self._rejected, self._rejected_generation, self._rejected_at = causes, generation, now

    def rejected(self, generation: int, now: float) -> tuple[tuple[str, str], ...]:
        """The causes for which the template of this generation was refused lately; none when it may be tried."""
        stands = self._rejected_generation == generation and now - self._rejected_at < REFUSED_SECONDS
        return self._rejected if stands else ()
