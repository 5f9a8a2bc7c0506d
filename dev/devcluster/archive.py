"""Container images as archives, written without a container engine.

The format is an OCI layout with Docker's manifest beside it, as `docker save` writes it, so that containerd, kind and
Docker read it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BLOBS = "blobs/sha256/"


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
            _add_bytes(tar, name, text.encode())
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
    body = _json(image)
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor("application/vnd.oci.image.config.v1+json", body),
            "layers": [_layer_descriptor(layer) for layer in layers],
        }
    )
    entry = _descriptor(MANIFEST, manifest)
    named = [entry | {"annotations": {"io.containerd.image.name": tag}} for tag in map(full_name, tags)]
    docker = [{"Config": _blob(_sha256(body)), "RepoTags": list(tags), "Layers": [_blob(la.digest) for la in layers]}]
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    with tarfile.open(draft, "w") as tar:
        _add_bytes(tar, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        _add_bytes(tar, "index.json", _json({"schemaVersion": 2, "manifests": named}))
        _add_bytes(tar, "manifest.json", _json(docker))
        _add_bytes(tar, _blob(_sha256(body)), body)
        _add_bytes(tar, _blob(_sha256(manifest)), manifest)
        for layer in layers:
            _add(tar, _blob(layer.digest), layer.path)
    draft.replace(target)
    return _sha256(body)


def without_layers(archive: Path, held: Collection[str], target: Path) -> bool:
    """Copy an archive without the blobs whose sha256 is in `held`; False, and no copy, when it is of another form."""
    with tarfile.open(archive) as whole:
        members = whole.getmembers()
        if "oci-layout" not in {member.name for member in members}:
            return False
        with tarfile.open(target, "w") as part:
            for member in members:
                if member.isreg() and not (member.name.startswith(BLOBS) and member.name.removeprefix(BLOBS) in held):
                    part.addfile(member, whole.extractfile(member))
    return True


def full_name(tag: str) -> str:
    """A tag as containerd knows it: with a registry, which is Docker's own where none is named."""
    first, slash, _ = tag.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return tag
    return f"docker.io/{tag}" if slash else f"docker.io/library/{tag}"


def _blob(digest: str) -> str:
    return BLOBS + digest


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": f"sha256:{_sha256(content)}", "size": len(content)}


def _layer_descriptor(layer: Layer) -> dict[str, object]:
    size = layer.path.stat().st_size
    return {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": f"sha256:{layer.digest}", "size": size}


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    tar.addfile(info, io.BytesIO(content))


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
