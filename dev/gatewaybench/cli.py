"""The command `dev/bench-gateway`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from .report import plot, table
from .rivals import RIVALS, Rival
from .run import Failed, Load, rounds, summary

DESCRIPTION = """\
Figures of the gateway beside other proxies: `make bench-gateway`.

One worker each, all on this machine, the engine and the client on the same cores. Streams bring 50 chunks of 150 bytes
a second, either spread over the period (staggered) or all at one moment (burst), as engines' steps do. Figures are
reported, not judged; latencies are comparable within one run only.
"""
LOADS = (
    *(Load(streams, arrivals, 250) for streams in (1, 64, 256, 1000) for arrivals in ("staggered", "burst")),
    Load(16, "short", 500),
)
QUICK = (Load(64, "staggered", 100), Load(256, "burst", 100), Load(16, "short", 200))


def main(arguments: Sequence[str]) -> int:
    """Measure and write the page; exit code 1 when something did not start or answer."""
    options = _parser().parse_args(arguments)
    figures = []
    try:
        for figure in rounds(_present(options.only), QUICK if options.quick else LOADS, options.rounds):
            figures.append(figure)
            print(json.dumps(figure), file=sys.stderr, flush=True)
    except Failed as error:
        print(f"bench-gateway: {error}", file=sys.stderr)
        return 1
    rows = summary(figures)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    text = table(rows, machine, options.rounds)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))
    if options.output:
        options.output.write_text(text)
        plot(rows, options.output.with_suffix(".svg"))
    print(text)
    return 0


def _present(only: Sequence[str] | None) -> list[Rival]:
    """The rivals in `only` (None: all) that this machine has; the others are named on stderr."""
    found = []
    for rival in RIVALS:
        if only is not None and rival.name not in only:
            continue
        if missing := rival.needs():
            print(f"{rival.name} is left out: {missing}", file=sys.stderr)
        else:
            found.append(rival)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev/bench-gateway", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", action="append", choices=[r.name for r in RIVALS], help="may be given several times")
    parser.add_argument("--quick", action="store_true", help="three loads only, to see that all of it runs")
    parser.add_argument("--json", type=Path, help="keep every figure of every run here")
    parser.add_argument("-o", "--output", type=Path, help="the page to write; its plot goes beside it, as SVG")
    return parser
