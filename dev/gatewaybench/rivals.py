"""What is measured: the gateway as it is shipped, other proxies with one worker each, and no proxy at all."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

CONFIGS = Path(__file__).with_name("configs")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Rival:
    """One proxy to measure. `command` takes its directory and its ports by name."""

    name: str
    command: Callable[[Path, dict[str, int]], list[str]]
    needs: Callable[[], str | None]
    """What is missing on this machine, in words; None: nothing."""


def _config(name: str, directory: Path, ports: dict[str, int]) -> str:
    text = (CONFIGS / name).read_text()
    for key, port in ports.items():
        text = text.replace(f"@{key.upper()}@", str(port))
    path = directory / name
    path.write_text(text.replace("@DIR@", str(directory)))
    return str(path)


def _gateway(directory: Path, ports: dict[str, int]) -> list[str]:
    (directory / "current").write_text("bench-key")
    return [
        *(sys.executable, "-m", "tidegate", "gateway"),
        *("--listen", f"127.0.0.1:{ports['listen']}", "--upstream", f"127.0.0.1:{ports['upstream']}"),
        *("--admin", f"127.0.0.1:{ports['admin']}", "--key-dir", str(directory)),
        *("--total-seconds", "600", "--idle-seconds", "60"),
    ]


def _envoy(directory: Path, ports: dict[str, int]) -> list[str]:
    found = shutil.which("envoy") or shutil.which("envoy", path=str(Path(sys.executable).parent))
    return [str(found), "--concurrency", "1", "-l", "warn", "-c", _config("envoy.yaml", directory, ports)]


def _haproxy(directory: Path, ports: dict[str, int]) -> list[str]:
    return [_system("haproxy"), "-db", "-f", _config("haproxy.cfg", directory, ports)]


def _nginx(directory: Path, ports: dict[str, int]) -> list[str]:
    return [_system("nginx"), "-p", str(directory), "-c", _config("nginx.conf", directory, ports)]


def _system(program: str) -> str:
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin") or program


def _program(name: str) -> Callable[[], str | None]:
    def missing() -> str | None:
        beside = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:{Path(sys.executable).parent}")
        return None if beside else f"{name} is not installed"

    return missing


def _module(name: str) -> Callable[[], str | None]:
    return lambda: None if find_spec(name) else f"the Python module {name} is not installed"


RIVALS = (
    Rival("tidegate", _gateway, _module("httptools")),
    Rival("envoy", _envoy, _program("envoy")),
    Rival("haproxy", _haproxy, _program("haproxy")),
    Rival("nginx", _nginx, _program("nginx")),
)


class Running:
    """A proxy's process and its children, ended by their ids."""

    def __init__(self, rival: Rival, ports: dict[str, int]) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="bench-gateway-")
        path = Path(self.directory.name)
        path.chmod(0o755)
        self.log = (path / "log").open("wb")
        self.process = subprocess.Popen(rival.command(path, ports), stdout=self.log, stderr=self.log)

    def tree(self) -> list[int]:
        """Pids of the process and all its descendants."""
        pids = [self.process.pid]
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                pids += [int(child) for child in task.read_text().split()]
        return pids

    def cpu_seconds(self) -> float:
        """User and system time of the tree so far."""
        total = 0
        for pid in self.tree():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / TICKS

    def memory_mb(self) -> float:
        """Resident memory of the tree."""
        total = 0
        for pid in self.tree():
            status = Path(f"/proc/{pid}/status").read_text()
            total += next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        return total * 1024 / 1e6

    def log_tail(self) -> str:
        """The end of its log, for error messages."""
        return (Path(self.directory.name) / "log").read_text(errors="replace")[-500:]

    def close(self) -> None:
        """End it, by force where it does not go within 5 s."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.directory.cleanup()
