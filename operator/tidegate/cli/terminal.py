"""Input and output that all commands share: parse durations, quote input, print text."""

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
    """A duration in seconds, as a type for argparse, which adds the name of the option to the error."""
    if not NUMBER.fullmatch(text) or float(text) > LONGEST:
        raise argparse.ArgumentTypeError(f"{quoted(text)} is not a number of seconds from 0 to a week")
    return float(text)


def quoted(text: str) -> str:
    """User input for a message: shortened, and without control characters."""
    shown = text if len(text) <= 40 else text[:37] + "..."
    return ascii(shown)


def say(lines: Iterable[str]) -> None:
    """Print. If the reader has closed the pipe, as `| head` does, end without an error."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        # Otherwise Python reports the broken pipe again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
