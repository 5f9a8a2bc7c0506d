"""An image around a program that somebody else built, as it is: nothing of it belongs to this checkout."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .archive import layer_of_files, write_archive
from .binary import go_architecture
from .errors import ClusterError
from .images import ARCHIVE_FORMAT, OUTPUT, Image
from .python_layer import DIRECTORIES, FORMAT, GROUPS, USERS, shared_libraries

HOME = "app"


def pack_program(repository: str, program: Path, tags: Sequence[str], root: Path | None = None) -> Image:
    """The program as the image's entrypoint, with the libraries that lie beside it and those that they link to.

    With `root`, a directory that holds a whole system, as a distribution's packages give it, the image is that, and
    the program is where it is in there. The caller holds a lock, as for `pack`. Raises ClusterError when there is no
    such program.
    """
    program = program.resolve()
    if not program.is_file() or not program.stat().st_mode & 0o100:
        raise ClusterError(f"{program} is no program: give the path of the one to pack")
    if root is not None and not program.is_relative_to(root.resolve()):
        raise ClusterError(f"{program} is not below {root}")
    names = tuple(f"{repository}:{tag}" for tag in tags)
    files = _with_libraries(program) if root is None else _whole(root)
    inside = f"/{HOME}/{program.name}" if root is None else f"/{program.relative_to(root.resolve())}"
    config = {
        "Entrypoint": [inside],
        "User": "65532:65532",
        "WorkingDir": "/",
        "Env": ["PATH=/usr/local/bin:/usr/bin", *([f"LD_LIBRARY_PATH=/{HOME}"] if root is None else [])],
    }
    OUTPUT.mkdir(parents=True, exist_ok=True)
    archive = OUTPUT / f"{repository}.tar"
    with tempfile.TemporaryDirectory(prefix=".draft-", dir=OUTPUT) as workspace:
        texts = {"etc/passwd": USERS, "etc/group": GROUPS}
        files = {name: path for name, path in files.items() if name not in texts}
        layer = layer_of_files(files, Path(workspace) / "program.tar", texts, DIRECTORIES)
        identity = write_archive(archive, names, [layer], config, go_architecture())
    key = hashlib.sha256(repr((FORMAT, ARCHIVE_FORMAT, identity, names)).encode()).hexdigest()[:16]
    return Image(archive, key, names)


def _with_libraries(program: Path) -> dict[str, Path]:
    beside = sorted(path for path in program.parent.glob("*.so*") if path.is_file())
    linked = {path for path in shared_libraries([program, *beside], program.parent) if path.parent != program.parent}
    files = {f"{HOME}/{path.name}": path.resolve() for path in (program, *beside)}
    return files | {str(path).lstrip("/"): path.resolve() for path in linked}


def _whole(root: Path) -> dict[str, Path]:
    return {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file() or path.is_symlink()}
