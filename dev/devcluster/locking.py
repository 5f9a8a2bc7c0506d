"""Exclusive file locks that the kernel drops when their holder dies."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, waiting_for: str) -> Iterator[None]:
    """Hold `path` alone; while somebody else does, say once on stderr what is waited for."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _acquire(path, waiting_for)
    try:
        yield
    finally:
        os.close(descriptor)


def _acquire(path: Path, waiting_for: str) -> int:
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                print(f"waiting for {waiting_for} ({path})", file=sys.stderr, flush=True)
                told = True
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # `down` removes the file it holds: a lock on a removed file excludes nobody.
        if _still_named(descriptor, path):
            return descriptor
        os.close(descriptor)


def _still_named(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
