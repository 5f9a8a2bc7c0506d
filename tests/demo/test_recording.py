"""What the demo leaves behind: the recording, and the picture that is drawn from it."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from dev.demolib import picture, summary
from dev.demolib.tally import Tally

from demo.lines import CLOCK, ended, pod, served

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_committed_picture_is_drawn_from_the_committed_recording(tmp_path: Path) -> None:
    drawn = tmp_path / "rollout.svg"
    assert picture.main([str(CHECKOUT / "docs/img/rollout.json"), str(drawn)]) == 0
    assert drawn.read_text() == (CHECKOUT / "docs/img/rollout.svg").read_text()
    ET.parse(drawn)


def test_a_picture_shows_each_cut_at_its_pod(tmp_path: Path) -> None:
    tally = Tally(applied=10.0, finished=30.0, ended=32.0)
    tally.pod(pod("chat-a", tag="v1"), 5, CLOCK)
    tally.pod(pod("chat-b", tag="v2"), 12, CLOCK)
    tally.server_line("chat-a", served("stream-start", "1"), 6)
    tally.load_line(ended("1", "cut", "chat-a"), 12)
    summary.record(tmp_path / "r.json", {"plain": tally})
    assert picture.main([str(tmp_path / "r.json"), str(tmp_path / "r.svg")]) == 0
    texts = [str(e.text) for e in ET.parse(tmp_path / "r.svg").iter() if e.tag.endswith("text")]
    assert "1 cut" in texts
    assert {"a  v1", "b  v2"} <= set(texts)
    assert any("0 streams complete, 1 cut, 0 refused; 20 s" in text for text in texts)


def test_the_command_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert picture.main(["one.json"]) == 2
    assert "usage: dev/picture RECORDING.json OUTPUT.svg" in capsys.readouterr().err


def test_figures_are_the_operator_s_where_it_has_them() -> None:
    tally = Tally(applied=10.0, finished=30.0)
    assert summary.figures(tally)["of the operator's own time, what no schedule beats"] == "-"
    assert summary.longest(tally) is None
    rollout = {"boundSeconds": 18, "seconds": 20}
    outcomes = [{"seconds": 7}, {"seconds": 12}]
    tally.llmservice({"metadata": {"name": "chat"}, "status": {"rollout": rollout, "outcomes": outcomes}})
    figures = summary.figures(tally)
    assert figures["of the operator's own time, what no schedule beats"] == "18 of 20 s (90%)"
    assert figures["longest drain"] == "12 s"
    assert figures["rollout, until the last old pod is gone"] == "20 s"


def test_the_recording_tells_of_every_stream_that_failed(tmp_path: Path) -> None:
    tally = Tally(applied=10.0, finished=30.0, ended=32.0)
    tally.pod(pod("a"), 5, CLOCK)
    tally.load_line(ended("2", "cut"), 12)
    summary.record(tmp_path / "r.json", {"plain": tally})
    written = json.loads((tmp_path / "r.json").read_text())["plain"]
    assert written["failed"] == [[2.0, "a", "cut"]]
    assert written["pods"][0]["states"] == [[-5.0, "serving"]]
    assert (written["rolloutSeconds"], written["endSeconds"]) == (20.0, 22.0)
