"""What came out: two columns, so that one sees why."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .tally import Tally

ABSENT = "-"


def show(console: Console, tidegate: Tally, plain: Tally | None) -> None:
    """Print the table; without `plain` its column is missing."""
    table = Table(title="The same load, the same change", title_justify="left", header_style="bold")
    table.add_column("")
    table.add_column("Tidegate", justify="right")
    if plain:
        table.add_column("plain Deployment", justify="right")
    columns = [figures(tidegate), *([figures(plain)] if plain else [])]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    console.print(table)


def figures(tally: Tally) -> dict[str, str]:
    """The rows of one column."""
    rollout: dict[str, Any] = tally.service.get("status", {}).get("rollout", {})
    took = (tally.finished or 0) - (tally.applied or 0)
    bound, seconds = rollout.get("boundSeconds"), rollout.get("seconds")
    ratio = f"{bound} of {seconds} s ({bound / seconds:.0%})" if bound and seconds else ABSENT
    return {
        "streams complete": str(tally.whole),
        "streams cut": str(tally.cut),
        "tokens in them, lost": str(tally.lost_tokens),
        "requests refused or reset": str(tally.refused),
        "still running at the end, on new pods": str(tally.running),
        "rollout, until the last old pod is gone": f"{took:.0f} s",
        "of the operator's own time, what no schedule beats": ratio,
        "longest drain": f"{longest(tally)} s" if longest(tally) is not None else ABSENT,
        "pods at once, terminating ones included": str(tally.most_pods),
    }


def longest(tally: Tally) -> int | None:
    """The longest drain in seconds, by the operator's own record."""
    outcomes = tally.service.get("status", {}).get("outcomes", [])
    return max((row.get("seconds", 0) for row in outcomes), default=None)


def record(path: Path, acts: dict[str, Tally]) -> None:
    """Write what was seen, for the picture of a rollout: seconds from the change, one entry per change."""
    path.write_text(json.dumps({name: _recording(tally) for name, tally in acts.items()}, indent=1) + "\n")


def _recording(tally: Tally) -> dict[str, Any]:
    zero = tally.applied or 0.0

    def shifted(history: list[tuple[float, Any]]) -> list[list[Any]]:
        return [[round(at - zero, 2), value] for at, value in history]

    return {
        "rolloutSeconds": round((tally.finished or zero) - zero, 2),
        "endSeconds": round((tally.ended or zero) - zero, 2),
        "figures": figures(tally),
        "pods": [
            {"name": p.name, "image": p.tag, "states": shifted(p.states), "inFlight": shifted(p.in_flight)}
            for p in tally.pods.values()
        ],
        "failed": [[round(e.at - zero, 2), e.pod, e.result] for e in tally.failed],
    }
