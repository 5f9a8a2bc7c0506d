"""A mutation is judged by the tests that run against it, in a copy."""

from pathlib import Path

import pytest
from dev.mutation.catalog import Mutation
from dev.mutation.run import Undecided, run

SOURCE = "def least(a, b):\n    return a if a < b else b\n"
TEST = """
import importlib.util
import pytest

@pytest.mark.parametrize("row", [1], ids=["a row: its sentence"])
def test_least(row):
    spec = importlib.util.spec_from_file_location("least", "least.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.least(1, 2) == 1
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for folder in ("tests/core", "tests/wiring", "tests/simulation"):
        (root / folder).mkdir(parents=True)
    (root / "least.py").write_text(SOURCE)
    (root / "pytest.ini").write_text("[pytest]\nmarkers = long\n")
    (root / "tests/core/test_far.py").write_text(TEST)
    (root / "tests/test_near.py").write_text("def test_nothing(): pass\n")
    return root


def _mutation(new: str, test: str) -> Mutation:
    return Mutation("m", "area", "least.py", "a < b", new, (test,))


@pytest.mark.parametrize(
    ("new", "near", "test"),
    [
        ("a > b", "tests/core/test_far.py", "tests/core/test_far.py::test_least[a row: its sentence]"),
        ("a > b", "tests/test_near.py", "tests/core/test_far.py::test_least[a row: its sentence]"),
        ("a <= b", "tests/test_near.py", ""),
    ],
    ids=["noticed by the nearest", "noticed by the rest", "noticed by none"],
)
def test_the_first_test_that_fails_is_named(tmp_path: Path, checkout: Path, new: str, near: str, test: str) -> None:
    mutation = _mutation(new, near)
    (verdict,) = run([mutation], checkout, 1, tmp_path)
    assert (verdict.mutation, verdict.test) == (mutation, test)
    assert (checkout / "least.py").read_text() == SOURCE


def test_a_copy_is_sound_again_after_each_mutation(tmp_path: Path, checkout: Path) -> None:
    broken, harmless = _mutation("a > b", "tests/core/test_far.py"), _mutation("a <= b", "tests/test_near.py")
    found = list(run([broken, harmless, broken], checkout, 1, tmp_path))
    assert [bool(verdict.test) for verdict in found] == [True, False, True]
    assert (tmp_path / "checkout-0/least.py").read_text() == SOURCE


def test_a_run_that_names_no_failing_test_decides_nothing(tmp_path: Path, checkout: Path) -> None:
    with pytest.raises(Undecided, match="m: pytest ended with 4"):
        list(run([_mutation("a > b", "tests/no_such.py")], checkout, 1, tmp_path))
