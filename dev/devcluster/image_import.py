"""Images into a node's containerd."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from .archive import without_layers
from .errors import ClusterError
from .layout import Layout


def import_image(layout: Layout, node: str, archive: Path) -> None:
    """Import an image archive into one node's containerd, sending only the layers that it does not hold."""
    held = {digest.removeprefix("sha256:") for digest in _ctr(layout, node, "content", "ls", "--quiet").split()}
    with tempfile.TemporaryDirectory(prefix="import-", dir=layout.data) as workspace:
        part = Path(workspace) / archive.name
        if without_layers(archive, held, part):
            # A layer may have been collected since we asked for it; then the whole archive is sent.
            with suppress(ClusterError):
                _ctr(layout, node, "images", "import", str(part))
                return
    _ctr(layout, node, "images", "import", str(archive))


def _ctr(layout: Layout, node: str, *arguments: str) -> str:
    command = ["ctr", "--address", str(layout.socket(node)), "--namespace", "k8s.io", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise ClusterError(f"{node}: `ctr {' '.join(arguments)}` failed: {answer.stderr.strip()}")
    return answer.stdout
