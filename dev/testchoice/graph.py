"""Which file of the checkout leads to which: by import, by `-m MODULE`, or by naming it in a string."""

import ast
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

ROOTS = ("operator", "tests", "dev", ".")
"""Where modules are found, as pytest and the scripts of dev/ have it: `dev/demolib` is `demolib` and `dev.demolib`."""
CODE = ("operator", "tests", "dev")


class Graph:
    """The Python files of a checkout, and what each of them uses. Paths are relative to it, with `/`."""

    def __init__(self, checkout: Path, also: Iterable[str] = ()) -> None:
        """`also` are files that may be gone, but whose users still count."""
        self.files = sorted(
            {str(path.relative_to(checkout)) for part in CODE for path in (checkout / part).rglob("*.py")}
        )
        self._modules = {name: file for file in (*also, *self.files) for name in _names(file)}
        self._others: dict[str, set[str]] = {}
        """By string, the files that hold it and are not found by an import."""
        self._users: dict[str, set[str]] = {}
        for file in self.files:
            tree = ast.parse((checkout / file).read_text(encoding="utf-8"), file)
            for used in self._used(file, tree):
                self._users.setdefault(used, set()).add(file)
            for text in _strings(tree):
                self._others.setdefault(text, set()).add(file)
        for conftest in (file for file in self.files if Path(file).name == "conftest.py"):
            below = f"{Path(conftest).parent}/"
            self._users.setdefault(conftest, set()).update(f for f in self.files if f.startswith(below) and is_test(f))

    def tests_of(self, changed: str) -> dict[str, list[str]]:
        """By test file, the shortest way to it from the changed file: that one first, the test last."""
        ways = {changed: [changed]}
        queue = deque([changed])
        while queue:
            file = queue.popleft()
            for user in sorted(self._users_of(file) - ways.keys()):
                ways[user] = [*ways[file], user]
                queue.append(user)
        return {file: way for file, way in ways.items() if is_test(file) and file in self.files}

    def _users_of(self, file: str) -> set[str]:
        if file.endswith(".py"):
            return self._users.get(file, set())
        parents = [str(parent) for parent in Path(file).parents][:-1]
        return set().union(*(self._others.get(text, set()) for text in (file, Path(file).name, *parents)))

    def _used(self, file: str, tree: ast.Module) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._loaded(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    package = Path(file).parents[node.level - 1]
                    base = ".".join(part for part in (*package.parts, base) if part)
                yield from self._loaded(base)
                for alias in node.names:
                    yield from self._loaded(f"{base}.{alias.name}")
            elif isinstance(node, ast.List | ast.Tuple):
                yield from self._started(node.elts)
            elif isinstance(node, ast.Call):
                yield from self._started(node.args)

    def _loaded(self, name: str) -> Iterator[str]:
        """An import of `a.b.c` runs `a` and `a.b` too."""
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            if found := self._modules.get(".".join(parts[:end])):
                yield found

    def _started(self, words: list[ast.expr]) -> Iterator[str]:
        """The module of a command line: `-m MODULE`, or the command of `tidegate COMMAND`."""
        texts = [word.value if isinstance(word, ast.Constant) else None for word in words]
        for first, second in pairwise(texts):
            if first == "-m" and isinstance(second, str):
                yield from self._loaded(f"{second}.__main__")
            elif first == "tidegate" and isinstance(second, str):
                yield from self._loaded(f"tidegate.cli.{second}")


def is_test(file: str) -> bool:
    """Whether pytest of the fast lane collects it."""
    path = Path(file)
    return (
        path.name.startswith("test_")
        and path.suffix == ".py"
        and path.parts[0] == "tests"
        and path.parts[1] != "cluster"
    )


def _names(file: str) -> Iterator[str]:
    """All names under which it can be imported."""
    path = Path(file).with_suffix("")
    if Path(file).suffix != ".py":
        return
    if path.name == "__init__":
        path = path.parent
    for root in ROOTS:
        if path.is_relative_to(root):
            yield ".".join(path.relative_to(root).parts)


def _strings(tree: ast.Module) -> Iterator[str]:
    """The strings of a file, without its docstrings, each also by the last part of the path that it may be."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            yield node.value.strip("/")
            yield node.value.rsplit("/", 1)[-1]
