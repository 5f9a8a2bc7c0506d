"""What every pod of a service behind the gateway has to pull, and to keep on its node."""

import json
import subprocess
import tarfile
import zlib
from pathlib import Path
from typing import IO

from cluster.harness.kube import CHECKOUT

PULLED_MEGABYTES, KEPT_MEGABYTES = 60, 150
"""37 and 101 when this was written; a heavy dependency, or the operator's, would not fit."""
PIECE_BYTES = 1024 * 1024


def sizes(layer: IO[bytes]) -> tuple[int, int]:
    """Bytes as registries send them, compressed, and as they are."""
    packer, packed, plain = zlib.compressobj(), 0, 0
    while piece := layer.read(PIECE_BYTES):
        packed += len(packer.compress(piece))
        plain += len(piece)
    return packed + len(packer.flush()), plain


def test_the_image_of_the_gateway_is_a_few_dozen_megabytes() -> None:
    command = [f"{CHECKOUT}/dev/image", "gateway", "--no-load"]
    archive = Path(subprocess.check_output(command, text=True).splitlines()[-1])
    with tarfile.open(archive) as image:
        (manifest,) = json.load(image.extractfile("manifest.json"))  # type: ignore[arg-type]
        found = [sizes(layer) for name in manifest["Layers"] if (layer := image.extractfile(name))]
    assert len(found) == len(manifest["Layers"]) >= 3, manifest
    pulled, kept = (sum(column) / 1e6 for column in zip(*found, strict=True))
    assert 0 < pulled < PULLED_MEGABYTES and kept < KEPT_MEGABYTES, (pulled, kept)
