"""Rules of RFC 9110 and 9112 that a proxy has to keep beside those of framing; each by its section."""

import h11
import pytest

from gateway.rig import Engine, Peer, echo, engine, front


async def asked(sent: bytes) -> tuple[bytes, list[bytes]]:
    """What the client gets, and what the engine, which answers everything with 200, is asked."""
    heads: list[bytes] = []

    async def answered(peer: Peer, own: Engine) -> None:
        first = peer.parser.trailing_data[0]
        heads.append(first + await peer.reader.readuntil(b"\r\n\r\n"))
        await peer.answer(200)

    async with engine(answered) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(sent)
        got = await client.reader.readuntil(b"\r\n\r\n")
        client.close()
        return got, heads


@pytest.mark.parametrize("status", [102, 103])
async def test_an_interim_response_is_forwarded(status: int) -> None:
    """RFC 9110, section 15.2."""

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        interim = b"HTTP/1.1 %d Early\r\nLink: </a>\r\nContent-Length: 5\r\n\r\n" % status
        await peer.send(interim + interim + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/x", b"{}")
        events: list[object] = []
        while not isinstance(event := client.parser.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                client.parser.receive_data(await client.reader.read(4096))
            else:
                events.append(event)
        client.close()
    first, second, last, body = events
    assert isinstance(first, h11.InformationalResponse) and isinstance(second, h11.InformationalResponse)
    assert (first.status_code, dict(first.headers)) == (status, {b"link": b"</a>"})
    assert isinstance(last, h11.Response) and last.status_code == 200
    assert isinstance(body, h11.Data) and body.data == b"ok"


async def test_a_client_of_http_1_0_gets_no_interim_response() -> None:
    """RFC 9110, section 15.2."""

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.send(b"POST /v1/x HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}")
        answer = await client.rest()
        client.close()
        assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1") == 1


async def test_100_continue_of_the_engine_is_not_forwarded_again() -> None:
    """The gateway has sent its own, or none was asked for."""

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        await client.request("POST", "/v1/x", b"{}")
        assert (await client.reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        client.close()


async def test_204_has_no_length() -> None:
    """RFC 9110, section 8.6."""

    async def script(peer: Peer, own: Engine) -> None:
        await peer.hear()
        await peer.answer(204)

    async with engine(script) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}")
        assert heard.head.status_code == 204
        assert b"content-length" not in heard.fields
        client.close()


async def test_a_later_minor_version_is_served_as_1_1() -> None:
    """RFC 9110, section 2.5."""
    got, heard = await asked(b"GET /v1/x HTTP/1.2\r\nHost: e\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")
    assert heard[0].startswith(b"GET /v1/x HTTP/1.1\r\n")


@pytest.mark.parametrize("method", [b"FOO", b"CONNECTX", b"get", b"CONNECT"])
async def test_a_method_that_is_not_known_is_501(method: bytes) -> None:
    """RFC 9110, section 9.1; 405 would need an Allow, which only the engine knows."""
    got, heard = await asked(method + b" /v1/x HTTP/1.1\r\nHost: e\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 501")
    assert not heard


@pytest.mark.parametrize(
    ("line", "passed"),
    [
        (b"OPTIONS http://e HTTP/1.1", b"OPTIONS * HTTP/1.1"),
        (b"OPTIONS http://e/ HTTP/1.1", b"OPTIONS / HTTP/1.1"), (b"GET http://e HTTP/1.1", b"GET / HTTP/1.1"),
        (b"OPTIONS http://e?x HTTP/1.1", b"OPTIONS /?x HTTP/1.1"),
    ],
)  # fmt: skip
async def test_the_absolute_form_becomes_that_of_an_origin(line: bytes, passed: bytes) -> None:
    """RFC 9112, sections 3.2.2 and 3.2.4."""
    got, heard = await asked(line + b"\r\nHost: other\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")
    assert heard[0].split(b"\r\n")[:2] == [passed, b"Host: e"]


async def test_a_whole_server_is_asked_with_an_asterisk() -> None:
    """RFC 9112, section 3.2.4."""
    got, heard = await asked(b"OPTIONS * HTTP/1.1\r\nHost: e\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200")
    assert heard[0].startswith(b"OPTIONS * HTTP/1.1\r\nHost: e\r\n")


@pytest.mark.parametrize("method", [b"GET", b"POST", b"HEAD"])
async def test_only_options_is_asked_of_a_whole_server(method: bytes) -> None:
    """RFC 9112, section 3.2.4."""
    got, heard = await asked(method + b" * HTTP/1.1\r\nHost: e\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400")
    assert not heard


async def test_the_members_of_two_upgrade_lines_are_one_list() -> None:
    """RFC 9110, section 5.3."""
    two = b"Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n"
    got, heard = await asked(b"GET /v1/x HTTP/1.1\r\nHost: e\r\n" + two + b"\r\n")
    assert got.startswith(b"HTTP/1.1 200")
    assert heard[0].count(b"Upgrade: ") == 1 and b"\r\nUpgrade: websocket\r\n" in heard[0]


async def test_the_gateway_is_named_to_the_engine() -> None:
    """RFC 9110, section 7.6.3: a gateway must in requests, and may in responses."""
    async with engine(echo) as own, front(own.port) as gate:
        client = await gate.client()
        heard = await client.ask("POST", "/v1/x", b"{}", Via="1.0 first")
        vias = [value for name, value in own.heard[0].head.headers if name == b"via"]
        assert vias == [b"1.0 first", b"1.1 tidegate"]
        assert b"via" not in heard.fields
        client.close()
