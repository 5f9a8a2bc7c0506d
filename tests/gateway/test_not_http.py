"""An engine whose answer is not HTTP/1.1 is told at once, not when the time is up, and named in the log."""

import asyncio
import json

import pytest

from gateway.rig import Engine, Peer, engine, front

ANSWERS = {
    "an SSH banner": (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
    "a banner without its end": (b"SSH-2.0", "SSH"),
    "a mail server": (b"220 mail.example ESMTP\r\n", "220"),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
    "HTTP/2": (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", ""),
    "HTTP/0.9": (b"<html>hello", "<html>"),
    "a Redis error": (b"-ERR unknown command\r\n", "-ERR"),
    "LF alone": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "LF"),
    "LF alone in the middle": (b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 2\r\n", "LF"),
    "a folded line": (b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n", "folded"),
    "a control character": (b"HTTP/1.1 200 OK\r\nA: \x00", "control character"),
    "another version": (b"HTTP/2 200\r\n", "HTTP/2 200"),
    "no status": (b"HTTP/1.1 OK\r\n", ""),
    "no end of the line": (b"HTTP/1.1 200 " + b"x" * 33_000, ""),
}
each_answer = pytest.mark.parametrize(("answer", "named"), ANSWERS.values(), ids=ANSWERS.keys())


@each_answer
@pytest.mark.parametrize("piece", [3, 100_000])
async def test_it_is_a_502_at_once(answer: bytes, named: str, piece: int, capsys: pytest.CaptureFixture[str]) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        for at in range(0, len(answer), piece):
            await peer.send(answer[at : at + piece])
            # So that the gateway reads it in these pieces.
            await asyncio.sleep(1e-6)
        await peer.closed()
        own.gone.set()

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        start = asyncio.get_running_loop().time()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert asyncio.get_running_loop().time() - start < 1.0  # of virtual time
        error = json.loads(heard.body)["error"]
        assert (heard.head.status_code, error["code"]) == (502, "upstream_invalid")
        assert piece == 3 or named in error["message"]
        assert gate.failures() == {"upstream_invalid": 1}
        client.close()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "engine-invalid" in line]
    assert [line["class"] for line in said] == ["upstream_invalid"]
    assert said[0]["message"] in error["message"]


async def test_the_log_names_it_once_until_the_engine_answers_again(capsys: pytest.CaptureFixture[str]) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        heard = await peer.hear()
        if heard.head.target == b"/v1/bad":
            await peer.send(b"SSH-2.0-x\r\n")
        else:
            await peer.answer(200, b"ok", Connection="close")

    async with engine(script) as own, front(own.port) as gate:
        for path in ("bad", "bad", "bad", "good", "bad"):
            client = await gate.client()
            await client.ask("POST", f"/v1/{path}", b"{}")
            client.close()
    assert capsys.readouterr().out.count("engine-invalid") == 2


async def test_a_warm_up_does_not_wait_for_what_can_be_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"SSH-2.0-x\r\n")
        await peer.closed()
        own.gone.set()

    options = {"TIDEGATE_WARMUP_PATH": "/v1/chat/completions", "TIDEGATE_WARMUP_BODY": "{}"}
    async with engine(script) as own, front(own.port, ready=False, options=options):
        start = asyncio.get_running_loop().time()
        await own.gone.wait()
        assert asyncio.get_running_loop().time() - start < 5.0  # of virtual time
        await asyncio.sleep(0.1)
    assert "SSH-2.0-x" in capsys.readouterr().out


async def test_a_head_that_arrives_byte_by_byte_is_still_taken() -> None:
    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        for byte in b"HTTP/1.1 200 OK\r\nX-A: b\r\nContent-Length: 2\r\n\r\nok":
            await peer.send(bytes([byte]))
            await asyncio.sleep(0.001)

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert (heard.head.status_code, heard.body) == (200, b"ok")
        client.close()
