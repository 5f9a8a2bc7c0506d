"""`tidegate estimate`: percentiles and a grace period from a file of drain times, computed as the operator does."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from tidegate.core.drain_time.drain_term import DrainTerm, drain_term
from tidegate.core.drain_time.histogram import LONGEST, Histogram, Sample
from tidegate.core.drain_time.survival import Estimate, estimate
from tidegate.core.report.terms import percent, rests_on

from .terminal import NUMBER, quoted, say, seconds

DESCRIPTION = """\
Read drain times from a file, one per line, and print the terminationGracePeriodSeconds that they need.

A line is `seconds`. For a drain that was cut or lost from sight, and so took at least this long, it is
`seconds,censored`. 1 also means censored, 0 means not. Blank lines and # comments are ignored. The order of the lines
does not matter: all have the same weight.
"""
_CENSORED = {"censored": True, "1": True, "true": True, "0": False, "false": False, "": False}
_HEADER = re.compile(r"seconds(\s*,\s*censored)?", re.ASCII | re.IGNORECASE)


class InvalidSample(ValueError):
    """A line that is not a sample; the text says which line and why."""


def add_parser(subparsers: Any) -> None:
    """Register the subcommand."""
    parser = subparsers.add_parser(
        "estimate",
        help="percentiles and a grace period from a file of drain times",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="file of drain times; - is standard input")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: table")
    terms = parser.add_argument_group("terms of the grace period, in seconds")
    terms.add_argument("--prior", metavar="S", type=_above_zero, default=120.0, help="declared drain term, default 120")
    terms.add_argument("--propagation", metavar="S", type=seconds, default=5.0, help="default 5")
    terms.add_argument("--teardown", metavar="S", type=seconds, default=10.0, help="default 10")
    terms.add_argument("--safety", metavar="S", type=seconds, default=5.0, help="default 5")
    terms.add_argument("--max", metavar="S", type=_above_zero, default=600.0, help="maximum of the sum, default 600")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code: 0, or 2 for input that cannot be used."""
    fixed = {"propagation": args.propagation, "teardown": args.teardown, "safety": args.safety}
    cap = math.floor(args.max) - sum(math.ceil(seconds) for seconds in fixed.values())
    if cap < 0:
        return _refuse(f"--max {args.max:g} is less than --propagation + --teardown + --safety: raise it")
    try:
        samples = _read(args.file)
    except InvalidSample as error:
        return _refuse(f"{_name(args.file)}: {error}")
    except OSError as error:
        return _refuse(f"{args.file}: {error.strerror or error}")
    if not samples:
        return _refuse(f"{_name(args.file)}: no samples: write lines of `seconds` or `seconds,censored`")
    found = estimate(Histogram().add(samples), args.prior)
    term = drain_term(found, prior=args.prior, cap=float(cap))
    # Each term is rounded up separately, as in status, so that the printed terms add up.
    terms: list[dict[str, Any]] = [
        {"name": "propagation", "seconds": math.ceil(fixed["propagation"]), "source": "Declared"},
        {"name": "drain", "seconds": math.ceil(term.seconds), "source": term.source, "reason": term.reason.value},
        {"name": "teardown", "seconds": math.ceil(fixed["teardown"]), "source": "Declared"},
        {"name": "safety", "seconds": math.ceil(fixed["safety"]), "source": "Declared"},
    ]
    as_json = args.output == "json"
    lines = [json.dumps(_document(found, term, terms), indent=2)] if as_json else _table(found, term, terms, args.max)
    say(lines)
    return 0


def _document(found: Estimate, term: DrainTerm, terms: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "p50": _rounded(found.p50),
        "p90": _rounded(found.p90),
        "p99": _rounded(found.p99),
        "p99Upper": _rounded(found.p99_upper),
        "n": found.n,
        "nEffective": round(found.n_effective, 1),
        "censored": found.censored,
        "covers": math.floor(found.covers * 1e4 + 1e-6) / 1e4,
        "truncated": found.truncated,
        "terminationGracePeriodSeconds": sum(t["seconds"] for t in terms),
        "terms": terms,
        "capped": term.capped,
        "message": rests_on(term),
    }


def _table(found: Estimate, term: DrainTerm, terms: list[dict[str, Any]], cap: float) -> Iterator[str]:
    yield f"samples          {found.n}, {found.censored} of them censored; effective {found.n_effective:.0f}"
    yield f"they cover       {_covers(found)}"
    yield ""
    for name, value in (("P50", found.p50), ("P90", found.p90), ("P99", found.p99)):
        yield f"{name:<17}{_seconds_or(value, 'beyond the reach of these drains')}"
    yield f"P99, 95 % bound  {_seconds_or(found.p99_upper, 'none')}"
    yield ""
    yield f"terminationGracePeriodSeconds: {sum(t['seconds'] for t in terms)}"
    for entry in terms:
        yield f"  {entry['name']:<12}{entry['seconds']:>5}  {entry['source']}"
    yield ""
    yield f"drain term: {rests_on(term)}"
    if term.capped:
        yield f"It should be {math.ceil(term.target)} s; the cap of the sum, {cap:g} s, holds it down."
    if found.truncated:
        what = "Drains" if found.few else "Too many of the longest drains"
        why = " and too few measured" if found.few else ""
        yield f"{what} were cut{why} to tell a P99: give them more time, then measure again."


def _covers(found: Estimate) -> str:
    reach = f"up to P{percent(found.covers)} with 95 % confidence" if found.covers >= 0.01 else "nothing yet"
    if found.covers >= 0.99:
        return reach
    if found.truncated:
        return f"{reach}; what lies beyond was cut"
    return f"{reach}; for a P99 it takes 299 uncut drains"


def _read(file: str) -> list[Sample]:
    if file == "-":
        return list(_samples(sys.stdin.buffer))
    with Path(file).open("rb") as stream:
        return list(_samples(stream))


def _samples(stream: IO[bytes] | Iterable[bytes]) -> Iterator[Sample]:
    header_allowed = True
    for number, raw in enumerate(stream, start=1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise InvalidSample(f"line {number}: not UTF-8 text: convert the file") from None
        line = text.split("#", 1)[0].strip()
        if line and not (header_allowed and _HEADER.fullmatch(line)):
            try:
                yield _sample(line)
            except ValueError as error:
                raise InvalidSample(f"line {number}: {error}") from None
        header_allowed = header_allowed and not line


def _sample(line: str) -> Sample:
    first, comma, second = (part.strip() for part in line.partition(","))
    if not NUMBER.fullmatch(first):
        raise ValueError(f"{quoted(first)} is not a number of seconds: write a number such as 41.5")
    flag = _CENSORED.get(second.lower())
    if flag is None or (comma and not second):
        raise ValueError(f"{quoted(second)} after the comma must be `censored`, 1 or 0")
    if float(first) > LONGEST:
        raise ValueError(f"{quoted(first)} seconds is more than a week: write the drain time in seconds")
    return Sample(float(first), flag)


def _refuse(reason: str) -> int:
    print(f"tidegate estimate: {reason}", file=sys.stderr)
    return 2


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _above_zero(text: str) -> float:
    value = seconds(text)
    if value <= 0:
        raise argparse.ArgumentTypeError("must be more than 0 seconds")
    return value


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _seconds_or(value: float | None, otherwise: str) -> str:
    return otherwise if value is None else f"{value:.1f} s"
