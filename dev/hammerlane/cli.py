"""The command `dev/hammer`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from .book import Book
from .clients import Clients
from .engine import well_behaved, wild
from .watch import KEY, Ended, Gateway, faults, gateway

CHECKOUT = Path(__file__).resolve().parents[2]
DESCRIPTION = """\
Hammers `tidegate gateway`, a real process on 127.0.0.1, in two rounds of --seconds each: `make hammer`.

    hammer  the tests' engine, and clients that abort, pipeline, upgrade, upload and read slowly
    fuzz    an engine that answers with anything, clients that ask for anything, and noise on the admin port

In both, drains begin and are undone all the time, and some end what is running. After each round nothing may be left:
no request in flight, no memory and no descriptor that was not held after the warm-up, no line in the log that does not
belong there; and no request may have reached the engine more often than its client has sent it. Then the gateway is
terminated in the middle of traffic, and must exit with 0. Ends with 1 if anything of that is not so.
"""
MOST_SHOWN = 60
WARM_UP = 0.25
"""Of the time of a round: until then memory may grow to what this traffic needs."""
HAMMER = {
    "stream": (6, 0.02), "abort": (8, 0.02), "pipeline": (4, 0.02), "kept": (4, 0.1), "upload": (3, 0.05),
    "slow": (4, 0.1), "upgrade": (5, 0.05), "drains": (1, 3.0),
}  # fmt: skip
FUZZ = {
    "noise": (24, 0.02),
    "stream": (4, 0.05),
    "abort": (4, 0.05),
    "upgrade": (2, 0.1),
    "admin_noise": (6, 0.05),
    "drains": (1, 3.0),
}
"""For each act: how many do it at a time, and the longest pause between two times in seconds."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: what is done, and whether to the engine that answers with anything."""

    name: str
    acts: dict[str, tuple[int, float]]
    wild: bool


ROUNDS = (Round("hammer", HAMMER, wild=False), Round("fuzz", FUZZ, wild=True))


def main(arguments: Sequence[str]) -> int:
    """Run both rounds; exit code 1 when something is left."""
    parser = argparse.ArgumentParser(
        prog="dev/hammer", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=_positive, default=180.0, metavar="S", help="of each round (default 180)")
    parser.add_argument(
        "--seed", type=int, default=None, metavar="N", help="of all chance (default: told in the output)"
    )
    given = parser.parse_args(arguments)
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    # Writing to who has left is this lane's trade.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    command = [str(CHECKOUT / ".venv" / "bin" / "tidegate"), "gateway"]
    found = []
    for each in ROUNDS:
        try:
            found += [f"{each.name}: {fault}" for fault in asyncio.run(play(each, command, given.seconds, seed))]
        except Ended as error:
            found.append(f"{each.name}: {error}")
    for fault in found[:MOST_SHOWN]:
        print(f"dev/hammer: {fault}", file=sys.stderr)
    print(f"seed {seed}: {len(found)} faults", flush=True)
    return 1 if found else 0


def _positive(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return seconds


async def play(
    what: Round, command: Sequence[str], seconds: float, seed: int, tell: Callable[[str], None] = print
) -> list[str]:
    """One round against a gateway that `command` starts; returns the faults that were found. Raises Ended."""
    book = Book()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        async with (
            wild(book, seed) if what.wild else well_behaved(book, directory / "engine.jsonl") as upstream,
            gateway(command, upstream, directory) as front,
        ):
            fresh = await front.quiet(None)
            async with _traffic(what, book, front, seed):
                await asyncio.sleep(seconds * WARM_UP)
            before = await front.quiet(fresh.open)
            async with _traffic(what, book, front, seed + 1):
                await asyncio.sleep(seconds)
            after = await front.quiet(fresh.open)
            found = faults(before, after, book, front.stray())
            tell(f"{what.name}: {seconds:g} s, {len(book.sent)} requests, {front.cpu_seconds():.0f} s of CPU")
            for label, figure in (("memory KiB", "rss"), ("descriptors", "open")):
                values = [getattr(moment, figure) for moment in (fresh, before, after)]
                shown = [value >> 10 if figure == "rss" else value for value in values]
                tell(f"  {label}: fresh {shown[0]}, after the warm-up {shown[1]}, at the end {shown[2]}")
            tell("  " + ", ".join(f"{end} {times}" for end, times in sorted(book.ends.items())))
            found += [
                f"{act}: nothing of it was done" for act in what.acts if not any(e.split()[0] == act for e in book.ends)
            ]
            found += await _terminated(what, book, front, seed)
    return found


async def _terminated(what: Round, book: Book, front: Gateway, seed: int) -> list[str]:
    """End it in the middle of traffic; what is wrong with that."""
    told = len(front.stray())
    # What is open when the process ends is closed by that.
    closed_by_exit = ("unclosed", "loop.close()")
    async with _traffic(what, book, front, seed + 2):
        await asyncio.sleep(1.0)
        try:
            code = await front.end()
        except TimeoutError:
            return ["it has not exited after SIGTERM"]
    found = [f"exit code {code} after SIGTERM"] if code else []
    return found + [
        f"stray line after SIGTERM: {line}"
        for line in front.stray()[told:]
        if not any(w in line for w in closed_by_exit)
    ]


@asynccontextmanager
async def _traffic(what: Round, book: Book, front: Gateway, seed: int) -> AsyncIterator[None]:
    clients = Clients(book, front.port, front.admin, KEY, seed)
    running = [
        asyncio.create_task(clients.repeat(getattr(clients, act), pause))
        for act, (count, pause) in what.acts.items()
        for _ in range(count)
    ]
    try:
        yield
    finally:
        clients.stop.set()
        await asyncio.gather(*running)
