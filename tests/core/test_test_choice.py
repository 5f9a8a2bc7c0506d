"""dev/test-changed: the tests that lead to what has changed are found, the nearest first, as far as the time goes."""

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from dev.testchoice.choice import Chosen, concerned, fitting, recorded
from dev.testchoice.cli import changed_files, main
from dev.testchoice.graph import Graph, is_test

CHECKOUT = Path(__file__).resolve().parents[2]
FILES = {
    "operator/tidegate/__init__.py": "",
    "operator/tidegate/core/__init__.py": "",
    "operator/tidegate/core/view.py": "from tidegate.core import limits\n",
    "operator/tidegate/core/limits.py": "",
    "operator/tidegate/core/plan.py": "def plan():\n    from .view import View\n",
    "operator/tidegate/cli/late.py": "import tidegate.core.plan as p\n",
    "manifests/monitoring/rules.yaml": "",
    "tests/conftest.py": "",
    "tests/apps/service.py": "from tidegate.core.limits import LIMIT\n",
    "tests/rig.py": "A = (['python', '-m', 'apps.service'],)\n",
    "tests/core/test_plan.py": "import tidegate.core.plan\n",
    "tests/core/test_limits.py": "from tidegate.core.limits import LIMIT\n",
    "tests/core/test_rules.py": "RULES = ROOT / 'manifests/monitoring' / name\n",
    "tests/core/test_one_rule.py": "RULES = ROOT / 'rules.yaml'\n",
    "tests/wiring/test_late.py": "call('python', '-m', 'tidegate', 'late')\n",
    "tests/wiring/test_service.py": "from rig import A\n",
    "tests/wiring/test_gone.py": "import tidegate.core.gone\n",
    "tests/cluster/test_all.py": "import tidegate.core.limits\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "dev").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("operator/tidegate/core/plan.py", {"core/test_plan", "wiring/test_late"}),
        ("operator/tidegate/core/view.py", {"core/test_plan", "wiring/test_late"}),
        (
            "operator/tidegate/core/limits.py",
            {"core/test_limits", "core/test_plan", "wiring/test_late", "wiring/test_service"},
        ),
        (
            "operator/tidegate/core/__init__.py",
            {"core/test_limits", "core/test_plan", "wiring/test_late", "wiring/test_service", "wiring/test_gone"},
        ),
        ("operator/tidegate/cli/late.py", {"wiring/test_late"}),
        ("tests/apps/service.py", {"wiring/test_service"}),
        ("manifests/monitoring/rules.yaml", {"core/test_rules", "core/test_one_rule"}),
        ("operator/tidegate/core/gone.py", {"wiring/test_gone"}),
        ("tests/core/test_plan.py", {"core/test_plan"}),
        ("tests/conftest.py", {f.removeprefix("tests/").removesuffix(".py") for f in FILES if is_test(f)}),
        ("README.md", set()),
    ],
)
def test_what_leads_to_a_file_is_found(checkout: Path, changed: str, tests: set[str]) -> None:
    assert set(Graph(checkout, [changed]).tests_of(changed)) == {f"tests/{name}.py" for name in tests}


def test_the_nearest_come_first_and_each_says_why(checkout: Path) -> None:
    changed = ["operator/tidegate/core/limits.py", "tests/wiring/test_gone.py", "tests/conftest.py"]
    found = concerned(Graph(checkout, changed), changed, {})
    assert [each.file.rsplit("/", 1)[-1] for each in found[:3]] == ["test_gone.py", "test_limits.py", "test_plan.py"]
    assert found[2].way == (
        "operator/tidegate/core/limits.py", "operator/tidegate/core/view.py", "operator/tidegate/core/plan.py",
        "tests/core/test_plan.py",
    )  # fmt: skip
    assert {each.way[0] for each in found[-2:]} == {"tests/conftest.py"}


def test_what_does_not_fit_is_left_out_but_never_a_test_that_has_changed() -> None:
    changed, near, large, far = (
        Chosen("a", ("a",), 99.0), Chosen("b", ("x", "b"), 20.0), Chosen("c", ("x", "c"), 70.0),
        Chosen("d", ("x", "y", "d"), 5.0),
    )  # fmt: skip
    assert fitting([changed, near, large, far], 130.0) == ([changed, near, far], [large])


def test_seconds_are_those_of_the_last_run(tmp_path: Path) -> None:
    assert recorded(tmp_path / "none.xml") == {}
    (tmp_path / "test_it.py").write_text("import time\ndef test_a(): time.sleep(0.1)\ndef test_b(): time.sleep(0.1)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", "run.xml", "test_it.py"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (name,) = found = recorded(tmp_path / "run.xml")
    assert name == "test_it.py" and found[name] >= 0.2


def test_a_change_is_what_the_branch_the_tree_and_new_files_have(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=checkout, check=True, capture_output=True)

    git("init", "--initial-branch", "main")
    git("add", ".")
    git("commit", "--message", "one")
    assert main(checkout, []) == 0
    assert "no test of the fast lane leads to what has changed since main: nothing" in capsys.readouterr().out
    git("switch", "--create", "branch")
    (checkout / "operator/tidegate/core/view.py").unlink()
    git("commit", "--all", "--message", "two")
    (checkout / "tests/apps/service.py").write_text("")
    (checkout / "tests/core/test_new.py").write_text("")
    git("switch", "main")
    (checkout / "README.md").write_text("")
    git("add", "README.md")
    git("commit", "--message", "three", "README.md")
    git("switch", "branch")
    changed = ["operator/tidegate/core/view.py", "tests/apps/service.py", "tests/core/test_new.py"]
    assert changed_files(checkout, "main") == changed
    assert main(checkout, ["--list"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "tests/core/test_new.py  <- changed itself"
    assert "tests/wiring/test_service.py  <- tests/rig.py <- tests/apps/service.py" in told


@cache
def real_graph() -> Graph:
    return Graph(CHECKOUT)


@pytest.mark.parametrize(
    ("changed", "test"),
    [
        ("operator/tidegate/core/**/view.py", "tests/core/test_plan_rollout.py"),
        ("operator/tidegate/gateway/**/exchange.py", "tests/gateway/test_relay.py"),
        ("operator/tidegate/cli/operator.py", "tests/wiring/test_cli_operator.py"),
        ("operator/tidegate/preview/kubelet.py", "tests/simulation/test_rollouts.py"),
        ("manifests/monitoring/rules.yaml", "tests/monitoring/test_monitoring.py"),
        ("dev/demolib/tally.py", "tests/demo/test_tally.py"),
    ],
)
def test_in_this_checkout(changed: str, test: str) -> None:
    (file,) = CHECKOUT.glob(changed)
    assert test in real_graph().tests_of(str(file.relative_to(CHECKOUT)))
