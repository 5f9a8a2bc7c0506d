"""An engine that answers before the upload is over, and closes: the client gets that answer, not a 502 to retry.

It closes with unread bytes, so the kernel sends a reset behind the answer, and the next write to it fails.
"""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.rig import front

pytestmark = pytest.mark.sockets
MEGABYTE = 1024 * 1024
ANSWER = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig"


@contextmanager
def hasty(read: int) -> Iterator[int]:
    """An engine in threads of its own, which answers after so many bytes and closes at once."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=64)

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client:
            left = read
            while left > 0 and (data := client.recv(min(left, 65536))):
                left -= len(data)
            if left <= 0:
                client.sendall(ANSWER)

    accepting = threading.Thread(target=serve, daemon=True)
    accepting.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()


@pytest.mark.parametrize(("size", "read"), [(20 * MEGABYTE, MEGABYTE), (3 * MEGABYTE, 1), (20 * MEGABYTE, 70_000)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_it_is_the_client_s_answer(size: int, read: int, chunked: bool) -> None:
    with hasty(read) as port:
        async with front(port) as gate:
            for _ in range(10):
                client = await gate.client()
                framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
                await client.send(f"POST /v1/x HTTP/1.1\r\nHost: e\r\n{framing}\r\n\r\n".encode())
                sending = asyncio.create_task(upload(client.writer, size, chunked))
                # Not to its end: the connection is kept if all of the upload was in buffers by then.
                head = await client.reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 413"), head
                assert await client.reader.readexactly(3) == b"big"
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                client.close()
            assert not gate.failures()


async def upload(writer: asyncio.StreamWriter, size: int, chunked: bool) -> None:
    piece = bytes(MEGABYTE)
    for _ in range(size // MEGABYTE):
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
