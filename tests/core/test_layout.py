"""The shape of the repository, where a slip breaks something far away from it."""

import operator
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
LOCKS = ["requirements/operator.txt", "requirements/gateway.txt", "requirements/dev.txt"]
# Written in two parts, so that this file does not contain what it looks for.
FOREIGN_PATHS = re.compile(rb"/ro" rb"ot/|/wo" rb"rk/|/home/[a-z]")
PACKAGE_HOSTS = re.compile(
    rb"py" rb"pi\.org|python" rb"hosted\.org|proxy\.gol" rb"ang\.org|artifact" rb"ory|registry\.np" rb"mjs"
)
INDEX_OPTIONS = re.compile(r"^\s*(--index-url|--extra-index-url|--find-links|-i |-f )", re.MULTILINE)


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=CHECKOUT, capture_output=True, check=True).stdout
    files = [CHECKOUT / name.decode() for name in listed.split(b"\0") if name]
    return [path for path in files if path.is_file()]


def test_operator_directory_holds_only_the_package() -> None:
    # As a package, operator/ would take the place of the standard library's module of that name.
    others = [p.name for p in (CHECKOUT / "operator").iterdir() if p.name not in ("tidegate", "__pycache__")]
    assert others == []


def test_the_operator_module_is_the_standard_library_s() -> None:
    assert operator.itemgetter(1)("ab") == "b"
    assert Path(operator.__file__).parent == Path(re.__file__).parents[1]


def test_no_folder_on_the_path_shadows_a_standard_module() -> None:
    roots = [CHECKOUT, CHECKOUT / "dev", CHECKOUT / "tests", CHECKOUT / "operator"]
    shadowing = [
        str(entry.relative_to(CHECKOUT))
        for root in roots
        for entry in root.iterdir()
        if entry.stem in sys.stdlib_module_names and (entry.suffix == ".py" or (entry / "__init__.py").exists())
    ]
    assert shadowing == []


@pytest.mark.parametrize("pattern", [FOREIGN_PATHS, PACKAGE_HOSTS], ids=["paths of one machine", "package hosts"])
def test_tracked_files_name_nothing_of_one_machine(pattern: re.Pattern[bytes]) -> None:
    found = {
        str(path.relative_to(CHECKOUT)): match.group().decode()
        for path in tracked_files()
        if (match := pattern.search(path.read_bytes()))
    }
    assert found == {}


@pytest.mark.parametrize("name", LOCKS)
def test_lock_file_pins_every_package_by_hash_and_names_no_index(name: str) -> None:
    text = (CHECKOUT / name).read_text()
    assert not INDEX_OPTIONS.search(text)
    joined = text.replace("\\\n", " ")
    entries = [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert entries
    unpinned = [line.split()[0] for line in entries if not re.match(r"\S+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)]
    assert unpinned == []


@pytest.mark.parametrize("name", ["operator", "gateway"])
def test_what_is_shipped_runs_on_what_was_tested(name: str) -> None:
    def pins(name: str) -> set[str]:
        return set(re.findall(r"^(\S+==\S+)", (CHECKOUT / "requirements" / f"{name}.txt").read_text(), re.MULTILINE))

    assert pins(name) <= pins("dev")


def test_shipped_code_does_not_import_tests_or_development_code() -> None:
    outside = re.compile(r"^\s*(?:from|import) (?:tests|dev|devcluster|apps)\b", re.MULTILINE)
    guilty = [
        str(path.relative_to(CHECKOUT))
        for path in (CHECKOUT / "operator" / "tidegate").rglob("*.py")
        if outside.search(path.read_text())
    ]
    assert guilty == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    # Imports for type checking count as well: two modules that need each other's types are one module in two files.
    graph = grimp.build_graph("tidegate", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 100
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
