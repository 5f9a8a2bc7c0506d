"""All sentences for people, as one list: sentences.md beside this file. A reviewer reads them there."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import tidegate
from core.sentences import COMMAND, REGENERATE, page, rows

LIST: Final = Path(__file__).with_name("sentences.md")
LONGEST: Final = 330
FORBIDDEN: Final = (
    "let go", "lets go", "is told", "wounded", "astray", "torn", "any more", "given up", "gives up", "drains since",
    "all the same", "stands whole", "to be gone", "is wanted", "are wanted", "nobody", "kill", "amounts",
)  # fmt: skip
"""Words that the glossary avoids, and turns that are no idiomatic English."""


def test_all_sentences_are_in_the_list():
    if os.environ.get(REGENERATE):
        LIST.write_text(page(), encoding="utf-8")
    assert LIST.read_text(encoding="utf-8") == page(), f"read the difference, then: {COMMAND}"


RULES: Final = {
    "begins with a capital letter or a number": r"^[A-Z0-9]",
    "ends with a full stop, and one only": r"[^.\s]\.$",
    "has no double space": r"^(?!.*  )",
    "has its plurals right": (
        r"^(?!.*\b1 (pods|requests|replicas|times)\b)(?!.*\b(?!1\b)\d+ (pod|request|replica|time)\b)"
    ),
    "has no empty clause": r"^(?!.*(: \.|\(\)|, \.|: $|; \.))",
    "has durations in one form": r"^(?!.*\d(s|sec|secs| secs| seconds)\b)",
    "is not longer than a screen takes": rf"^.{{1,{LONGEST}}}$",
    "has none of the words to avoid": rf"^(?!.*\b({'|'.join(FORBIDDEN)})\b)",
}


@pytest.mark.parametrize("rule", RULES)
def test_every_sentence(rule: str):
    broken = [row for row in rows() if not re.search(RULES[rule], row[1])]
    assert broken == []


SILENT: Final = ("core/planner", "core/state", "core/drain_time", "controller", "cluster")
"""Where things are decided and done. Errors and logs may speak there, and `cluster/client.py` reads other people's."""
WORDS: Final = 5
"""So many words in one string are a sentence, or a large part of one."""


def spoken(tree: ast.Module) -> Iterator[str]:
    """Strings of many words that are neither docstring nor in an error or a log."""
    unheard: set[int] = set()
    for node in ast.walk(tree):
        logs = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("log.")
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Raise) or docstring or logs:
            unheard |= {id(part) for part in ast.walk(node)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in unheard else None
        if isinstance(text, str) and len(text.split()) >= WORDS:
            yield text


@pytest.mark.parametrize("room", SILENT)
def test_no_sentence_is_made_where_things_are_decided_and_done(room: str):
    package = Path(tidegate.__file__).parent
    modules = [path for path in (package / room).rglob("*.py") if path.name != "client.py"]
    assert modules
    assert {path.name: found for path in modules if (found := [*spoken(ast.parse(path.read_text()))])} == {}
