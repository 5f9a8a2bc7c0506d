"""What the log says of an engine that does not answer."""

import json
import socket

import pytest

from apps.running import held_port
from gateway import rig
from gateway.rig import echo, front
from tidegate.gateway import engine


def reasons(told: str) -> list[str]:
    lines = [json.loads(line) for line in told.splitlines()]
    return [line["message"] for line in lines if line["event"] == "engine-not-ready"]


async def test_an_engine_that_does_not_listen_is_told_of_once_in_a_while(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "START_SECONDS", 0.01)
    told: list[str] = []

    def heard() -> int:
        told.extend(reasons(capsys.readouterr().out))
        return len(told)

    with held_port() as port:
        async with front(port, ready=False) as gate:
            await gate.until(lambda: heard() == 1)
            looks = 0
            listens = gate.gateway.engine._listens

            async def counted() -> bool | None:
                nonlocal looks
                looks += 1
                return await listens()

            monkeypatch.setattr(gate.gateway.engine, "_listens", counted)
            await gate.until(lambda: looks == 5)
            assert heard() == 1
            monkeypatch.setattr(engine, "REMIND_SECONDS", 0.0)
            await gate.until(lambda: heard() > 2)
            assert set(told) == {f"127.0.0.1:{port}: Connection refused"}


@pytest.mark.sockets
async def test_an_engine_that_takes_no_connection_is_told_of_with_the_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LISTEN_SECONDS", 0.1)
    told: list[str] = []
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        full = [socket.socket() for _ in range(4)]
        for each in full:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        async with front(port, ready=False) as gate:
            await gate.until(lambda: told.extend(reasons(capsys.readouterr().out)) or told)
            assert told == [f"127.0.0.1:{port}: no connection within 0.1 s"]
        for each in full:
            each.close()


async def test_nothing_ends_the_watch_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod whose watch is dead is `starting` for ever."""
    failures = iter([UnicodeError("label empty"), RuntimeError("odd")])
    check = engine.Engine._check

    async def fails_at_first(self: engine.Engine) -> None:
        error = next(failures, None)
        if error is not None:
            raise error
        await check(self)

    monkeypatch.setattr(engine.Engine, "_check", fails_at_first)
    async with rig.engine(echo) as own, front(own.port) as gate:
        assert gate.state()["state"] == "serving"
    said = reasons(capsys.readouterr().out)
    assert said == ["UnicodeError: label empty", "RuntimeError: odd"]
