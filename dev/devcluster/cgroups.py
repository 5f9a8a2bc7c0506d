"""The cgroups of a local cluster, version 1 and 2.

Every process of the cluster lives under `/tidegate-ID`: the components in `components`, the pods of a node in a cgroup
named after it. So `down` asks the kernel who belongs to us instead of guessing from command lines, and finds the shims
and pods as well.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError

COMPONENTS = "components"
WEIGHTS = {"cpu.shares": 16 * 1024, "cpu.weight": 16 * 100}
"""Sixteen times the default of version 1 and of version 2: on a busy machine the pods of a whole cluster would else get
no more than any one process beside them."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One mounted cgroup tree: version 2, or one of version 1 with its controllers."""

    root: Path
    unified: bool
    controllers: frozenset[str]


def hierarchies(mounts: str | None = None) -> list[Hierarchy]:
    """All cgroup trees mounted here, from `mounts`, the text of /proc/mounts."""
    found = {}
    for line in (Path("/proc/mounts").read_text() if mounts is None else mounts).splitlines():
        _, place, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            found[place] = Hierarchy(Path(place), True, frozenset())
        elif kind == "cgroup" and "ro" not in options.split(","):
            found[place] = Hierarchy(Path(place), False, frozenset(options.split(",")))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class ClusterCgroups:
    """The cgroups of the cluster called `name` in every hierarchy."""

    name: str
    trees: tuple[Hierarchy, ...]

    @classmethod
    def here(cls, name: str) -> ClusterCgroups:
        """In the hierarchies of this machine. Raises ClusterError where there are none."""
        trees = tuple(hierarchies())
        if not trees:
            raise ClusterError("no cgroup file system is mounted: run `mount -t cgroup2 none /sys/fs/cgroup` as root")
        return cls(name, trees)

    @property
    def unified(self) -> bool:
        """True where version 2 alone is in use."""
        return all(tree.unified for tree in self.trees)

    @property
    def procs(self) -> Path:
        """Where a component enters. One hierarchy is enough to know it by."""
        tracking = next((t for t in self.trees if "pids" in t.controllers), self.trees[0])
        return tracking.root / self.name / COMPONENTS / "cgroup.procs"

    def create(self, nodes: list[str]) -> None:
        """Make the cgroups for the components and the nodes, with every controller the machine has."""
        for tree in self.trees:
            top = tree.root / self.name
            if self.unified:
                _enable_controllers(tree.root)
            for directory in (top, top / COMPONENTS, *(top / node for node in nodes)):
                directory.mkdir(exist_ok=True)
                if "cpuset" in tree.controllers:
                    # An empty cpuset of version 1 takes no process in.
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (directory / name).write_text((directory.parent / name).read_text())
            for name, weight in WEIGHTS.items():
                if (top / name).exists():
                    (top / name).write_text(str(weight))
            if self.unified:
                _enable_controllers(top)

    def members(self) -> set[int]:
        """The pids of everything that runs in our cgroups."""
        pids: set[int] = set()
        for tree in self.trees:
            for directory, _, files in os.walk(tree.root / self.name):
                if "cgroup.procs" in files:
                    try:
                        pids.update(map(int, (Path(directory) / "cgroup.procs").read_text().split()))
                    except OSError:
                        continue
        return pids

    def kill(self, timeout: float = 15.0) -> None:
        """End everything in our cgroups; raise ClusterError when something does not go within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while pids := self.members():
            for pid in pids:
                self._kill_one(pid)
            if time.monotonic() > deadline:
                raise ClusterError(f"these processes of the cluster do not end: {', '.join(map(str, sorted(pids)))}")
            time.sleep(0.02)

    def _kill_one(self, pid: int) -> None:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # The pid may have been taken over between reading the list and opening it; the handle cannot.
            if any(f"/{self.name}/" in line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass
        finally:
            os.close(handle)

    def remove(self, timeout: float = 10.0) -> None:
        """Remove the empty cgroups. The kernel lets go of a cgroup a moment after its last process."""
        for tree in self.trees:
            directories = [Path(d) for d, _, _ in os.walk(tree.root / self.name, topdown=False)]
            for directory in directories:
                _rmdir(directory, time.monotonic() + timeout)


def _rmdir(directory: Path, deadline: float) -> None:
    while True:
        try:
            directory.rmdir()
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"cannot remove the cgroup {directory}: {error.strerror}") from None
            time.sleep(0.02)
        else:
            return


def _enable_controllers(directory: Path) -> None:
    available = (directory / "cgroup.controllers").read_text().split()
    enabled = (directory / "cgroup.subtree_control").read_text().split()
    missing = [c for c in available if c in ("cpu", "cpuset", "memory", "pids", "io", "hugetlb") and c not in enabled]
    try:
        if missing:
            (directory / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in missing))
    except OSError as error:
        raise ClusterError(
            f"cannot enable the cgroup controllers {', '.join(missing)} in {directory} ({error.strerror}): "
            "processes live in that cgroup. In a container, start it with `--cgroupns=host`, or use kind."
        ) from None
