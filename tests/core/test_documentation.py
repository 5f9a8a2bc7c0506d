"""README and docs: links lead somewhere, pages can be reached, and words and fields are those of the API."""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tidegate.__main__ import main
from tidegate.api import conditions
from tidegate.api.schema import open_api_schema

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md"), *(CHECKOUT / "manifests").rglob("*.md")])
OPTION = re.compile(r"--[a-z-]+")
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```.*?^```$|    .*?$)|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))


def links(text: str) -> Iterator[str]:
    """The links that stay in the repository; what stands in code is none."""
    for target in LINK.findall(CODE.sub("", text)):
        if not re.match(r"[a-z]+:", target):
            yield target


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S), re.MULTILINE)
    found: dict[str, int] = {}
    made = set()
    for heading in headings:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        made.add(f"{anchor}-{found[anchor]}" if anchor in found else anchor)
        found[anchor] = found.get(anchor, 0) + 1
    return frozenset(made)


def trouble(page: Path, target: str) -> str:
    """Why a link leads nowhere; empty for a good one."""
    path, _, anchor = target.partition("#")
    led = (page.parent / path).resolve() if path else page
    if not led.exists():
        return f"{target}: there is no such file"
    if anchor and anchor not in anchors(led):
        return f"{target}: no heading of that page has this anchor"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert [text for target in links(page.read_text()) if (text := trouble(page, target))] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, left = set(), [CHECKOUT / "README.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in links(page.read_text()):
            led = (page.parent / target.partition("#")[0]).resolve()
            if led.suffix == ".md" and led.exists():
                left.append(led)
    assert [name(page) for page in PAGES if page not in reached] == []


def test_every_picture_is_shown_on_a_page() -> None:
    shown = {(page.parent / target).resolve() for page in PAGES for target in links(page.read_text())}
    assert [name(picture) for picture in (CHECKOUT / "docs").rglob("*.svg") if picture not in shown] == []


def test_the_readme_is_short() -> None:
    assert len((CHECKOUT / "README.md").read_text().splitlines()) <= 150


# -- what the pages say of the API


def rows(heading: str) -> list[list[str]]:
    """The cells of the tables below a heading of the page on conditions, up to the next heading."""
    text = (CHECKOUT / "docs/reference/conditions.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines]


@pytest.mark.parametrize(
    ("heading", "column", "words"),
    [
        ("Conditions", 0, (conditions.ConditionType,)),
        ("Reasons", 0, (conditions.Reason,)),
        ("Phases", 0, (conditions.Phase,)),
        ("Drains", 0, (conditions.DrainReason, conditions.Outcome)),
        ("Drains", 1, (conditions.PodState,)),
        ("Terms of the grace period", 0, (conditions.TermSource,)),
    ],
)
def test_each_word_of_the_api_has_its_row_and_no_other(
    heading: str, column: int, words: tuple[type[StrEnum], ...]
) -> None:
    said = [cell for cells in rows(heading) if re.fullmatch(r"`\w+`", cell := cells[column])]
    assert sorted(said) == sorted(f"`{word}`" for kind in words for word in kind)


def test_a_reason_is_said_of_conditions_there_are() -> None:
    said = {word for cells in rows("Reasons") for word in re.findall(r"`(\w+)`", cells[1])}
    assert said and said <= set(conditions.ConditionType)


def test_the_shown_status_has_the_fields_of_the_resource() -> None:
    page = (CHECKOUT / "docs/how-to/watch-a-rollout.md").read_text()
    shown = page[page.index("\nStatus:\n") : page.index("\nEvents:\n")]
    known = set(field_names(open_api_schema()["properties"]["status"]))
    found = {_field(key) for key in re.findall(r"^ +([A-Za-z][\w ]*):(?: |$)", shown, re.MULTILINE)}
    assert len(found) > 30 and found <= known


def field_names(node: dict[str, Any]) -> Iterator[str]:
    for name_, child in (node.get("properties") or {}).items():
        yield name_
        yield from field_names(child)
        yield from field_names(child.get("items") or {})


def _field(key: str) -> str:
    """The field behind a key as kubectl describe prints it: `Eta Upper Seconds` is `etaUpperSeconds`."""
    words = key.split()
    return words[0][0].lower() + words[0][1:] + "".join(words[1:])


@pytest.mark.parametrize(
    ("command", "page", "heading"),
    [(name_, "commands.md", f"`tidegate {name_}") for name_ in ("operator", "plan", "estimate", "crd")]
    + [("gateway", "gateway.md", "Options")],
)
def test_each_option_of_a_command_has_its_row_and_no_other(
    command: str, page: str, heading: str, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (CHECKOUT / "docs/reference" / page).read_text().partition(f"\n## {heading}")[2].partition("\n## ")[0]
    said = {name_ for line in section.splitlines() if line.startswith("| `-") for name_ in OPTION.findall(line)}
    with pytest.raises(SystemExit):
        main([command, "--help"])
    offered = re.findall(r"^ +(?:-\w.*, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE)
    assert said == set(offered) - {"--help"}


def test_the_page_on_the_architecture_names_files_there_are() -> None:
    table = (CHECKOUT / "docs/explanation/architecture.md").read_text().partition("\n## Where to change what\n")[2]
    rooms = re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", table)
    pages = re.findall(r"`(docs/[a-z_/-]+\.md)`", table)
    assert len(rooms) >= 8 and len(pages) >= 5
    roots = {path: "." if path.startswith("tests/") else "operator/tidegate" for path in rooms}
    missing = [path for path, root in roots.items() if not (CHECKOUT / root / path).is_file()]
    assert missing + [path for path in pages if not (CHECKOUT / path).is_file()] == []


# -- the tools of this file


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("test_layout.py", ""),
        ("page.md#two-words", ""),
        ("#two-words-1", ""),
        ("page.md#a-code-word", ""),
        ("page.md#no-heading", "has this anchor"),
        ("page.md#two-words-2", "has this anchor"),
        ("none.md", "no such file"),
    ],
)
def test_a_broken_link_is_noticed(tmp_path: Path, target: str, said: str) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Two words\n\n## Two words\n\n## A `code` word\n\n```\n# No heading\n```\n")
    (tmp_path / "test_layout.py").touch()
    assert said in trouble(page, target) and bool(said) == bool(trouble(page, target))


def test_what_stands_in_code_is_no_link() -> None:
    text = "[a](b.md)\n\n    [c](d.md)\n\n```\n[e](f.md)\n```\n\n`[g](h.md)` and [i](https://example.com) and [j](#k)\n"
    assert list(links(text)) == ["b.md", "#k"]
