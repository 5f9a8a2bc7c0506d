"""An engine without a model: streams of numbered moments, 50 chunks a second each, and one short answer.

Every chunk carries the moment at which it was written, by the clock that all processes of one machine share
(CLOCK_MONOTONIC), so the client can tell how long it was on its way.
"""

import argparse
import asyncio
import time
from collections import deque
from typing import cast
from urllib.parse import parse_qs, urlsplit

PERIOD = 0.02
SLOTS = 20
"""A period has so many moments at which streams can be served: staggered streams are spread over them."""
CHUNK_BYTES = 150
HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
SHORT = b'{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"' + b"x" * 120 + b'"}]}'
SHORT_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(SHORT) + SHORT


class Ticker:
    """Writes to the streams of one slot at its moment of each period."""

    def __init__(self) -> None:
        self.slots: list[dict[Connection, int]] = [{} for _ in range(SLOTS)]
        self.turn = 0

    def add(self, connection: "Connection", chunks: int, slot: int | None) -> None:
        """Serve `chunks` chunks to a stream in `slot`; None: the next one in turn."""
        if slot is None:
            slot, self.turn = self.turn, (self.turn + 1) % SLOTS
        self.slots[slot][connection] = chunks

    def remove(self, connection: "Connection") -> None:
        """Serve the connection no more."""
        for slot in self.slots:
            slot.pop(connection, None)

    async def run(self) -> None:
        """Tick until cancelled."""
        began, n = time.monotonic(), 0
        while True:
            for connection, left in list(self.slots[n % SLOTS].items()):
                event = b'data: {"t":%d,"choices":[{"index":0,"delta":{"content":"' % time.monotonic_ns()
                event = event.ljust(CHUNK_BYTES - 8, b"x") + b'"}}]}\n\n'
                connection.transport.write(b"%x\r\n%b\r\n" % (len(event), event))
                if left > 1:
                    self.slots[n % SLOTS][connection] = left - 1
                else:
                    connection.transport.write(END)
                    self.remove(connection)
            n += 1
            await asyncio.sleep(max(0.0, began + n * PERIOD / SLOTS - time.monotonic()))


class Connection(asyncio.Protocol):
    """Reads requests without bodies worth keeping, one at a time."""

    def __init__(self, ticker: Ticker) -> None:
        self.ticker = ticker
        self.buffer = b""
        self.waiting: deque[str] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request whose head is complete."""
        self.buffer += data
        while b"\r\n\r\n" in self.buffer:
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            self.answer(head.split(b" ", 2)[1].decode())

    def answer(self, target: str) -> None:
        """Begin the stream, or give the short answer."""
        url = urlsplit(target)
        if url.path != "/v1/stream":
            self.transport.write(SHORT_ANSWER)
            return
        query = parse_qs(url.query)
        self.transport.write(HEAD)
        self.ticker.add(self, int(query["chunks"][0]), 0 if query["arrivals"] == ["burst"] else None)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's own name
        """Its stream has ended."""
        self.ticker.remove(self)


async def serve(port: int) -> None:
    """Listen on 127.0.0.1 until cancelled."""
    ticker = Ticker()
    loop = asyncio.get_running_loop()
    await loop.create_server(lambda: Connection(ticker), "127.0.0.1", port, backlog=2048)
    await ticker.run()


def main() -> None:
    """Serve on --port."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    import uvloop

    uvloop.run(serve(options.port))


if __name__ == "__main__":
    main()
