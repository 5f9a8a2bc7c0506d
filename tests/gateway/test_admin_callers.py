"""Callers of the admin port that leave at the wrong moment."""

import asyncio
import socket
import struct
import time
from pathlib import Path

import pytest

from gateway.rig import KEY, connect, echo, engine, front
from tidegate.gateway.admin import Admin

pytestmark = pytest.mark.sockets


async def test_a_caller_that_resets_as_its_wait_ends_leaves_no_trace(tmp_path: Path) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with engine(echo) as own, front(own.port, tmp_path) as gate:
        for _ in range(3):
            caller = socket.create_connection(("127.0.0.1", gate.admin))
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            caller.sendall(
                f"GET /drain?wait=200ms&since=999 HTTP/1.1\r\nHost: a\r\nTidegate-Key: {KEY}\r\n\r\n".encode()
            )
            await asyncio.sleep(0.05)
            # The loop is busy: the end of the wait and the reset are there when it looks again.
            time.sleep(0.3)  # noqa: ASYNC251
            caller.close()
            await asyncio.sleep(0.05)
    assert complaints == []


async def test_at_the_end_of_the_process_no_call_is_left(tmp_path: Path) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with engine(echo) as own, front(own.port, tmp_path) as gate:
        admin = Admin(gate.gateway)
        port, before = await admin.listen(), asyncio.all_tasks()
        waiting = await connect(port)
        await waiting.send(f"GET /drain?wait=60s&since=999 HTTP/1.1\r\nHost: a\r\nTidegate-Key: {KEY}\r\n\r\n".encode())
        idle = await connect(port)
        await gate.until(lambda: len(asyncio.all_tasks() - before) >= 3)  # two connections, and the wait of one
        late = socket.create_connection(("127.0.0.1", port))
        await admin.end()
        await asyncio.sleep(0.05)
        assert not [task for task in asyncio.all_tasks() - before if "Admin" in repr(task.get_coro())]
        with pytest.raises(ConnectionError):
            await connect(port)
        assert await waiting.rest() + await idle.rest() == b""
        late.close()
    assert complaints == []
