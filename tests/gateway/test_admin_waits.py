"""Calls that wait on the admin port, one after the other on one connection, as the operator makes them."""

import asyncio
from pathlib import Path

from gateway.rig import KEY, connect, echo, engine, front


async def test_waits_that_end_without_news_leave_their_connection_whole(tmp_path: Path) -> None:
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with engine(echo) as own, front(own.port, tmp_path) as gate:
        operator = await connect(gate.admin)
        for _ in range(3):
            path = f"/drain?wait=50ms&since={gate.state()['sequence']}"
            heard = await operator.ask("GET", path, Tidegate_Key=KEY)
            assert heard.head.status_code == 200
        operator.close()
    assert complaints == []
