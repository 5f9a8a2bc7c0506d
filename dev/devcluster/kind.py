"""A cluster in Docker, made by kind from `kind-config.yaml`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import ClusterError
from .existing import kubectl_program
from .layout import CHECKOUT, Layout

CONFIG = CHECKOUT / "kind-config.yaml"
# In the file this directory has a fixed name, so that the file can be used by hand. Here it becomes the host's
# own path, so that one path works in a pod's hostPath and on the host.
LOGS_IN_CONFIG = "/var/lib/tidegate-shared"


@dataclass(frozen=True, slots=True)
class KindCluster:
    """The kind cluster of this checkout."""

    layout: Layout

    name = "kind"

    @property
    def state(self) -> Path:
        """The directory of what belongs to this cluster."""
        return CHECKOUT / ".local" / self.layout.name

    @property
    def shared_logs(self) -> Path:
        """A directory that every node and the host see under the same path."""
        return self.state / "shared"

    def up(self, nodes: int | None) -> None:
        """Create the cluster unless it exists."""
        self._check_tools()
        if nodes is not None:
            raise ClusterError("--nodes has no meaning for kind: edit kind-config.yaml")
        if self.layout.name in self._kind("get", "clusters").split():
            return
        self.shared_logs.mkdir(parents=True, exist_ok=True)
        self.shared_logs.chmod(0o1777)
        (self.state / "audit").mkdir(exist_ok=True)
        config = self.state / "kind-config.yaml"
        config.write_text(self.config(CONFIG.read_text()))
        create = ["create", "cluster", "--name", self.layout.name, "--config", str(config)]
        try:
            self._kind(*create, "--kubeconfig", str(self.state / "kubeconfig"), "--wait", "180s")
        except BaseException:
            self._kind("delete", "cluster", "--name", self.layout.name)
            raise

    def config(self, text: str) -> str:
        """kind-config.yaml with the paths of this cluster."""
        text = text.replace("./.local/kind", str(self.state)).replace("./dev", str(CHECKOUT / "dev"))
        return text.replace(LOGS_IN_CONFIG, str(self.shared_logs))

    def down(self) -> None:
        """Delete the cluster and its files."""
        self._check_tools()
        self._kind("delete", "cluster", "--name", self.layout.name)
        shutil.rmtree(self.state, ignore_errors=True)

    def status(self) -> dict[str, object]:
        """Up when kind lists nodes."""
        nodes = self._kind("get", "nodes", "--name", self.layout.name).split()
        return {
            "provider": self.name,
            "id": self.layout.id,
            "up": bool(nodes),
            "kubeconfig": str(self.state / "kubeconfig"),
            "auditLog": str(self.state / "audit" / "audit.log"),
            "nodes": [node for node in nodes if node.startswith(self.layout.name)],
            "hostPathLogs": str(self.shared_logs),
            "network": "host",
        }

    def kubeconfig(self) -> Path:
        """The file that kind wrote. Raises ClusterError when no cluster is up."""
        path = self.state / "kubeconfig"
        if not path.exists():
            raise ClusterError("no cluster is up here: run `dev/cluster up`")
        return path

    def kubectl(self, arguments: Sequence[str]) -> list[str]:
        """The command line of kubectl with `arguments`."""
        return [*kubectl_program(), "--kubeconfig", str(self.kubeconfig()), *arguments]

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command in the network of the control plane's container, where pods and Services can be reached."""
        container = f"{self.layout.name}-control-plane"
        asked = ["docker", "inspect", "--format", "{{json .State.Pid}}", container]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False)
        if answer.returncode:
            raise ClusterError(f"Docker knows no container {container}: run `dev/cluster up`")
        if os.geteuid() != 0:
            raise ClusterError("`dev/cluster exec` enters the network of kind's node, which takes root: use sudo")
        return ["nsenter", f"--net=/proc/{json.loads(answer.stdout)}/ns/net", "--", *command]

    def load(self, archive: Path) -> None:
        """Import an image archive on every node."""
        self._kind("load", "image-archive", str(archive), "--name", self.layout.name)

    def image_stamps(self) -> Path | None:
        """Where dev/image notes what it has loaded; it must not outlive the cluster."""
        return self.state / "images"

    def _check_tools(self) -> None:
        missing = [tool for tool in ("docker", "kind") if shutil.which(tool) is None]
        if missing:
            raise ClusterError(
                f"not in PATH: {' and '.join(missing)}. kind is installed with\n"
                "    go install sigs.k8s.io/kind@v0.30.0\n"
                "Without Docker, as root: TIDEGATE_PROVIDER=local"
            )

    def _kind(self, *arguments: str) -> str:
        answer = subprocess.run(["kind", *arguments], capture_output=True, text=True, check=False, cwd=CHECKOUT)
        if answer.returncode:
            raise ClusterError(f"`kind {' '.join(arguments)}` failed: {answer.stderr.strip()}")
        return answer.stdout
