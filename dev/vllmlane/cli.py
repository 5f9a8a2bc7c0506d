"""The command `dev/lane-vllm`."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from .model import make_model
from .site import OFFLINE, ONE_THREAD, Site, process, until
from .stories import STORIES, BrokenPromise

CHECKOUT = Path(__file__).resolve().parents[2]
DESCRIPTION = """\
vLLM on the CPU behind `tidegate gateway`, without Kubernetes: `make lane-vllm VLLM=ENVIRONMENT`.

    ENVIRONMENT/bin/python dev/lane-vllm [--tidegate .venv/bin/tidegate]

Runs under the Python of an environment that has vLLM, whose requirements bring the `openai` package and `tokenizers`
too. It makes a small random model on the spot, starts vLLM and the gateway as processes of this machine, and tells
what the real clients see when the gateway is drained. Ends with 1 when a story does not come out as promised.
"""


def main(arguments: Sequence[str]) -> int:
    """Play every story; exit code 1 when one does not come out as promised."""
    parser = argparse.ArgumentParser(
        prog="dev/lane-vllm", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tidegate", type=Path, default=CHECKOUT / ".venv" / "bin" / "tidegate")
    tidegate = parser.parse_args(arguments).tidegate
    vllm = Path(sys.executable).parent / "vllm"
    if not vllm.exists():
        parser.error(f"{vllm} is not there: run this with the Python of an environment that has vLLM")
    try:
        with tempfile.TemporaryDirectory() as directory:
            _play(Path(directory), vllm, tidegate)
    except BrokenPromise as error:
        print(f"dev/lane-vllm: not as promised: {error}", file=sys.stderr)
        return 1
    return 0


def _play(directory: Path, vllm: Path, tidegate: Path) -> None:
    make_model(directory)
    site, keys = Site(), directory / "keys"
    keys.mkdir()
    (keys / "current").write_text(site.key)
    with process(site.engine_command(vllm, directory), directory / "vllm.log", **OFFLINE, **ONE_THREAD):
        health = f"http://127.0.0.1:{site.engine}/health"
        until("vLLM answers", lambda: urllib.request.urlopen(health, timeout=5).status == 200)
        for story in STORIES:
            with process(site.gateway_command(tidegate, keys), directory / "gateway.log"):
                until("the gateway serves", lambda: site.drain("GET")["state"] == "serving")
                print(f"{story.__name__}: {asyncio.run(story(site))}", flush=True)
