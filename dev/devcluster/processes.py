"""Processes we started, and no others: a pid counts only together with the time its process started."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import ClusterError


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One component of the cluster. `started` is in clock ticks since boot, field 22 of /proc/PID/stat."""

    name: str
    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        return start_ticks(self.pid) == self.started


def start_ticks(pid: int) -> int | None:
    """When the process `pid` started, or None when there is none or only its zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command name may itself contain spaces and parentheses.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True, slots=True)
class Launcher:
    """Starts components into the cluster's cgroup and keeps a record of each."""

    records: Path
    logs: Path
    cgroup_procs: Path

    def start(self, name: str, command: Sequence[object]) -> ProcessRecord:
        """Start `command` in the background; its output goes to logs/NAME.log.

        The process enters our cgroup before it becomes `command`, so that even an `up` killed before it wrote
        the record leaves nothing that `down` could not find.
        """
        enter = ["/bin/sh", "-c", 'echo $$ >"$0" && exec "$@"', str(self.cgroup_procs)]
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*enter, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        started = start_ticks(process.pid)
        if started is None:
            raise ClusterError(f"{name} ended at once:\n{self.log_tail(name)}")
        record = ProcessRecord(name, process.pid, started)
        write_atomically(self.records / f"{name}.json", json.dumps(asdict(record)))
        return record

    def log_tail(self, name: str, lines: int = 15) -> str:
        """The end of a component's log, for error messages."""
        path = self.logs / f"{name}.log"
        if not path.exists():
            return "(no log)"
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def read_records(records: Path) -> list[ProcessRecord]:
    """All components on record, alive or not. A record that was cut off by a crash is left out."""
    found = []
    for path in sorted(records.glob("*.json")):
        try:
            found.append(ProcessRecord(**json.loads(path.read_text())))
        except (ValueError, TypeError):
            continue
    return found


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that a reader sees the old content, the new, or no file, but never half of one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.touch(mode=mode)
    draft.chmod(mode)
    draft.write_text(text)
    draft.replace(path)
