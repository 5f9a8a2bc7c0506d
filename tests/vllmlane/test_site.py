"""What the lane does without vLLM: its processes' command lines, its questions, and how it ends."""

import argparse
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from dev.vllmlane import cli, site, stories
from dev.vllmlane.site import Site

from tidegate.gateway.options import add_arguments, read

METRICS = """\
# HELP vllm:num_requests_running Requests
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_running{engine="1"} 1.0
vllm:num_requests_waiting{engine="0"} 7.0
"""


def test_the_gateway_takes_the_options_that_the_lane_gives_it(tmp_path: Path) -> None:
    (tmp_path / "current").write_text("key")
    command = Site().gateway_command(Path("tidegate"), tmp_path)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = read(parser.parse_args(command[2:]))
    assert command[:2] == ["tidegate", "gateway"]
    assert options is not None


def test_no_two_processes_listen_on_one_port() -> None:
    found = Site()
    assert len({found.engine, found.front, found.admin}) == 3
    command = found.engine_command(Path("vllm"), Path("model"))
    assert command[-1] == str(found.engine)
    assert str(stories.CLIENTS + 2) in command


class Answering(http.server.BaseHTTPRequestHandler):
    """vLLM's metrics and the gateway's drain endpoint at once."""

    seen: ClassVar[list[tuple[str, str, str | None, object]]] = []

    def do_GET(self) -> None:
        self._answer(METRICS if self.path == "/metrics" else '{"state": "serving"}')

    def do_POST(self) -> None:
        self._answer('{"state": "draining"}')

    def _answer(self, text: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = json.loads(body) if body else None
        self.seen.append((self.command, self.path, self.headers.get("Tidegate-Key"), request))
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def answering() -> Iterator[Site]:
    Answering.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        port = server.server_address[1]
        yield Site(engine=port, admin=port, key="secret")
        server.shutdown()
        thread.join()


def test_requests_are_counted_over_all_of_vllm_s_engines(answering: Site) -> None:
    assert answering.running() == 3


def test_drain_calls_carry_the_key_and_the_order(answering: Site) -> None:
    assert answering.drain("POST", "", {"id": "one"}) == {"state": "draining"}
    assert answering.drain("GET") == {"state": "serving"}
    assert Answering.seen == [("POST", "/drain", "secret", {"id": "one"}), ("GET", "/drain", "secret", None)]


def test_waiting_goes_on_while_nobody_listens_and_ends_the_lane_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    answers = iter([ConnectionRefusedError(), False, True])

    def look() -> bool:
        found = next(answers)
        if isinstance(found, OSError):
            raise found
        return bool(found)

    site.until("it answers", look)
    monkeypatch.setattr(site, "TIMEOUT_SECONDS", 0)
    with pytest.raises(SystemExit, match="waited 0 s in vain: it answers"):
        site.until("it answers", lambda: False)


def test_a_process_is_ended_with_its_block(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os, time; print(os.environ['GREETING'], flush=True); time.sleep(600)"]
    with site.process(command, tmp_path / "log", GREETING="hello") as running:
        while "hello" not in (tmp_path / "log").read_text():
            assert running.poll() is None
    assert running.poll() is not None


def test_a_story_that_does_not_come_out_is_told_and_fails_the_lane(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "vllm").touch()
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    def play(directory: Path, vllm: Path, tidegate: Path) -> None:
        assert vllm == tmp_path / "vllm"
        stories._expect(True, "kept")
        stories._expect(False, {"cut": 2})

    monkeypatch.setattr(cli, "_play", play)
    assert cli.main([]) == 1
    assert capsys.readouterr().err == "dev/lane-vllm: not as promised: {'cut': 2}\n"


def test_an_environment_without_vllm_is_told_at_once() -> None:
    script = Path(__file__).resolve().parents[2] / "dev" / "lane-vllm"
    done = subprocess.run([sys.executable, "-S", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "run this with the Python of an environment that has vLLM" in done.stderr
