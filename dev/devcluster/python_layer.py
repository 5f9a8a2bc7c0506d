"""This machine's Python as an image layer: interpreter, standard library, and the shared libraries they link to."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .archive import Layer, layer_of_files
from .errors import ClusterError
from .layout import CHECKOUT, cache_dir

MakeLayer = Callable[[Path, Path], Layer]
# Part of every cache key: raise it when the way of packing changes.
FORMAT = "2"
_LEFT_OUT = {
    "__pycache__",
    "test",
    "tests",
    "idlelib",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "tkinter",
    "site-packages",
}
_LEFT_OUT_PREFIXES = ("config-", "dist-packages")
USERS = "root:x:0:0:root:/:/\nnonroot:x:65532:65532::/:/\n"
GROUPS = "root:x:0:\nnonroot:x:65532:\n"
DIRECTORIES = {"tmp": 0o1777, "proc": 0o755, "sys": 0o755, "dev": 0o755, "run": 0o755}


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter on this machine, asked for its own description."""

    executable: Path
    version: str
    stdlib: Path

    @property
    def short(self) -> str:
        """The version as directories have it, 3.11."""
        return ".".join(self.version.split(".")[:2])

    @property
    def key(self) -> str:
        """Changes with anything that makes another layer."""
        changed = self.executable.stat().st_mtime_ns
        return _hash(FORMAT, str(self.executable), self.version, str(self.stdlib), str(changed))


def find_python() -> Python:
    """The interpreter behind the checkout's .venv, else the one that runs this."""
    venv = CHECKOUT / ".venv" / "bin" / "python"
    asked = venv if venv.exists() else Path(sys.executable)
    question = (
        "import json, os, platform, sys; print(json.dumps([platform.python_version(), os.path.dirname(os.__file__)]))"
    )
    answer = subprocess.run([str(asked), "-c", question], capture_output=True, text=True, check=False)
    if answer.returncode:
        raise ClusterError(f"{asked} does not run: {answer.stderr.strip()}\nMake it again with `make setup`")
    version, stdlib = json.loads(answer.stdout)
    return Python(asked.resolve(), version, Path(stdlib))


def runtime_layer(python: Python) -> Layer:
    """Interpreter and standard library at /usr/local, compiled ahead so that pods start quickly. Kept in the cache."""

    def make(target: Path, workspace: Path) -> Layer:
        library = workspace / "lib"
        copy_sources(python.stdlib, library)
        in_image = f"usr/local/lib/python{python.short}"
        compile_ahead(python, library, f"/{in_image}")
        files = files_below(library, in_image)
        program = f"usr/local/bin/python{python.short}"
        files[program] = python.executable
        for alias in ("python3", "python"):
            link = workspace / alias
            link.symlink_to(Path(program).name)
            files[f"usr/local/bin/{alias}"] = link
        objects = [python.executable, *library.rglob("*.so")]
        files |= {str(path).lstrip("/"): path.resolve() for path in shared_libraries(objects)}
        return layer_of_files(files, target, {"etc/passwd": USERS, "etc/group": GROUPS}, DIRECTORIES)

    return cached_layer(f"python-{python.key}", make)


def cached_layer(name: str, make: MakeLayer) -> Layer:
    """The layer `name` from the cache, or made by `make(target, workspace)`. Its name changes with its content."""
    directory = cache_dir() / "layers"
    directory.mkdir(parents=True, exist_ok=True)
    target, digest = directory / f"{name}.tar", directory / f"{name}.sha256"
    if target.exists() and digest.exists():
        return Layer(target, digest.read_text())
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=directory) as workspace:
        layer = make(target, Path(workspace))
    digest.write_text(layer.digest)
    return layer


def copy_sources(source: Path, target: Path) -> None:
    """Copy a tree of Python code without tests, caches and what only builds need."""

    def left_out(_directory: str, names: list[str]) -> set[str]:
        return {n for n in names if n in _LEFT_OUT or n.startswith(_LEFT_OUT_PREFIXES) or n.endswith((".pyc", ".a"))}

    shutil.copytree(source, target, ignore=left_out)


def compile_ahead(python: Python, directory: Path, in_image: str) -> None:
    """Compile for a read-only root. Caches that check times would be stale: the layer gives every file the same."""
    options = ["-q", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(directory), "-p", in_image]
    # Its status is non-zero for the odd file that is not meant for this version; those stay sources.
    subprocess.run([str(python.executable), "-m", "compileall", *options, str(directory)], check=False)


def files_below(directory: Path, in_image: str) -> dict[str, Path]:
    """Every file of a tree with its path in the image."""
    return {
        f"{in_image}/{path.relative_to(directory)}": path
        for path in sorted(directory.rglob("*"))
        if path.is_file() or path.is_symlink()
    }


def shared_libraries(objects: Iterable[Path], beside: Path | None = None) -> set[Path]:
    """The shared libraries that `objects` link to, at the paths where the loader looks for them, `beside` first."""
    search = {"LD_LIBRARY_PATH": str(beside)} if beside else {}
    command = ["ldd", *map(str, objects)]
    listed = subprocess.run(command, env=os.environ | search, capture_output=True, text=True, check=False).stdout
    return {Path(os.path.normpath(found)) for found in re.findall(r"(/\S+) \(0x", listed)}


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
