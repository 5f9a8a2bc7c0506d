"""What the gateway's figures are made of, and the page they are written to."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from dev.gatewaybench import cli, run
from dev.gatewaybench.report import plot, table
from dev.gatewaybench.rivals import RIVALS, Rival
from dev.gatewaybench.run import Failed, Figure, Load, rounds, summary

ONE, TWO = (Rival(name, lambda directory, ports: [], lambda: None) for name in ("tidegate", "envoy"))


def _stream(rival: str, number: int, p50: float, cpu: float | None = None) -> Figure:
    figure = {"rival": rival, "load": "64 burst", "round": number, "chunks": 1000, "p50": p50, "p99": 2 * p50}
    return figure | ({} if cpu is None else {"cpuSeconds": cpu, "memoryMb": 20.0 + number})


def _short(rival: str, number: int, per_second: float) -> Figure:
    return {"rival": rival, "load": "16 short", "round": number, "calls": 100, "perSecond": per_second}


FIGURES = [
    *(_stream("direct", number, p50) for number, p50 in enumerate((1.0, 2.0, 9.0))),
    *(_stream("tidegate", number, p50, 0.05) for number, p50 in enumerate((1.5, 2.6, 9.7))),
    *(_short("direct", number, 900.0) for number in range(3)),
    *(_short("tidegate", number, rate) for number, rate in enumerate((400.0, 500.0, 450.0))),
]


def test_added_latency_is_against_the_direct_connection_of_the_same_round() -> None:
    (row,) = (r for r in summary(FIGURES) if (r["load"], r["rival"]) == ("64 burst", "tidegate"))
    assert row["p50"] == 2.6
    assert row["p50Added"] == pytest.approx(0.6)
    assert row["cpuMicrosecondsPerChunk"] == pytest.approx(50.0)
    assert (row["memoryMb"], row["runs"]) == (21.0, 3)


def test_short_calls_are_told_by_their_rate_and_the_direct_connection_has_no_process() -> None:
    rows = {(r["load"], r["rival"]): r for r in summary(FIGURES)}
    assert rows["16 short", "tidegate"]["callsPerSecond"] == 450.0
    assert rows["16 short", "direct"]["cpuMicrosecondsPerCall"] is None
    assert rows["64 burst", "direct"]["memoryMb"] is None


def test_the_page_has_a_row_for_each_load_and_rival_and_the_plot_is_svg(tmp_path: Path) -> None:
    rows = summary(FIGURES)
    page = table(rows, "2 cores", 3)
    assert "| 64 burst | tidegate | 50.0 | 0.60 | 1.20 | 5.20 | 21 |" in page
    assert "| 16 short | tidegate | 450 |" in page
    plot(rows, tmp_path / "img" / "plot.svg")
    texts = [e.text for e in ET.parse(tmp_path / "img" / "plot.svg").iter() if e.tag.endswith("text")]
    assert "tidegate" in texts
    assert "64 burst" in texts


def test_every_rival_has_its_turn_in_each_place(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def measure(rival: Rival | None, engine: int, loads: Sequence[Load]) -> list[Figure]:
        order.append(rival.name if rival else "direct")
        return [{"rival": order[-1]}]

    class Upstream:
        def __enter__(self) -> int:
            return 1

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(run, "measure", measure)
    monkeypatch.setattr(run, "upstream", Upstream)
    found = list(rounds([ONE, TWO], [], 3))
    assert order == ["direct", "tidegate", "envoy", "tidegate", "envoy", "direct", "envoy", "direct", "tidegate"]
    assert [f["round"] for f in found] == [0] * 3 + [1] * 3 + [2] * 3


@pytest.mark.parametrize(
    ("load", "arguments"),
    [
        (Load(16, "short", 500), "short --connections 16 --calls 500"),
        (Load(64, "burst", 250), "streams --count 64 --chunks 250 --arrivals burst"),
    ],
)
def test_a_load_is_what_the_client_is_told(load: Load, arguments: str) -> None:
    assert " ".join(load.arguments()) == arguments


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_every_port_and_path_is_filled_into_a_rival_s_configuration(rival: Rival, tmp_path: Path) -> None:
    command = rival.command(tmp_path, {"listen": 1001, "admin": 1002, "upstream": 1003})
    written = " ".join([*command, *(path.read_text() for path in tmp_path.iterdir())])
    assert re.findall(r"@[A-Z]+@", written) == []
    assert "1001" in written
    assert "1003" in written


def test_rivals_that_are_not_installed_are_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = Rival("nginx", TWO.command, lambda: "nginx is not installed")
    monkeypatch.setattr(cli, "RIVALS", (ONE, TWO, missing))
    measured: list[Any] = []

    def one_round(rivals: Sequence[Rival], loads: Sequence[Load], count: int) -> list[Figure]:
        measured.append(([rival.name for rival in rivals], len(loads), count))
        return FIGURES

    monkeypatch.setattr(cli, "rounds", one_round)
    page = tmp_path / "page.md"
    assert cli.main(["--quick", "--rounds", "2", "-o", str(page), "--json", str(tmp_path / "all.json")]) == 0
    assert measured == [(["tidegate", "envoy"], len(cli.QUICK), 2)]
    assert "nginx is left out: nginx is not installed" in capsys.readouterr().err
    assert page.read_text().startswith("# Figures of the gateway")
    assert (tmp_path / "page.svg").is_file()


def test_a_rival_that_does_not_start_ends_the_run_with_its_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> list[Figure]:
        raise Failed("envoy does not start: no such cluster")

    monkeypatch.setattr(cli, "rounds", fails)
    assert cli.main(["--only", "tidegate"]) == 1
    assert capsys.readouterr().err.endswith("bench-gateway: envoy does not start: no such cluster\n")
