"""Options that do not fit are refused with one sentence that names them."""

import pytest

from tidegate.__main__ import main
from tidegate.gateway import process

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
