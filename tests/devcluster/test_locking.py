"""File locks between processes."""

import subprocess
import sys
from pathlib import Path

import pytest
from dev.devcluster.locking import exclusive

CHECKOUT = Path(__file__).resolve().parents[2]
HOLDS = """
import sys
from pathlib import Path
from dev.devcluster.locking import exclusive
with exclusive(Path(sys.argv[1]), "nobody"):
    print("held", flush=True)
    sys.stdin.read()
"""
TAKES = """
import sys
from pathlib import Path
from dev.devcluster.locking import exclusive
with exclusive(Path(sys.argv[1]), "the other"):
    print("taken", flush=True)
"""


def _python(script: str, lock: Path) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", script, str(lock)], cwd=CHECKOUT, text=True, **pipes)


def test_the_second_says_what_it_waits_for_and_gets_the_lock_when_its_holder_dies(tmp_path: Path) -> None:
    lock = tmp_path / "directory" / "lock"
    with _python(HOLDS, lock) as first:
        assert first.stdout.readline() == "held\n"
        with _python(TAKES, lock) as second:
            assert second.stderr.readline() == f"waiting for the other ({lock})\n"
            assert second.poll() is None
            first.kill()
            assert second.stdout.readline() == "taken\n"


def test_a_lock_whose_file_was_removed_while_we_waited_is_taken_anew(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with _python(HOLDS, lock) as first:
        assert first.stdout.readline() == "held\n"
        with _python(TAKES, lock) as second:
            assert second.stderr.readline()
            lock.unlink()
            first.stdin.close()
            assert second.stdout.readline() == "taken\n"
            assert lock.exists()


def test_nothing_is_said_where_nobody_holds_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with exclusive(tmp_path / "lock", "nobody"):
        pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert capsys.readouterr().err == ""
