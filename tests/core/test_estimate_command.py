"""`tidegate estimate`: what it prints, and what it says of input that is rubbish."""

import json
import math
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.__main__ import main


def lines(values: list[float], limit: float = math.inf) -> str:
    return "".join(f"{min(v, limit):.3f}{',censored' if v >= limit else ''}\n" for v in values)


def exponential(n: int, seed: int = 1) -> list[float]:
    random = Random(seed)
    return [random.expovariate(1 / 60) for _ in range(n)]


def run(path: Path, content: str | bytes, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    code = main(["estimate", str(path), *options])
    out, err = capsys.readouterr()
    return code, out, err


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "drains.txt"


def document(file: Path, content: str, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    code, out, err = run(file, content, capsys, "-o", "json", *options)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert isinstance(found, dict)
    assert found["terminationGracePeriodSeconds"] == sum(term["seconds"] for term in found["terms"])
    assert [term["name"] for term in found["terms"]] == ["propagation", "drain", "teardown", "safety"]
    return found


@pytest.mark.parametrize("limit", [math.inf, 330.0])
def test_3000_exponential_samples(file: Path, capsys: pytest.CaptureFixture[str], limit: float) -> None:
    found = document(file, lines(exponential(3000), limit), capsys)
    assert found["p99"] == pytest.approx(276, rel=0.1)
    assert found["p50"] == pytest.approx(60 * math.log(2), rel=0.1)
    assert found["p90"] == pytest.approx(60 * math.log(10), rel=0.1)
    assert found["p99"] < found["p99Upper"] < 345
    assert (found["n"], found["nEffective"], found["truncated"]) == (3000, 3000.0, False)
    assert found["censored"] == (0 if limit == math.inf else sum(v >= limit for v in exponential(3000)))
    assert found["covers"] > 0.99
    assert found["terms"][1] == {
        "name": "drain", "seconds": math.ceil(found["p99Upper"]), "source": "Measured", "reason": "Measured"
    }  # fmt: skip


def test_cut_at_120_seconds_they_claim_no_p99(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = lines(exponential(3000), 120.0)
    found = document(file, content, capsys)
    assert (found["p90"], found["p99"], found["p99Upper"], found["truncated"]) == (None, None, None, True)
    assert found["covers"] < 0.9
    assert (found["terminationGracePeriodSeconds"], found["terms"][1]["reason"]) == (200, "Outgrown")
    _, out, _ = run(file, content, capsys)
    assert "P99              beyond the reach of these drains" in out
    assert "P99, 95 % bound  none" in out
    assert "Too many of the longest drains were cut" in out


def test_5_samples_say_how_little_they_cover(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = lines([4.0, 8.0, 6.0, 9.0, 7.5])
    found = document(file, content, capsys)
    assert found["covers"] == pytest.approx(0.5492)
    assert (found["n"], found["terms"][1]["reason"]) == (5, "FewSamples")
    assert 60 < found["terms"][1]["seconds"] < 120
    _, out, _ = run(file, content, capsys)
    assert "up to P54 with 95 % confidence; for a P99 it takes 299 uncut drains" in out


def test_what_a_line_may_be(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = ["\ufeffseconds,censored", "# comment", "", "12", " 1.5e1 , CENSORED # cut", ".5,0"]
    content = "\r\n".join([*written, "7.,1", "8,true", "9,false", ""])
    found = document(file, content, capsys)
    assert (found["n"], found["censored"]) == (6, 3)


@pytest.mark.parametrize(
    ("content", "number", "reason"),
    [
        ("1\nabc\n", 2, "'abc' is not a number of seconds"),
        ("1\n\n# x\n2,perhaps\n", 4, "'perhaps' after the comma"),
        ("1\n2,\n", 2, "after the comma"),
        ("1,0,0\n", 1, "'0,0' after the comma"),
        ("-3\n", 1, "'-3' is not a number of seconds"),
        ("nan\n", 1, "'nan' is not a number of seconds"),
        ("inf\n", 1, "'inf' is not a number of seconds"),
        ("1_000\n", 1, "is not a number of seconds"),
        ("٣\n", 1, "is not a number of seconds"),
        ("12s\n", 1, "'12s' is not a number of seconds"),
        ("1e999\n", 1, "more than a week"),
        ("1764450000\n", 1, "more than a week"),
        ("1\nseconds\n", 2, "'seconds' is not a number"),
        ("x" * 100000 + "\n", 1, "..."),
        (b"1\n\xff\xfe\n", 2, "not UTF-8 text"),
        (b"1\n\x00\n", 2, "is not a number of seconds"),
    ],
)
def test_rubbish_gets_its_line_and_a_reason(
    file: Path, capsys: pytest.CaptureFixture[str], content: str | bytes, number: int, reason: str
) -> None:
    code, out, err = run(file, content, capsys)
    assert (code, out) == (2, "")
    assert f": line {number}: " in err
    assert reason in err
    assert err.count("\n") == 1
    assert len(err) < 300


@pytest.mark.parametrize(
    ("content", "options", "reason"),
    [
        ("", (), "no samples: write lines of"),
        ("# nothing\n\n", (), "no samples: write lines of"),
        ("1\n", ("--max", "19"), "raise it"),
    ],
)
def test_other_input_that_cannot_be_used(
    file: Path, capsys: pytest.CaptureFixture[str], content: str, options: tuple[str, ...], reason: str
) -> None:
    code, out, err = run(file, content, capsys, *options)
    assert (code, out) == (2, "")
    assert reason in err


def test_files_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err
    assert main(["estimate", str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--prior", "--max", "--safety"])
@pytest.mark.parametrize("value", ["-1", "nan", "soon", "1e9"])
def test_options_that_are_no_seconds(file: Path, capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    with pytest.raises(SystemExit) as exit_:
        run(file, "1\n", capsys, f"{option}={value}")
    assert exit_.value.code == 2
    assert f"{option}:" in capsys.readouterr().err


def test_the_terms_come_from_the_options(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--prior", "30", "--propagation", "2.5", "--teardown", "8", "--safety", "0")
    found = document(file, "300,censored\n", capsys, *options)
    assert [term["seconds"] for term in found["terms"]] == [3, 342, 8, 0]
    held = document(file, "300,censored\n", capsys, *options, "--max", "100")
    assert (held["terminationGracePeriodSeconds"], held["terms"][1]["seconds"], held["capped"]) == (100, 89, True)
    _, out, _ = run(file, "300,censored\n", capsys, *options, "--max", "100")
    assert "It should be 342 s; the cap of the sum, 100 s, holds it down." in out


@given(content=st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=80)
def test_any_bytes_get_an_answer_or_a_reason(file: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    code, out, err = run(file, content, capsys)
    assert (code, bool(out), bool(err)) in ((0, True, False), (2, False, True))


def test_as_a_command_with_standard_input() -> None:
    command = [sys.executable, "-m", "tidegate", "estimate", "-"]
    good = subprocess.run([*command, "-o", "json"], input=b"3\n4,censored\n", capture_output=True, check=False)
    assert (good.returncode, good.stderr, json.loads(good.stdout)["n"]) == (0, b"", 2)
    bad = subprocess.run(command, input=b"3\nx\n", capture_output=True, check=False)
    assert (bad.returncode, bad.stdout) == (2, b"")
    assert bad.stderr.startswith(b"tidegate estimate: standard input: line 2: 'x' is not a number")


def test_a_reader_that_leaves_early_gets_no_trace() -> None:
    command = [sys.executable, "-m", "tidegate", "estimate", "-"]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        found = subprocess.run(command, input=b"3\n", stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)
    assert (found.returncode, found.stderr) == (0, b"")


def test_it_runs_on_the_standard_library_alone() -> None:
    """In images that hold neither the operator's libraries nor scipy; a base install pulls nothing."""
    probe = (
        "import sys; from tidegate.__main__ import main; code = main(['estimate', '-']);"
        "heavy = {'numpy', 'scipy', 'pydantic', 'kubernetes', 'kopf', 'httpx', 'yaml'} & set(sys.modules);"
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    found = subprocess.run([sys.executable, "-c", probe], input=b"3\n", capture_output=True, check=False)
    assert (found.returncode, found.stderr) == (0, b"")


def examples() -> list[tuple[str, str]]:
    """(input, output) of the examples in docs/how-to/estimate-drain-times.md, as they stand there."""
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "estimate-drain-times.md"
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", text, re.MULTILINE)
    code = [textwrap.dedent(block).strip("\n") for block in blocks if block.startswith(("\n    ", "    "))]
    return [
        (command, output)
        for command, _, output in (block.partition("\n\n") for block in code)
        if command.startswith("printf")
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_docs_are_what_the_command_prints(number: int) -> None:
    assert len(examples()) == 2
    command, output = examples()[number]
    runnable = command.replace("tidegate estimate", f"{sys.executable} -m tidegate estimate")
    found = subprocess.run(["/bin/sh", "-c", runnable], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr, found.stdout.strip("\n")) == (0, "", output)
