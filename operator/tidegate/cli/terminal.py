"""What every command does alike with a person's words and its own: durations in, text out."""

import argparse
import os
import re
import sys
from collections.abc import Iterable
from typing import Final

from tidegate.core.drain_time.histogram import LONGEST

NUMBER: Final = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A plain number, without sign, name (`inf`) or underscores."""


def seconds(text: str) -> float:
    """A duration for argparse, which puts the option's name before the reason."""
    if not NUMBER.fullmatch(text) or float(text) > LONGEST:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number of seconds from 0 to a week")
    return float(text)


def quoted(text: str) -> str:
    """Somebody's text in a message: short, and without anything that a terminal would obey."""
    shown = text if len(text) <= 40 else text[:37] + "..."
    return ascii(shown)


def say(lines: Iterable[str]) -> None:
    """Print, and end quietly where the reader has gone, `| head` for one."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        # Else Python complains once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
