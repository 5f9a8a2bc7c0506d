"""Numbers, names and lists inside sentences, each in one form only."""

from collections.abc import Sequence
from typing import Final

NAMED: Final = 3
"""So many of a list are named, the rest is counted."""


def count(number: int, noun: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def share(part: int, total: int, noun: str) -> str:
    """With its verb: `1 of 3 pods is`, `0 of 3 pods are`."""
    return f"{part} of {count(total, noun)} {'is' if part == 1 else 'are'}"


def seconds(value: float) -> str:
    """A duration in whole seconds, never rounded up: `20 s`."""
    return f"{int(value)} s"


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and 3 more`: the first few by name."""
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def pods(names: Sequence[str]) -> str:
    """`pod a`, `pods a and b`."""
    return f"{'pod' if len(names) == 1 else 'pods'} {listed(names)}"


def sentence(*parts: str) -> str:
    """One sentence of clauses, or of others' words, with a single full stop."""
    return f"{' '.join(filter(None, parts)).rstrip(' .')}."
