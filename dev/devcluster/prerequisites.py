"""What the local cluster needs from the machine, and the one command that installs it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from .errors import ClusterError

# program -> Debian package
PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "openssl": "openssl",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
}
CNI_DIRECTORIES = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
CNI_PLUGINS = ("bridge", "host-local", "loopback", "portmap")
# Where Debian keeps programs that a user's PATH may lack.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def extend_path() -> None:
    """Let the programs of /usr/sbin be found, here and by everything started from here."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}"


def find_cni_plugins() -> Path | None:
    """The directory that holds every network plugin we use."""
    for directory in CNI_DIRECTORIES:
        if all((directory / plugin).exists() for plugin in CNI_PLUGINS):
            return directory
    return None


def missing_packages() -> dict[str, list[str]]:
    """Debian packages that are missing, with what each is missed for."""
    missing: dict[str, list[str]] = {}
    for program, package in PROGRAMS.items():
        if shutil.which(program) is None:
            missing.setdefault(package, []).append(program)
    if find_cni_plugins() is None:
        missing["containernetworking-plugins"] = [f"the CNI plugins {', '.join(CNI_PLUGINS)}"]
    return missing


def check_machine() -> None:
    """Raise ClusterError naming everything that is missing and the command that mends it."""
    if sys.platform != "linux":
        raise ClusterError(
            f"the local cluster needs Linux, this is {sys.platform}. Start Docker and install kind, "
            "or name a cluster you have: TIDEGATE_KUBECONFIG=PATH dev/cluster ..."
        )
    check_root()
    if missing := missing_packages():
        what = "; ".join(f"{', '.join(users)} (package {package})" for package, users in missing.items())
        raise ClusterError(f"missing on this machine: {what}.\nInstall with:\n    {install_command(list(missing))}")


def check_root() -> None:
    """Raise ClusterError with the ways out when this is not root."""
    if os.geteuid() != 0:
        raise ClusterError(
            "the local cluster makes network namespaces and mounts, which takes root: run the same command with sudo.\n"
            "Without root: start Docker and install kind, or name a cluster you have with TIDEGATE_KUBECONFIG=PATH."
        )


def install_command(packages: list[str]) -> str:
    """The command a person runs; on distributions without apt the names are a guess and said to be Debian's."""
    if shutil.which("apt-get"):
        return f"apt-get update && apt-get install -y --no-install-recommends {' '.join(packages)}"
    return f"(Debian's names; your distribution's may differ) {' '.join(packages)}"
