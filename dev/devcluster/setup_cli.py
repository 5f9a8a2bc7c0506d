"""What `make setup` does to the machine, as opposed to the checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

from . import prometheus
from .binary import check_toolchain
from .errors import ClusterError
from .local import LocalCluster
from .prerequisites import check_machine, extend_path, install_command, missing_packages
from .provider import choose_provider


def main() -> int:
    """Install or name what is missing; return the exit status."""
    extend_path()
    try:
        _prepare()
    except ClusterError as error:
        print(f"dev/setup: {error}", file=sys.stderr)
        return 1
    return 0


def _prepare() -> None:
    packages = [] if importlib.util.find_spec("ensurepip") else ["python3-venv"]
    local = isinstance(choose_provider(), LocalCluster)
    if local and sys.platform == "linux":
        packages += missing_packages()
    if packages:
        _install(packages)
    prometheus.fetch()
    if local:
        check_machine()
        check_toolchain()


def _install(packages: list[str]) -> None:
    command = install_command(packages)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        who = "" if os.geteuid() == 0 else "As root, "
        raise ClusterError(f"missing on this machine: {', '.join(packages)}. {who}run\n    {command}")
    print(f"installing {', '.join(packages)}", file=sys.stderr, flush=True)
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(["sh", "-c", command], env=quiet, stdout=sys.stderr, check=False).returncode:
        raise ClusterError(f"the installation failed; its own message is above. It was\n    {command}")
