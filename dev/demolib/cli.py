"""The command line of `dev/demo`."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path

from rich.console import Console

from . import manifests, summary
from .api import Api
from .errors import DemoError
from .installation import begin_removal, install, remove
from .play import NEW, Act, Plan
from .tally import Tally
from .view import Screen

EPILOG = """\
environment:
  KEEP=1              leave the service running under Tidegate, to look at
  FAST=1              as --fast
  CI=true             a line per change instead of a live view (so too without a terminal)
  TIDEGATE_...        which cluster: see `dev/cluster --help`

exit status: 0; 1 if Tidegate cut or refused a stream; 2 if the demo could not be played; 130 after Ctrl-C
"""
LONG = Plan(replicas=3, streams=36, seconds="5-60", settle=10, budget=120)
FAST = Plan(replicas=3, streams=24, seconds="3-12", settle=4, budget=60)
PLAIN_NAMESPACE = f"{manifests.NAMESPACE}-plain"


def main(arguments: Sequence[str]) -> int:
    """Play the demo on the cluster that is up; return the exit status."""
    options = _parser().parse_args(arguments)
    live = not os.environ.get("CI") and not options.lines
    console = Console(highlight=False)
    live = live and console.is_terminal and not console.is_dumb_terminal
    if not live and not console.is_terminal:
        console = Console(highlight=False, width=120)
    try:
        return asyncio.run(_until_signalled(_demo(console, options, live=live)))
    except DemoError as error:
        print(f"dev/demo: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("dev/demo: interrupted", file=sys.stderr)
        return 130


async def _until_signalled(work: Coroutine[None, None, int]) -> int:
    """Run; a first SIGINT, SIGTERM or SIGHUP cancels, which cleans up; a second one leaves at once."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.remove_signal_handler(number)
        print("\ndev/demo: cleaning up; again to leave at once", file=sys.stderr)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    return await task


async def _demo(console: Console, options: argparse.Namespace, *, live: bool) -> int:
    plan = FAST if options.fast or os.environ.get("FAST") else LONG
    keep = bool(os.environ.get("KEEP"))
    async with Api.open() as api:
        console.print("Installing the CRD, the policies and the operator; removing what an earlier demo left ...")
        await remove(api, [manifests.NAMESPACE, PLAIN_NAMESPACE])
        await install()
        done = False
        try:
            tidegate = await _act(api, console, plan, plain=False, live=live)
            if not keep:
                await begin_removal(api, [manifests.NAMESPACE])
            plain = None if options.only_tidegate else await _act(api, console, plan, plain=True, live=live)
            done = True
        finally:
            gone = [PLAIN_NAMESPACE] if done and keep else [manifests.NAMESPACE, PLAIN_NAMESPACE]
            await remove(api, gone)
        if keep:
            await api.delete(f"/api/v1/namespaces/{manifests.NAMESPACE}/pods/{manifests.LOAD}")
    summary.show(console, tidegate, plain)
    if options.record:
        summary.record(options.record, {"tidegate": tidegate} | ({"plain": plain} if plain else {}))
    if keep:
        console.print(f"Kept: dev/cluster kubectl -n {manifests.NAMESPACE} describe llmservice {manifests.SERVICE}")
    if tidegate.failed:
        print(f"dev/demo: Tidegate cut {tidegate.cut} streams and refused {tidegate.refused}", file=sys.stderr)
    return 1 if tidegate.failed else 0


async def _act(api: Api, console: Console, plan: Plan, *, plain: bool, live: bool) -> Tally:
    act = Act(api, plan, PLAIN_NAMESPACE if plain else manifests.NAMESPACE, plain=plain)
    title = "a plain Deployment, whose process exits on SIGTERM" if plain else "Tidegate"
    with Screen(console, f"{title}: {manifests.SERVICE} gets image {NEW}", act.tally, act.clock, live=live) as screen:
        await act.play(screen)
    return act.tally


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev/demo",
        description="A rollout under load by Tidegate, then the same by a plain Deployment. Needs a cluster that is up"
        " and the images in it: `make demo` sees to both.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--fast", action="store_true", help="streams of 3-12 s instead of 5-60 s: about two minutes")
    parser.add_argument("--lines", action="store_true", help="a line per change, also on a terminal")
    parser.add_argument("--only-tidegate", action="store_true", help="without the comparison")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what was seen, for dev/picture")
    return parser
