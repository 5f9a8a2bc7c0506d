"""`dev/test-changed`: choose, say why, run."""

import argparse
import subprocess
import sys
from pathlib import Path

from .choice import concerned, fitting, recorded
from .graph import Graph

REPORT = ".local/test-fast.xml"
"""Written by each `make test-fast`."""
WORKERS = 4
MINUTE = 60.0


def changed_files(checkout: Path, base: str) -> list[str]:
    """What differs from where the branch left `base`, in commits, in the working tree, or as a new file."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=checkout, check=True, capture_output=True, text=True).stdout

    fork = git("merge-base", base, "HEAD").strip()
    different = git("diff", "--name-only", "--no-renames", "-z", fork)
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in (different + new).split("\0") if name})


def main(checkout: Path, arguments: list[str]) -> int:
    """Returns the status of pytest, or 0 when no test is concerned."""
    parser = argparse.ArgumentParser(prog="dev/test-changed", description=__doc__)
    parser.add_argument("--base", default="main", help="the branch that the change is compared with (%(default)s)")
    parser.add_argument("--seconds", type=float, default=MINUTE, help="how long the tests may take (%(default)s)")
    parser.add_argument("--list", action="store_true", help="choose, and run nothing")
    given = parser.parse_args(arguments)
    changed = changed_files(checkout, given.base)
    found = concerned(Graph(checkout, changed), changed, recorded(checkout / REPORT))
    chosen, rest = fitting(found, given.seconds * WORKERS)
    for each in chosen:
        print(f"{each.file}  <- {' <- '.join(reversed(each.way[:-1])) or 'changed itself'}")
    if rest:
        print(f"left out, as they are further away and the time is full: {' '.join(each.file for each in rest)}")
    if not chosen:
        print(
            f"no test of the fast lane leads to what has changed since {given.base}: {' '.join(changed) or 'nothing'}"
        )
    if given.list or not chosen:
        return 0
    command = [sys.executable, "-m", "pytest", "-m", "not long", "-q", "-n", str(WORKERS), "--dist", "worksteal"]
    return subprocess.run([*command, *(each.file for each in chosen)], cwd=checkout, check=False).returncode
