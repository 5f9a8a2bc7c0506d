"""How long a pod gets in place when somebody else deletes it.

terminationGracePeriodSeconds = propagation + drain + teardown + safety, capped. Every term is declared until it is
measured, and each is shown with its source.
"""

from dataclasses import dataclass

from tidegate.api.resource import LLMServiceSpec


@dataclass(frozen=True, slots=True)
class Term:
    """One summand, in seconds."""

    name: str
    seconds: int
    source: str = "Declared"


@dataclass(frozen=True, slots=True)
class GracePeriod:
    terms: tuple[Term, ...]
    cap: int

    @property
    def seconds(self) -> int:
        return min(sum(term.seconds for term in self.terms), self.cap)

    def term(self, name: str) -> int:
        return next(t.seconds for t in self.terms if t.name == name)


def grace_period(spec: LLMServiceSpec) -> GracePeriod:
    drain = spec.drain
    return GracePeriod(
        terms=(
            Term("propagation", drain.propagation_seconds),
            Term("drain", drain.grace.initial_seconds),
            Term("teardown", drain.grace.teardown_seconds),
            Term("safety", drain.grace.safety_seconds),
        ),
        cap=drain.grace.max_seconds,
    )
