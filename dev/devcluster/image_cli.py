"""The command line of `dev/image`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .errors import ClusterError
from .images import RECIPES, Image, pack
from .layout import cache_dir
from .locking import exclusive
from .prerequisites import extend_path
from .processes import write_atomically
from .program_image import pack_program
from .provider import Provider, choose_provider

PROGRAMS = {"llama-server": ("tidegate-llama-server", ("v1", "v2"))}
"""Images around a program of the user's own: their name and default tags."""


def main(arguments: Sequence[str]) -> int:
    """Pack one image and load it into the cluster; return the exit status."""
    extend_path()
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.image in PROGRAMS) is (options.program is None):
        parser.error(f"--program is for {', '.join(sorted(PROGRAMS))}, which cannot be packed without it")
    try:
        # Held while loading too, so that nobody replaces the archive that is being read.
        with exclusive(cache_dir() / "images.lock", "another dev/image"):
            image = _packed(options)
            if not options.no_load:
                load_once(choose_provider(), image)
    except ClusterError as error:
        print(f"dev/image: {error}", file=sys.stderr)
        return 1
    print(image.archive)
    return 0


def _packed(options: argparse.Namespace) -> Image:
    if options.program is None:
        return pack(RECIPES[options.image], options.tags)
    repository, tags = PROGRAMS[options.image]
    return pack_program(repository, options.program, options.tags or tags, options.root)


def load_once(cluster: Provider, image: Image) -> None:
    """Load the image unless this cluster already holds exactly it."""
    stamps = cluster.image_stamps()
    stamp = stamps / image.key if stamps else None
    if stamp and stamp.exists():
        return
    cluster.load(image.archive)
    if stamp:
        stamp.parent.mkdir(exist_ok=True)
        # A tag names one image: an older image under any of these tags has just been replaced.
        for old in stamp.parent.iterdir():
            if set(old.read_text().split()) & set(image.tags):
                old.unlink()
        write_atomically(stamp, "\n".join(image.tags))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev/image", description="Pack an image of this checkout and load it into the cluster of dev/cluster."
    )
    parser.add_argument("image", choices=sorted({*RECIPES, *PROGRAMS}))
    tags = "tags of the one image (default: operator and gateway dev, testapp v1 to v5)"
    parser.add_argument("tags", nargs="*", metavar="TAG", help=tags)
    program = f"the program to pack, with the libraries beside it, for {', '.join(sorted(PROGRAMS))}"
    parser.add_argument("--program", type=Path, metavar="PATH", help=program)
    root = "a whole system that --program lies in, to be packed as it is"
    parser.add_argument("--root", type=Path, metavar="DIR", help=root)
    parser.add_argument("--no-load", action="store_true", help="only write the archive and print its path")
    return parser
