"""The test application's image holds all that its programs import, without anything of the checkout around it."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from dev.devcluster.images import RECIPES, package_layer
from dev.devcluster.python_layer import find_python

PROGRAMS = ("server", "plain", "foreign", "load", "unruly")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a container of the image has at /app."""
    workspace = tmp_path_factory.mktemp("layer")
    layer = package_layer(RECIPES["testapp"], find_python(), workspace)
    with tarfile.open(layer.path) as tar:
        tar.extractall(workspace / "root", filter="data")
    return workspace / "root" / "app"


def alone(packed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run with the image's code alone: -S leaves out what is installed here, the checkout included."""
    return subprocess.run(
        [sys.executable, "-S", *arguments], cwd=packed, env={"PYTHONPATH": str(packed)}, capture_output=True, text=True
    )


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_program_finds_what_it_imports(packed: Path, program: str) -> None:
    where = (
        "import pathlib, sys; print(*(m.__file__ for n, m in sys.modules.items() if n.startswith(('apps', 'tide'))))"
    )
    done = alone(packed, "-c", f"import apps.{program}; {where}")
    assert done.returncode == 0, done.stderr
    outside = [file for file in done.stdout.split() if not Path(file).is_relative_to(packed)]
    assert outside == []


def test_it_holds_the_contract_and_the_names_and_no_more_of_the_operator(packed: Path) -> None:
    held = {path.relative_to(packed / "tidegate").parts[0] for path in (packed / "tidegate").rglob("*.py")}
    assert held == {"__init__.py", "api", "contract"}
    assert {path.name for path in (packed / "tidegate" / "api").glob("*.py")} == {"__init__.py", "names.py"}


def test_what_its_environment_lacks_is_said_in_a_sentence(packed: Path) -> None:
    done = alone(packed, "-m", "apps.foreign")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "KIND must be one of" in done.stderr
