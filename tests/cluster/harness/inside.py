"""Reaching into running pods from the machine they run on: their processes, and what their network lets through."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .kube import Object


def processes(uid: str, word: bytes) -> list[int]:
    """The pod's processes whose command line has `word` in it, which its sandbox has not."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            inside = uid in (entry / "cgroup").read_text().replace("_", "-")
            wanted = inside and word in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if wanted:
            found.append(int(entry.name))
    assert found, f"no process of pod {uid} is on this machine: it cannot be reached from here"
    return found


def kill(pod: Object, word: bytes = b"apps.server") -> None:
    """SIGKILL its serving processes, as when the node is short of memory; the kubelet starts the container again."""
    for pid in processes(pod["metadata"]["uid"], word):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def dropped(pids: list[int], *match: str) -> Iterator[None]:
    """Drop what comes in and matches, as a NetworkPolicy does: nobody gets an answer, not even a refusal.

    In the network namespace of these processes, so the rule goes with their pod whatever happens.
    """
    rule = ["INPUT", "-p", "tcp", *match, "-j", "DROP"]
    for pid in pids[:1]:
        _iptables(pid, "-I", *rule)
    try:
        yield
    finally:
        for pid in pids[:1]:
            _iptables(pid, "-D", *rule)


def _iptables(pid: int, *arguments: str) -> None:
    command = ["nsenter", "--net", f"--target={pid}", "--", "iptables", "--wait", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
