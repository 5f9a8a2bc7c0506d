"""Apply mutations to private copies of the checkout, several at a time, and run tests against them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from .catalog import Mutation

TESTS = ("tests/core", "tests/wiring", "tests/simulation")
"""What runs against a mutation that its nearest tests do not notice."""
BESIDE = (
    "test_check_commits.py",
    "test_documentation.py",
    "test_layout.py",
    "test_manifests.py",
    "test_skips.py",
    "test_test_choice.py",
)
"""Tests in tests/core that are about the checkout: they run none of the operator."""
TIMEOUT_SECONDS = 7200
"""What has no end by then is undecided, and fails the run: a busy machine must not look like a test that noticed."""
NOT_COPIED = (".venv", ".git", ".local", "__pycache__", ".*_cache", ".hypothesis")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one mutation: the first test that failed under it (empty: none), after so many seconds."""

    mutation: Mutation
    test: str
    seconds: float


class Undecided(Exception):
    """Pytest neither passed nor named a failing test, so nothing is known about the mutation."""


def run(mutations: Sequence[Mutation], checkout: Path, jobs: int, space: Path) -> Iterator[Verdict]:
    """The verdict on each mutation, in order.

    Each of the `jobs` workers edits a copy of its own in `space`, so that neither the checkout nor another worker sees
    the edit. Raises Undecided.
    """
    copies: SimpleQueue[Path] = SimpleQueue()
    for job in range(jobs):
        copy = space / f"checkout-{job}"
        shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        copies.put(copy)
    pool = ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(lambda mutation: _judged(copies, mutation), mutations)
    finally:
        pool.shutdown(cancel_futures=True)


def _judged(copies: SimpleQueue[Path], mutation: Mutation) -> Verdict:
    copy = copies.get()
    began = time.monotonic()
    path = copy / mutation.file
    sound = path.read_text(encoding="utf-8")
    try:
        path.write_text(mutation.applied(sound), encoding="utf-8")
        test = _first_failure(copy, mutation, mutation.tests) or _first_failure(copy, mutation, TESTS)
        return Verdict(mutation, test, time.monotonic() - began)
    finally:
        path.write_text(sound, encoding="utf-8")
        copies.put(copy)


def _first_failure(copy: Path, mutation: Mutation, tests: tuple[str, ...]) -> str:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", "-n", "0"]
    command += ["-m", "not long", *(f"--deselect=tests/core/{name}" for name in BESIDE), *tests]
    try:
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise Undecided(f"{mutation.name}: no end within {TIMEOUT_SECONDS} s, which decides nothing") from error
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode != 1 or found is None:
        # Neither sound nor noticed: an edit that does not even load, or a selection that is not there.
        raise Undecided(f"{mutation.name}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
    return found.group(1)
