"""Input and output that all commands share: parse durations, quote input, print text."""

import argparse
import errno
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from tidegate.core.drain_time.histogram import LONGEST

NUMBER: Final = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
"""A plain number, without sign, name (`inf`) or underscores."""
_UNWRITABLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What a write to a stream fails with: disk full, over quota, file too large, device lost, not open for writing."""


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
    """Print to standard output. Raises OSError, which `guarded` turns into an exit code, when it cannot be written."""
    if sys.stdout is None:
        # Closed by `>&-`, where print() would lose the text without a word.
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    print("\n".join(lines), flush=True)


def guarded(run: Callable[[], int]) -> int:
    """The exit code of `run`, which ends without a trace also where it is ended from outside.

    0 when the reader of the output has gone, as `| head` does; 1 with a message when the output cannot be written;
    130 on Ctrl-C.
    """
    try:
        try:
            return run()
        finally:
            # Else the interpreter's own flush, its last act, fails and prints a trace.
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        code = 1
        with suppress(OSError):
            print(f"tidegate: cannot write the output: {error.strerror}", file=sys.stderr, flush=True)
    _forget_output()
    return code


def _forget_output() -> None:
    """Point both streams at nothing: Python flushes them at exit, and would report the same error again."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
            with suppress(OSError, ValueError):
                os.dup2(nothing, stream.fileno())
