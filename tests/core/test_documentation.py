"""README and docs: every link leads somewhere, and every page can be reached."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md"), *(CHECKOUT / "manifests").rglob("*.md")])
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
