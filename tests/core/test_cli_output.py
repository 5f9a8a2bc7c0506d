"""How each command ends when its output leads nowhere, or somebody stops it: with an exit code, never with a trace."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SERVICE = Path(__file__).parents[2] / "manifests/samples/minimal.yaml"
PRINTING = ["crd", "plan -f FILE", "plan -f FILE -o json", "estimate TIMES", "estimate TIMES -o json"]
HELP = ["--help", "--version", "crd --help", "plan --help", "estimate --help", "gateway --help", "operator --help"]

commands = pytest.mark.parametrize("command", PRINTING)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    times = tmp_path_factory.mktemp("files") / "times"
    times.write_text("3\n4\n")
    return {"FILE": str(SERVICE), "TIMES": str(times)}


@pytest.fixture(autouse=True)
def _buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell: without a buffer nothing is left that could fail at the interpreter's exit."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


def argv(command: str, files: dict[str, str]) -> list[str]:
    return [sys.executable, "-m", "tidegate", *(files.get(word, word) for word in command.split())]


@commands
def test_printed_output_is_complete(command: str, files: dict[str, str]) -> None:
    """Else the tests below would hold for a command that prints nothing."""
    found = subprocess.run(argv(command, files), capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (0, b"")
    assert found.stdout.endswith(b"\n") and not found.stdout.endswith(b"\n\n") and len(found.stdout) > 40


@pytest.mark.parametrize("command", PRINTING + HELP)
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_has_gone_is_no_error(command: str, stream: str, files: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    other = "stderr" if stream == "stdout" else "stdout"
    try:
        found = subprocess.run(argv(command, files), check=False, **{stream: writer, other: subprocess.PIPE})
    finally:
        os.close(writer)
    assert found.returncode == 0
    assert stream == "stderr" or found.stderr == b""


@pytest.mark.parametrize("command", ["crd --nonsense", "plan -f /nowhere", "estimate /nowhere", "gateway --listen x"])
def test_an_error_that_nobody_can_read_is_still_an_error(command: str, files: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(argv(command, files), stdout=subprocess.PIPE, stderr=full, check=False)
    assert found.returncode in (1, 2) and found.stdout == b""


@commands
def test_output_that_cannot_be_written_is_an_error_of_one_line(command: str, files: dict[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run(argv(command, files), stdout=full, stderr=subprocess.PIPE, check=False)
    assert (found.returncode, found.stderr) == (1, b"tidegate: cannot write the output: No space left on device\n")


@commands
def test_a_closed_output_is_an_error_of_one_line(command: str, files: dict[str, str]) -> None:
    words = argv(command, files)
    found = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', *words], stderr=subprocess.PIPE, check=False)
    assert (found.returncode, found.stderr) == (1, b"tidegate: cannot write the output: Bad file descriptor\n")


@pytest.mark.parametrize("module", ["crd", "plan", "estimate", "gateway"])
def test_ctrl_c_ends_without_a_trace(module: str) -> None:
    script = f"""
        import os, signal, sys
        from importlib import import_module
        from tidegate.__main__ import main
        command = import_module("tidegate.cli.{module}")
        command.run = lambda args: os.kill(os.getpid(), signal.SIGINT)
        sys.exit(main(sys.argv[1:]))
    """
    options = {"plan": ["-f", "x"], "estimate": ["x"]}.get(module, [])
    words = [sys.executable, "-c", textwrap.dedent(script), module, *options]
    found = subprocess.run(words, capture_output=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (128 + signal.SIGINT, b"", b"")
