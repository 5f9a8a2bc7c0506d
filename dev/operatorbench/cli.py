"""The command `dev/bench-operator`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from cluster.harness.kube import Kube
from cluster.harness.operator import Operator

from .figures import Figures, Usage
from .measure import measure, namespace, usage, version
from .report import page

DESCRIPTION = """\
Figures of the operator on a real cluster: `make bench-operator`.

    dev/cluster exec .venv/bin/python dev/bench-operator [--replicas 6] [--rounds 3] [-o PAGE.md]

Rolls a streaming service several times, with drains of about 2 s and of about 20 s, and measures from the records of
others: the seal from the service's own log, the lowering from the API server's audit log, memory and CPU from the
kernel. All on one machine, so by one clock. Figures are reported, not judged.
"""
STREAM_SECONDS = (2, 20)
REST_SECONDS = 20


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, and write it where --output says."""
    options = _parser().parse_args(arguments)
    text = _measured(options.replicas, options.rounds)
    print(text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    return 0


def _measured(replicas: int, rounds: int) -> str:
    figures: dict[int, Figures] = {}
    rolling: list[Usage] = []
    with Kube() as kube:
        operator = Operator(kube)
        operator.install()
        try:
            rest = usage(operator, REST_SECONDS)
            for seconds in STREAM_SECONDS:
                with namespace(kube) as space:
                    figures[seconds], used = measure(space, operator, replicas, rounds, seconds)
                rolling.append(used)
        finally:
            operator.uninstall()
        head = f"Kubernetes {version(kube)}, {os.cpu_count()} cores, {replicas} replicas, maxSurge 1."
    return page(head, figures, rest, rolling)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev/bench-operator", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--replicas", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-o", "--output", type=Path)
    return parser
