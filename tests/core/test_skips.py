"""tests/conftest.py: a run in CI that skipped something has failed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RULES = Path(__file__).resolve().parents[1] / "conftest.py"
SKIPS = "import pytest\ndef test_passes(): pass\n@pytest.mark.skip\ndef test_of_a_missing_tool(): pass\n"
SKIPS_AS_A_WHOLE = "import pytest\npytest.skip('no cluster', allow_module_level=True)\n"
PASSES = "def test_passes(): pass\n"


def run(directory: Path, ci: str, *workers: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(RULES, directory)
    (directory / "test_other.py").write_text(PASSES)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *workers,
        "--rootdir",
        str(directory),
        str(directory),
    ]
    return subprocess.run(command, cwd=directory, env={**os.environ, "CI": ci}, capture_output=True, text=True)


@pytest.mark.parametrize("skipping", [SKIPS, SKIPS_AS_A_WHOLE], ids=["one test", "a module"])
@pytest.mark.parametrize(
    ("ci", "status", "workers"),
    [("true", 1, ()), ("", 0, ()), ("true", 1, ("-n", "2"))],
    ids=["in CI", "by hand", "in CI on two workers"],
)
def test_a_skip_fails_the_run_in_ci_alone(
    tmp_path: Path, skipping: str, ci: str, status: int, workers: tuple[str, ...]
) -> None:
    (tmp_path / "test_it.py").write_text(skipping)
    ended = run(tmp_path, ci, *workers)
    assert ended.returncode == status, ended.stdout
    assert ("which fails the run" in ended.stdout) == (status == 1)


def test_a_run_without_skips_passes_in_ci(tmp_path: Path) -> None:
    assert run(tmp_path, "true").returncode == 0
