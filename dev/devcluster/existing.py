"""A cluster that somebody else runs: used, never started, stopped or filled."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .binary import find_binary
from .errors import ClusterError


@dataclass(frozen=True, slots=True)
class ExistingCluster:
    """The cluster of the current context in `path`."""

    path: Path

    name = "existing"

    def up(self, nodes: int | None) -> None:
        """Check that the cluster answers. Its nodes are as they are."""
        if nodes is not None:
            raise ClusterError("--nodes has no meaning for an existing cluster: leave it out")
        asked = subprocess.run(
            self.kubectl(["get", "--raw", "/readyz", "--request-timeout=15s"]),
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.returncode:
            raise ClusterError(f"the cluster in {self.path} does not answer: {asked.stderr.strip()}")

    def down(self) -> None:
        """Leave the cluster alone."""

    def kubeconfig(self) -> Path:
        """The file that was named. Raises ClusterError when it is not there."""
        if not self.path.is_file():
            raise ClusterError(f"there is no kubeconfig at {self.path}: correct TIDEGATE_KUBECONFIG or --kubeconfig")
        return self.path

    def status(self) -> dict[str, object]:
        """Up when the API server lists its nodes."""
        listed = subprocess.run(
            self.kubectl(["get", "nodes", "-o", "name", "--request-timeout=15s"]),
            capture_output=True,
            text=True,
            check=False,
        )
        return {
            "provider": self.name,
            "id": None,
            "up": listed.returncode == 0,
            "kubeconfig": str(self.path),
            "auditLog": None,
            "nodes": [line.removeprefix("node/") for line in listed.stdout.split()],
            "hostPathLogs": None,
            "network": "host",
        }

    def kubectl(self, arguments: Sequence[str]) -> list[str]:
        """The command line of kubectl with `arguments`."""
        return [*kubectl_program(), "--kubeconfig", str(self.kubeconfig()), *arguments]

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command as it is: whether pods' addresses can be reached depends on where it runs."""
        return list(command)

    def load(self, archive: Path) -> None:
        """Refuse: raises ClusterError with the way images get to such a cluster."""
        raise ClusterError(
            f"dev/cluster cannot put {archive} on the nodes of a cluster it does not run: "
            "build the image with the Dockerfile and push it to a registry that the cluster pulls from"
        )

    def image_stamps(self) -> Path | None:
        """Nothing is loaded here, so nothing is noted."""
        return None


def kubectl_program() -> list[str]:
    """The installed kubectl, or the one in the binary of the local cluster."""
    if found := shutil.which("kubectl"):
        return [found]
    if binary := find_binary():
        return [str(binary.component("kubectl"))]
    raise ClusterError("kubectl is not in PATH: install it, or build one with `dev/cluster build`")
