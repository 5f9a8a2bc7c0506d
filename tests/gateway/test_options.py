"""Options that do not fit are refused with one sentence that names them."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.__main__ import main
from tidegate.gateway import process
from tidegate.gateway.address import Address

NO_FLOAT = f'[{{"pathPrefix": "/", "timeouts": {{"idleSeconds": 1{"0" * 400}}}}}]'


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("TIDEGATE_ROUTES", '[{"pathPrefix": "v1"}]', "--routes[0].pathPrefix"),
        ("TIDEGATE_ROUTES", "{", "--routes"),
        ("TIDEGATE_ROUTES", NO_FLOAT, "--routes[0].timeouts"),
        ("TIDEGATE_LISTEN", "8080", "--listen"),
        ("TIDEGATE_IDLE_SECONDS", "soon", "--idle-seconds"),
        ("TIDEGATE_READY_PATH", "health", "--ready-path"),
        ("TIDEGATE_WARMUP_BODY", "{}", "--warmup-body: requires --warmup-path"),
        ("TIDEGATE_UPSTREAM", "::1:80", "--upstream"),
        ("TIDEGATE_UPSTREAM", ":8000", "--upstream"),
        ("TIDEGATE_UPSTREAM", "127.0.0.1:0", "--upstream"),
        ("TIDEGATE_UPSTREAM", "a..b:80", "--upstream: 'a..b' is not a host name"),
        ("TIDEGATE_LISTEN", ".:18080", "--listen: '.' is not a host name"),
        ("TIDEGATE_ADMIN", "a..b:1", "--admin: 'a..b' is not a host name"),
        ("TIDEGATE_ADMIN", "999.1.1.1:1", "--admin: '999.1.1.1' is not a host name or an IPv4 address"),
        ("TIDEGATE_ADMIN", "1.2.3:1", "--admin"),
        ("TIDEGATE_ADMIN", "[127.0.0.1]:1", "--admin: '127.0.0.1' is not an IPv6 address"),
        ("TIDEGATE_ADMIN", "[::1:1", "--admin"),
        ("TIDEGATE_ADMIN", "[]:1", "--admin"),
        ("TIDEGATE_ADMIN", "[::g]:1", "--admin"),
        ("TIDEGATE_LISTEN", "a" * 64 + ":80", "--listen"),
        ("TIDEGATE_LISTEN", "a." * 200 + "b:80", "--listen"),
        ("TIDEGATE_LISTEN", "-a:80", "--listen"),
        ("TIDEGATE_LISTEN", "a b:80", "--listen"),
        ("TIDEGATE_LISTEN", "a\tb:80", "--listen"),
        ("TIDEGATE_LISTEN", "\u00fc.example:80", "--listen"),
        ("TIDEGATE_LISTEN", "http://a:80", "--listen"),
        ("TIDEGATE_LISTEN", "a:80/", "--listen"),
        ("TIDEGATE_LISTEN", ":65536", "--listen"),
        ("TIDEGATE_LISTEN", ":" + "9" * 5000, "--listen"),
        ("TIDEGATE_LISTEN", ":-1", "--listen"),
        ("TIDEGATE_LISTEN", ":\u0663", "--listen"),
        ("TIDEGATE_ROUTES", "[" * 100_000, "--routes"),
        ("TIDEGATE_ROUTES", '[{"pathPrefix": "/", "timeouts": {"idleSeconds": ' + "[" * 100_000, "--routes"),
        ("TIDEGATE_ROUTES", "[" + "9" * 5000 + "]", "--routes"),
        ("TIDEGATE_ROUTES", "null", "--routes"),
        ("TIDEGATE_WARMUP_PATH", "/a\x7f", "--warmup-path"),
        ("TIDEGATE_READY_PATH", "/a\tb", "--ready-path"),
        ("TIDEGATE_READY_PATH", "/\u00e9", "--ready-path"),
        ("TIDEGATE_IDLE_SECONDS", "nan", "--idle-seconds"),
        ("TIDEGATE_KEEP_ALIVE_SECONDS", "-1", "--keep-alive-seconds"),
        ("TIDEGATE_KEEP_ALIVE_SECONDS", "inf", "--keep-alive-seconds"),
    ],
)
def test_a_wrong_option_is_refused_with_one_sentence(
    name: str, value: str, named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "run", lambda options: 0)
    monkeypatch.setenv("TIDEGATE_UPSTREAM", "127.0.0.1:1")
    assert main(["gateway"]) == 0
    monkeypatch.setenv(name, value)
    assert main(["gateway"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"tidegate gateway: {named}")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "body", ["{", "[" * 100_000, "\udcff", '"\udcff"'], ids=["half", "deep", "bytes", "bytes in JSON"]
)
def test_a_warm_up_that_could_never_be_sent_is_refused(
    body: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(process, "run", lambda options: 0)
    for name, value in {"UPSTREAM": "127.0.0.1:1", "WARMUP_PATH": "/v1/x", "WARMUP_BODY": body}.items():
        monkeypatch.setenv(f"TIDEGATE_{name}", value)
    assert main(["gateway"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tidegate gateway: --warmup-body: not a JSON document in UTF-8: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "text", [":80", "a:80", "a.b.:80", "a_b:80", "x-1.svc.cluster.local:80", "127.0.0.1:80", "[::1]:80", "localhost:0"]
)
def test_an_address_is_taken(text: str) -> None:
    host, _, port = text.rpartition(":")
    assert Address.parse(text) == Address(host.strip("[]"), int(port))


@given(st.text(max_size=30) | st.from_regex(r"[\[\]a-z0-9.:-]{1,20}:[0-9]{1,6}", fullmatch=True))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    """What is taken can be looked up without a UnicodeError, which no caller expects."""
    try:
        address = Address.parse(text)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        address.host.encode("idna")
        assert 0 <= address.port <= 65_535


@pytest.mark.parametrize(
    ("name", "host", "said"),
    [
        ("listen", "127.0.0.1", "the port is in use"), ("admin", "127.0.0.1", "the port is in use"),
        ("listen", "192.0.2.1", "no address of this machine"), ("admin", "192.0.2.1", "no address of this machine"),
    ],
)  # fmt: skip
def test_a_port_that_cannot_be_opened_is_one_sentence(
    name: str, host: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        values = {"LISTEN": "127.0.0.1:0", "ADMIN": "127.0.0.1:0", "UPSTREAM": "127.0.0.1:1"}
        values[name.upper()] = f"{host}:{taken.getsockname()[1]}"
        for variable, value in values.items():
            monkeypatch.setenv(f"TIDEGATE_{variable}", value)
        assert main(["gateway"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and said in lines[0]
    assert lines[0].startswith(f"tidegate gateway: --{name}: cannot listen on {values[name.upper()]}: ")
