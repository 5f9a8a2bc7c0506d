"""The images of this checkout, packed out of this machine's Python: for clusters that can pull nothing.

Where a container engine is at hand, the Dockerfile makes the operator's image; this makes the same thing without one.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .archive import Layer, layer_of_files, write_archive
from .binary import go_architecture
from .errors import ClusterError
from .layout import CHECKOUT
from .python_layer import (
    FORMAT,
    Python,
    cached_layer,
    compile_ahead,
    copy_sources,
    files_below,
    find_python,
    runtime_layer,
    shared_libraries,
)

# Raise it when the form of the archive changes; the layers stay.
ARCHIVE_FORMAT = "oci"
OUTPUT = CHECKOUT / ".local" / "images"
SOURCES = CHECKOUT / "operator"
CONTRACT = tuple(SOURCES / "tidegate" / part for part in ("__init__.py", "api/__init__.py", "api/names.py", "contract"))
"""What an application that speaks the drain contract needs of the operator's sources."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What goes into an image: our package, and the locked requirements it runs on.

    `parts`: files and packages out of `operator/` that the package uses, if it is another one.
    """

    repository: str
    package: Path
    requirements: Path | None
    entrypoint: tuple[str, ...]
    tags: tuple[str, ...]
    parts: tuple[Path, ...] = ()


RECIPES = {
    "operator": Recipe(
        repository="tidegate-operator",
        package=CHECKOUT / "operator" / "tidegate",
        requirements=CHECKOUT / "requirements" / "operator.txt",
        entrypoint=("python", "-m", "tidegate"),
        tags=("dev",),
    ),
    "gateway": Recipe(
        repository="tidegate-gateway",
        package=CHECKOUT / "operator" / "tidegate",
        requirements=CHECKOUT / "requirements" / "gateway.txt",
        entrypoint=("python", "-m", "tidegate"),
        tags=("dev",),
    ),
    "testapp": Recipe(
        repository="tidegate-testapp",
        package=CHECKOUT / "tests" / "apps",
        requirements=None,
        entrypoint=("python", "-m", "apps.server"),
        tags=("v1", "v2", "v3", "v4", "v5"),
        parts=CONTRACT,
    ),
    # A real engine that knows nothing of Tidegate, and the client libraries that people call it with.
    "engine": Recipe(
        repository="tidegate-engine",
        package=CHECKOUT / "tests" / "engine",
        requirements=CHECKOUT / "requirements" / "engine.txt",
        entrypoint=("python", "-m", "engine.server"),
        tags=("v1", "v2"),
    ),
}


@dataclass(frozen=True, slots=True)
class Image:
    """A packed image. `key` changes with anything that went into it, its tags included."""

    archive: Path
    key: str
    tags: tuple[str, ...]


def pack(recipe: Recipe, tags: Sequence[str] = ()) -> Image:
    """Pack an image unless the archive is already what its inputs give. More tags cost nothing: they name one image.

    The caller holds a lock: layers are shared through the cache.
    """
    names = tuple(f"{recipe.repository}:{tag}" for tag in (tags or recipe.tags))
    python = find_python()
    key = _key(recipe, python, names)
    archive = OUTPUT / f"{recipe.repository}.tar"
    stamp = archive.with_suffix(".key")
    OUTPUT.mkdir(parents=True, exist_ok=True)
    if not (archive.exists() and stamp.exists() and stamp.read_text() == key):
        stamp.unlink(missing_ok=True)
        _write(recipe, python, archive, names)
        stamp.write_text(key)
    return Image(archive, key, names)


def _write(recipe: Recipe, python: Python, archive: Path, names: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=OUTPUT) as workspace:
        layers = [runtime_layer(python)]
        if recipe.requirements:
            layers.append(_requirements_layer(recipe.requirements, python))
        layers.append(package_layer(recipe, python, Path(workspace)))
        config = {
            "Entrypoint": list(recipe.entrypoint),
            "User": "65532:65532",
            "WorkingDir": "/app",
            "Env": [
                "PATH=/usr/local/bin",
                "PYTHONPATH=/app:/app/site-packages",
                "PYTHONUNBUFFERED=1",
                "PYTHONDONTWRITEBYTECODE=1",
            ],
        }
        write_archive(archive, names, layers, config, go_architecture())


def package_layer(recipe: Recipe, python: Python, workspace: Path) -> Layer:
    """Our own code below /app, compiled; made anew each time, since it is what changes."""
    copied = workspace / "app"
    copy_sources(recipe.package, copied / recipe.package.name)
    for part in recipe.parts:
        target = copied / part.relative_to(SOURCES)
        if part.is_dir():
            copy_sources(part, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(part, target)
    compile_ahead(python, copied, "/app")
    return layer_of_files(files_below(copied, "app"), workspace / "package.tar")


def _requirements_layer(requirements: Path, python: Python) -> Layer:
    content = requirements.read_bytes()
    key = hashlib.sha256(f"{FORMAT} {python.key} ".encode() + content).hexdigest()[:12]

    def make(target: Path, workspace: Path) -> Layer:
        installed = workspace / "site-packages"
        _install(requirements, python, installed)
        shutil.rmtree(installed / "bin", ignore_errors=True)  # console scripts that name this machine's paths
        compile_ahead(python, installed, "/app/site-packages")
        files = files_below(installed, "app/site-packages")
        for library in shared_libraries(installed.rglob("*.so*")):
            if not library.is_relative_to(installed):
                files[str(library).lstrip("/")] = library.resolve()
        return layer_of_files(files, target)

    return cached_layer(f"requirements-{key}", make)


def _install(requirements: Path, python: Python, target: Path) -> None:
    """Install the locked requirements, and nothing that is not locked, into a directory of its own."""
    options = [
        "--quiet",
        "--no-compile",
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "--target",
        str(target),
    ]
    command = [str(python.executable), "-m", "pip", "install", *options, "--requirement", str(requirements)]
    if subprocess.run(command, check=False).returncode:
        raise ClusterError(f"pip could not install {requirements.relative_to(CHECKOUT)}; its own message is above")


def _key(recipe: Recipe, python: Python, names: tuple[str, ...]) -> str:
    digest = hashlib.sha256(repr((FORMAT, ARCHIVE_FORMAT, python.key, names, recipe.entrypoint)).encode())
    below = [path for part in (recipe.package, *recipe.parts) for path in (part, *part.rglob("*"))]
    sources = sorted(path for path in below if path.is_file() and "__pycache__" not in path.parts)
    for path in (*sources, *([recipe.requirements] if recipe.requirements else [])):
        digest.update(str(path.relative_to(CHECKOUT)).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
