"""The mutations of areas/*.toml, and whether they still fit the source."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AREAS = Path(__file__).resolve().parent / "areas"


class CatalogError(Exception):
    """An area's file cannot be used; the message names file and remedy."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One edit of one source file: `old`, which stands exactly once in it, becomes `new`."""

    name: str
    area: str
    """Stem of the file in areas/ that declares it."""
    file: str
    """Path from the root of the checkout."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Tests to run first, as paths from the root of the checkout."""

    def applied(self, source: str) -> str:
        """`source` after the edit. Raises CatalogError when `old` does not stand in it exactly once."""
        if (times := source.count(self.old)) != 1:
            raise CatalogError(
                f"{self.name}: its text occurs {times} times in {self.file}, not once; the code has changed: "
                f"adapt `old` in dev/mutation/areas/{self.area}.toml"
            )
        return source.replace(self.old, self.new)


def load(areas: Path = AREAS) -> tuple[Mutation, ...]:
    """All mutations, by area. Raises CatalogError for a file that cannot be read as one and for a name used twice."""
    mutations = tuple(mutation for path in sorted(areas.glob("*.toml")) for mutation in _area(path))
    twice = [name for name, times in Counter(m.name for m in mutations).items() if times > 1]
    if twice:
        raise CatalogError(f"names used twice in {areas}: {', '.join(twice)}")
    return mutations


def problems(mutations: Iterable[Mutation], checkout: Path) -> list[str]:
    """One sentence for each mutation that no longer fits the source or names a test that is not there."""
    found = []
    for mutation in mutations:
        missing = [test for test in mutation.tests if not (checkout / test.partition("::")[0]).exists()]
        if missing:
            found.append(f"{mutation.name}: no such test: {', '.join(missing)}; see areas/{mutation.area}.toml")
        source = checkout / mutation.file
        if not source.is_file():
            found.append(f"{mutation.name}: no such file: {mutation.file}; see areas/{mutation.area}.toml")
            continue
        try:
            if mutation.applied(text := source.read_text(encoding="utf-8")) == text:
                found.append(f"{mutation.name}: `old` and `new` are the same text; see areas/{mutation.area}.toml")
        except CatalogError as error:
            found.append(str(error))
    return found


def _area(path: Path) -> Iterator[Mutation]:
    try:
        area = tomllib.loads(path.read_text(encoding="utf-8"))
        for file in area["file"]:
            tests = tuple(file.get("tests", area["tests"]))
            yield from (_mutation(path.stem, file["path"], tests, entry) for entry in file["mutation"])
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{path}: {error}") from error
    except KeyError as error:
        raise CatalogError(f"{path}: {error} is missing") from error


def _mutation(area: str, file: str, tests: tuple[str, ...], entry: dict[str, Any]) -> Mutation:
    return Mutation(entry["name"], area, file, entry["old"], entry["new"], tests)
