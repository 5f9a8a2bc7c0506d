"""The command `dev/mutants`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .catalog import CatalogError, Mutation, load, problems
from .run import Undecided, run

CHECKOUT = Path(__file__).resolve().parents[2]
DESCRIPTION = """\
Break each lock, precondition and wait of the operator in turn, and see which test fails.

Each mutation is one small edit in a private copy of the checkout. The tests nearest to the file run against it first
and stop at the first failure, as nearly every mutation is noticed there, within seconds; what they pass goes through
all tests of core, wiring and simulation. A mutation that no test notices fails the run: then a test is missing.

The mutations are in dev/mutation/areas/, one file for each part of the source.
"""


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: all were noticed (or fit, with --check); 1: not all; 2: wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        chosen = chosen_by(load(), options.names, options.shard)
        if options.list:
            print("\n".join(f"{m.name:50} {m.area:24} {m.file}" for m in chosen))
            return 0
        if found := problems(chosen, CHECKOUT):
            print("\n".join(found), file=sys.stderr)
            return 1
        return 0 if options.check else _run(chosen, options.jobs)
    except CatalogError as error:
        print(f"dev/mutants: {error}", file=sys.stderr)
        return 2
    except Undecided as error:
        print(f"dev/mutants: {error}", file=sys.stderr)
        return 1


def chosen_by(mutations: Sequence[Mutation], names: Sequence[str], shard: tuple[int, int]) -> tuple[Mutation, ...]:
    """Those named by `names`, each a mutation or an area (all for no names), and of these every nth from the ith on.

    Raises CatalogError for a name that is neither.
    """
    unknown = set(names) - {m.name for m in mutations} - {m.area for m in mutations}
    if unknown:
        raise CatalogError(f"neither a mutation nor an area: {', '.join(sorted(unknown))}; see dev/mutants --list")
    named = [m for m in mutations if not names or m.name in names or m.area in names]
    index, count = shard
    return tuple(named[index - 1 :: count])


def _run(chosen: Sequence[Mutation], jobs: int) -> int:
    width, survived = max((len(m.name) for m in chosen), default=0), 0
    with tempfile.TemporaryDirectory(prefix="tidegate-mutants-") as space:
        for verdict in run(chosen, CHECKOUT, jobs, Path(space)):
            survived += not verdict.test
            shown = verdict.test or "NO TEST FAILS"
            print(f"{verdict.mutation.name:{width}} {verdict.seconds:6.0f} s  {shown}", flush=True)
    print(f"{len(chosen) - survived} passed, {survived} failed")
    return 1 if survived else 0


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with I from 1 to N")
    return int(index), int(count)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev/mutants", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a mutation or an area; all without")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--list", action="store_true", help="print the mutations and stop")
    mode.add_argument("--check", action="store_true", help="only see that each still fits the source; takes no second")
    parser.add_argument("--shard", type=_shard, default=(1, 1), metavar="I/N", help="the Ith of N equal parts")
    parser.add_argument(
        "--jobs", type=_positive, default=os.cpu_count() or 1, metavar="N", help="at a time (default %(default)s)"
    )
    return parser
