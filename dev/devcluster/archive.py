"""Container images as archives, written without a container engine.

The format is the one of `docker save`, which containerd, kind and Docker all read.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Layer:
    """An uncompressed layer in a file of its own, with its sha256."""

    path: Path
    digest: str


def layer_of_files(
    files: Mapping[str, Path],
    target: Path,
    texts: Mapping[str, str] | None = None,
    directories: Mapping[str, int] | None = None,
) -> Layer:
    """Write a layer of `files` (path in the image -> file here), small `texts`, and `directories` with their mode.

    Owner, time and order are fixed, so that the same content has the same digest on every run.
    """
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with tarfile.open(draft, "w") as tar:
        for name, mode in sorted(_with_parents(files, texts or {}, directories or {}).items()):
            info = tarfile.TarInfo(name)
            info.type, info.mode = tarfile.DIRTYPE, mode
            tar.addfile(info)
        for name, text in sorted((texts or {}).items()):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
        for name, source in sorted(files.items()):
            _add(tar, name, source)
    with draft.open("rb") as written:
        digest = hashlib.file_digest(written, "sha256").hexdigest()
    draft.replace(target)
    return Layer(target, digest)


def write_archive(
    target: Path, tags: Sequence[str], layers: Sequence[Layer], config: Mapping[str, object], architecture: str
) -> str:
    """Write the image to `target` under all `tags`; return the digest of its configuration, which is the image's id."""
    image = {
        "architecture": architecture,
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in layers]},
    }
    body = json.dumps(image, sort_keys=True).encode()
    digest = hashlib.sha256(body).hexdigest()
    manifest = [
        {
            "Config": f"{digest}.json",
            "RepoTags": list(tags),
            "Layers": [f"{layer.digest}/layer.tar" for layer in layers],
        }
    ]
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with tarfile.open(draft, "w") as tar:
        for name, content in ((f"{digest}.json", body), ("manifest.json", json.dumps(manifest).encode())):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for layer in layers:
            _add(tar, f"{layer.digest}/layer.tar", layer.path)
    draft.replace(target)
    return digest


def _with_parents(
    files: Mapping[str, Path], texts: Mapping[str, str], directories: Mapping[str, int]
) -> dict[str, int]:
    """Every directory of the layer. Parents are written out: an implied one gets whatever mode the runtime likes."""
    modes = {}
    for name in (*files, *texts, *directories):
        for parent in Path(name).parents:
            if parent != Path():
                modes[str(parent)] = 0o755
    return modes | dict(directories)


def _add(tar: tarfile.TarFile, name: str, source: Path) -> None:
    info = tar.gettarinfo(str(source), arcname=name)
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = 0
    info.pax_headers = {}
    if info.issym():
        tar.addfile(info)
        return
    info.mode = 0o755 if info.mode & 0o100 else 0o644
    # Hard links among the sources would otherwise become links to paths that are not in the image.
    info.type, info.linkname, info.size = tarfile.REGTYPE, "", source.stat().st_size
    with source.open("rb") as content:
        tar.addfile(info, content)
