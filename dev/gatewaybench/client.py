"""The client: many streams at once, each chunk's way timed, or short calls one after the other on each connection."""

import argparse
import asyncio
import json
import re
import time
from array import array
from functools import partial
from typing import cast

MOMENT = re.compile(rb'"t":(\d+),')
LAST = b"data: [DONE]"


class Stream(asyncio.Protocol):
    """One request; done when its end has come or the connection went."""

    def __init__(self, request: bytes, ways: "array[int]", done: asyncio.Future[bool]) -> None:
        self.request, self.ways, self.done = request, ways, done
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Note how long each chunk was on its way."""
        now = time.monotonic_ns()
        data = self.rest + data
        end = 0
        for found in MOMENT.finditer(data):
            self.ways.append(now - int(found[1]))
            end = found.end()
        self.rest = data[max(end, len(data) - 40) :]
        if LAST in data and not self.done.done():
            self.done.set_result(True)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own name
        """A stream without its end is not whole."""
        if not self.done.done():
            self.done.set_result(False)


async def streams(port: int, count: int, chunks: int, arrivals: str) -> dict[str, object]:
    """`count` streams at once; how many were whole, and the ways' p50 and p99 in milliseconds."""
    loop = asyncio.get_running_loop()
    target = f"/v1/stream?chunks={chunks}&arrivals={arrivals}"
    request = f"GET {target} HTTP/1.1\r\nHost: bench\r\nAccept: text/event-stream\r\n\r\n".encode()
    ways: array[int] = array("q")
    ends = []
    for _ in range(count):
        done: asyncio.Future[bool] = loop.create_future()
        await loop.create_connection(partial(Stream, request, ways, done), "127.0.0.1", port)
        ends.append(done)
    whole = await asyncio.wait_for(asyncio.gather(*ends), 120)
    ordered = sorted(ways)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] / 1e6

    return {"whole": sum(whole), "chunks": len(ways), "p50": at(0.50), "p99": at(0.99)}


async def short_calls(port: int, connections: int, calls: int) -> dict[str, object]:
    """`calls` calls on each of `connections`; how many a second."""
    request = b"GET /v1/short HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\n\r\n"

    async def caller() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(calls):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            if length is None or not head.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"not the answer that was expected: {head[:80]!r}")
            await reader.readexactly(int(length[1]))
        writer.close()

    began = time.monotonic()
    await asyncio.wait_for(asyncio.gather(*(caller() for _ in range(connections))), 120)
    return {"calls": connections * calls, "perSecond": connections * calls / (time.monotonic() - began)}


def main() -> None:
    """Print the figures of one load as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    kinds = parser.add_subparsers(dest="kind", required=True)
    many = kinds.add_parser("streams")
    many.add_argument("--count", type=int, required=True)
    many.add_argument("--chunks", type=int, required=True)
    many.add_argument("--arrivals", choices=("staggered", "burst"), required=True)
    short = kinds.add_parser("short")
    short.add_argument("--connections", type=int, required=True)
    short.add_argument("--calls", type=int, required=True)
    options = parser.parse_args()
    import uvloop

    if options.kind == "streams":
        work = streams(options.port, options.count, options.chunks, options.arrivals)
    else:
        work = short_calls(options.port, options.connections, options.calls)
    print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    main()
