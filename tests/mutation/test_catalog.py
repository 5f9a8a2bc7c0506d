"""What the catalogue of mutations holds, and what it says of an entry that no longer fits."""

from pathlib import Path

import pytest
from dev.mutation.catalog import CatalogError, Mutation, load, problems
from dev.mutation.cli import CHECKOUT, chosen_by

AREA = """
tests = ["tests/test_a.py"]

[[file]]
path = "a.py"

[[file.mutation]]
name = "first"
old = 'if x:'
new = 'if False:'

[[file]]
path = "b.py"
tests = ["tests/test_b.py::test_b"]

[[file.mutation]]
name = "second"
old = '''
    a
    b'''
new = '    a'
"""


@pytest.fixture
def areas(tmp_path: Path) -> Path:
    (tmp_path / "one.toml").write_text(AREA)
    return tmp_path


def _mutation(name: str = "m", area: str = "one", file: str = "a.py", old: str = "if x:", new: str = "") -> Mutation:
    return Mutation(name, area, file, old, new, ("tests/test_a.py",))


def test_an_area_declares_files_their_tests_and_their_mutations(areas: Path) -> None:
    assert load(areas) == (
        Mutation("first", "one", "a.py", "if x:", "if False:", ("tests/test_a.py",)),
        Mutation("second", "one", "b.py", "    a\n    b", "    a", ("tests/test_b.py::test_b",)),
    )


def test_the_same_name_in_two_areas_is_refused(areas: Path) -> None:
    (areas / "two.toml").write_text(AREA)
    with pytest.raises(CatalogError, match=r"twice.*first, second"):
        load(areas)


@pytest.mark.parametrize(
    ("text", "message"),
    [("tests = [", "at end of document"), ("tests = []", "'file' is missing"), ("file = [{}]", "'tests' is missing")],
)
def test_an_unusable_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(CatalogError, match=rf"bad\.toml.*{message}"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("if y:\n", "occurs 0 times in a.py"),
        ("if x:\nif x:\n", "occurs 2 times in a.py"),
        (None, "no such file: a.py"),
    ],
)
def test_drift_of_the_source_is_found_without_running_a_test(tmp_path: Path, source: str | None, message: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").touch()
    if source is not None:
        (tmp_path / "a.py").write_text(source)
    (found,) = problems([_mutation()], tmp_path)
    assert message in found
    assert "areas/one.toml" in found


def test_a_test_that_is_gone_and_an_edit_that_changes_nothing_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("if x:\n")
    found = problems([_mutation(new="if x:")], tmp_path)
    assert [sentence.split(";")[0] for sentence in found] == [
        "m: no such test: tests/test_a.py",
        "m: `old` and `new` are the same text",
    ]


def test_what_is_shipped_is_chosen_whole_by_area_by_name_and_by_shard() -> None:
    everything = load()
    assert {m.file for m in everything if not (CHECKOUT / m.file).is_file()} == set()
    names = {m.name for m in everything}
    assert {m.name for m in chosen_by(everything, (), (1, 1))} == names
    shards = [{m.name for m in chosen_by(everything, (), (i, 7))} for i in range(1, 8)]
    assert set().union(*shards) == names
    assert sum(map(len, shards)) == len(names)
    area = everything[0].area
    assert chosen_by(everything, [area], (1, 1)) == tuple(m for m in everything if m.area == area)
    assert chosen_by(everything, [everything[0].name], (1, 1)) == everything[:1]
    with pytest.raises(CatalogError, match="neither a mutation nor an area: nothing-such"):
        chosen_by(everything, ["nothing-such"], (1, 1))
