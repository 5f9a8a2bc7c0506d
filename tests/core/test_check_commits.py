"""dev/check-commits: which messages pass, and what a clone without the history is told."""

import importlib.machinery
import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
GOOD = "Add the check of commits\n\nReviewers read the log first.\n"


def load() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_commits", str(CHECKOUT / "dev" / "check-commits"))
    spec = importlib.util.spec_from_loader("check_commits", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


check = load()


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        "A" + "d" * 59 + "\n\nWhy.",
        "Add\n\nWhy.\n\nMore of why, in a second paragraph.\n",
        "Proceed when a pod is gone\n\nWhy.",
        "Pass the clock in\n\nWhy.",
        "Focus the test on one pod\n\nWhy.",
        "Ping the gateway first\n\nWhy.",
    ],
)
def test_a_good_message_passes(message: str) -> None:
    assert list(check.problems(message)) == []


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("A" + "d" * 60 + "\n\nWhy.", "the subject has 61 characters, 60 at most"),
        ("add a check\n\nWhy.", "the subject starts with a capital letter"),
        ("Add a check.\n\nWhy.", "the subject ends without a full stop"),
        ("Added a check\n\nWhy.", "the subject is imperative"),
        ("Adds a check\n\nWhy.", "the subject is imperative"),
        ("Adding a check\n\nWhy.", "the subject is imperative"),
        ("The check of commits\n\nWhy.", "the subject is imperative"),
        ("Add a check\n", "the body is missing"),
        ("Add a check\n\n  \n", "the body is missing"),
        ("Add a check\nWhy.", "a blank line separates the subject from the body"),
    ],
)
def test_what_is_wrong_with_a_message_is_said(message: str, said: str) -> None:
    (found,) = check.problems(message)
    assert said in found


def test_everything_wrong_with_a_message_is_said_at_once() -> None:
    assert len(list(check.problems("fixed the thing that went wrong when the pod was already gone.\n"))) == 5


# -- a repository of its own


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "someone@example.com")
    path = tmp_path / "repository"
    git(tmp_path, "init", "--quiet", "--initial-branch=main", str(path))
    commit(path, "an old one, and as bad as they come.")
    return path


def git(where: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, check=True).stdout.strip()


def commit(where: Path, message: str) -> str:
    git(where, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(where, "rev-parse", "HEAD")


def run(where: Path, base: str) -> int:
    """The command in another checkout."""
    base_file = where / "dev" / "commits-since"
    base_file.parent.mkdir(exist_ok=True)
    base_file.write_text(f"{base}\n")
    return int(check.main(where))


def test_commits_up_to_the_base_are_exempt(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = git(repository, "rev-parse", "HEAD")
    assert run(repository, base) == 0, "no new commit at all"
    commit(repository, GOOD)
    commit(repository, "Take two\n\nWhy, with a line\n\nand one more.")
    assert run(repository, base) == 0
    assert [message[:9] for _, _, message in check.new_commits(repository, base)] == ["Add the c", "Take two\n"]
    assert capsys.readouterr() == ("", "")


def test_each_bad_commit_is_named_and_no_other(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = git(repository, "rev-parse", "HEAD")
    bad = commit(repository, "Fixed it\n\nWhy.")
    good = commit(repository, GOOD)
    assert run(repository, base) == 1
    shown = capsys.readouterr()
    assert f"{bad[:7]} Fixed it\n  - the subject is imperative" in shown.out
    assert good[:7] not in shown.out
    assert shown.err == "1 of 2 new commits need another message; see CONTRIBUTING.md\n"


def test_a_merge_commit_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "side")
    commit(repository, GOOD)
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "Add another\n\nWhy.")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "Merge the side\n\nWhy.", "side")
    assert run(repository, base) == 1
    assert capsys.readouterr().out.count("merge commits are not taken: rebase instead") == 1


def test_a_shallow_clone_is_told_how_to_get_the_history(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = git(repository, "rev-parse", "HEAD")
    commit(repository, GOOD)
    git(tmp_path, "clone", "--quiet", "--depth=1", repository.as_uri(), "shallow")
    assert run(tmp_path / "shallow", base) == 2
    said = f"dev/check-commits: this clone is shallow and lacks commit {base}: run `git fetch --unshallow`\n"
    assert capsys.readouterr().err == said
    git(tmp_path / "shallow", "fetch", "--quiet", "--unshallow")
    assert run(tmp_path / "shallow", base) == 0


def test_what_else_cannot_be_listed_is_said_without_a_trace(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(repository, "0" * 39 + "1") == 2
    assert "run this in a full clone of the repository" in capsys.readouterr().err
    git(repository, "checkout", "--quiet", "--orphan", "elsewhere")
    commit(repository, GOOD)
    assert run(repository, "main") == 2
    assert "HEAD does not descend from commit main: rebase on main" in capsys.readouterr().err
    no_repository = tmp_path / "none"
    no_repository.mkdir()
    assert run(no_repository, "main") == 2
    assert capsys.readouterr().err.startswith("dev/check-commits: ")


def test_the_base_in_the_repository_is_a_whole_hash() -> None:
    text = (CHECKOUT / "dev" / "commits-since").read_text()
    assert len(text) == 41 and int(text, 16)
