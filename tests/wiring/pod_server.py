"""Small servers on loopback that answer as no well-meant pod would, and count how often they are asked."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tidegate.drain.contract import Address

SOUND = {"contract": "v1", "instance": "run-1", "drainId": None, "state": "serving", "inFlight": 2, "sequence": 5}

SEND_BUFFER_BYTES = 64 * 1024


@dataclass(slots=True)
class Script:
    """What was asked, and how much of the answer was taken."""

    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    sent: int = 0
    port: int = 0

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.port)

    @property
    def asked(self) -> int:
        return len(self.requests)


Answer = Callable[[Script, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def pod(answer: Answer | bytes) -> AsyncIterator[Script]:
    """One connection, one request, one answer."""
    script = Script()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # What the kernel takes beyond what is read shall not depend on the machine.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            script.requests.append((first.rsplit(" ", 1)[0], headers, body))
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(script, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    fields = {"Content-Length": str(len(body)), "Connection": "close"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def said(**changes: object) -> bytes:
    """A sound answer but for these; a value of None that the contract does not know leaves the field out."""
    document = {key: value for key, value in (SOUND | changes).items() if value is not ...}
    return http(200, json.dumps(document).encode())
