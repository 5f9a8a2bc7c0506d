"""A row: a belief of the operator about Kubernetes, the code that rests on it, and how it is tried."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from conformance.kubernetes import Kubernetes

Check = Callable[[Kubernetes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Row:
    """`sentence` is what holds; `needed_by` is `module:name` below `tidegate`, which goes wrong where it does not."""

    sentence: str
    needed_by: tuple[str, ...]
    check: Check


class Rows(list[Row]):
    """The rows of one subject, in the order in which they stand."""

    def row(self, sentence: str, *needed_by: str) -> Callable[[Check], Check]:
        def add(check: Check) -> Check:
            self.append(Row(sentence, needed_by, check))
            return check

        return add
