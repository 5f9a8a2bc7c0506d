"""The plain engine is what it says: without a drain, cut by SIGTERM, sick when told so."""

import asyncio
import signal
from pathlib import Path

from apps.running import call, server


async def test_sigterm_cuts_what_it_streams_and_nothing_of_the_contract_answers(tmp_path: Path) -> None:
    async with server(tmp_path, key=None, module="apps.plain") as s:
        assert (await call(s.port, "GET", "/drain")).status == 404
        stream = s.stream(200, 20)
        await s.logged("stream-start")
        s.process.send_signal(signal.SIGTERM)
        found = await asyncio.gather(stream, return_exceptions=True)
        assert [line["whole"] for line in s.named("stream-end")] == [False]
        assert isinstance(found[0], Exception) or found[0].tokens < 200
        assert await s.process.wait() == 143


async def test_health_follows_the_start_and_sickness_stays_while_it_streams(tmp_path: Path) -> None:
    async with server(tmp_path, key=None, module="apps.plain", START_SECONDS="3") as s:
        assert (await call(s.port, "GET", "/health")).status == 503
        await s.logged("serving")
        assert (await call(s.port, "GET", "/health")).status == 200
        assert (await call(s.port, "POST", "/sicken")).status == 200
        assert (await call(s.port, "GET", "/health")).status == 500
        assert (await s.stream(5, 50)).tokens == 5
