"""Prometheus and promtool, for the tests of alerts: those on PATH, else Debian's, unpacked into our cache.

Unpacked and not installed, since installing the package starts a server on the machine.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from .errors import ClusterError
from .layout import cache_dir

PROGRAMS = ("prometheus", "promtool")


def find(program: str) -> Path:
    """Path of `prometheus` or `promtool`. Raises ClusterError with the remedy."""
    for place in (shutil.which(program), _unpacked() / program):
        if place is not None and Path(place).exists():
            return Path(place)
    raise ClusterError(f"{program} is missing: run `make setup`, or put Prometheus 2.42 or newer on PATH")


def fetch() -> None:
    """Have both programs. Raises ClusterError with the remedy."""
    if all(shutil.which(program) or (_unpacked() / program).exists() for program in PROGRAMS):
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise ClusterError("prometheus and promtool are missing: put Prometheus 2.42 or newer on PATH")
    target = _unpacked().parents[1]
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        script = "apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; }"
        done = subprocess.run(
            ["sh", "-c", f"{{ {script}; }} && dpkg-deb -x prometheus_*.deb unpacked"],
            cwd=scratch, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise ClusterError(f"cannot get Debian's package prometheus: {done.stderr.strip().splitlines()[-1:]}")
        shutil.rmtree(target, ignore_errors=True)
        (Path(scratch) / "unpacked").rename(target)


def _unpacked() -> Path:
    return cache_dir() / "prometheus" / "usr" / "bin"
