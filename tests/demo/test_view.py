"""What the demo prints where nothing redraws, and the table where something does."""

import io

import pytest
from dev.demolib import summary, view
from dev.demolib.tally import Tally
from rich.console import Console

from demo.lines import CLOCK, ended, pod, served


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def _screen(out: io.StringIO, tally: Tally, clock: view.Clock, *, live: bool = False) -> view.Screen:
    console = Console(file=out, width=120, force_terminal=live, highlight=False)
    return view.Screen(console, "Tidegate", tally, clock, live=live)


def _tally() -> Tally:
    tally = Tally(applied=3.0)
    tally.pod(pod("chat-a", labels={"tidegate.dev/state": "draining"}), 0, CLOCK)
    tally.server_line("chat-a", served("stream-start", "1"), 1)
    tally.load_line(ended("2", "complete", "chat-a"), 2)
    return tally


def test_each_change_is_one_line_and_none_is_said_twice(out: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 165.0)
    tally = _tally()
    with _screen(out, tally, view.Clock(100.0)) as screen:
        screen.changed()
        screen.changed()
        screen.say("apply: the image")
        screen.beat()
        screen.beat()
        tally.pod_gone("chat-a", 65.0)
    lines = [line.strip() for line in out.getvalue().splitlines()[1:]]
    assert sum("chat-a" in line and "gone" not in line for line in lines) == 1
    assert "1:05  > apply: the image" in lines
    assert lines.count("1:05  streams: 1 in flight, 1 complete, 0 cut, 0 refused or reset") == 1
    assert lines[-2:] == [
        "1:05  chat-a (v1): draining -> gone",
        "1:05  streams: 0 in flight, 1 complete, 0 cut, 0 refused or reset",
    ]


def test_a_live_table_has_a_row_for_each_pod_and_the_operator_s_own_words(
    out: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 165.0)
    tally = _tally()
    status = {"phase": "RollingOut", "serving": 2, "message": "draining chat-a"}
    tally.llmservice({"metadata": {"name": "chat"}, "status": status})
    with _screen(out, tally, view.Clock(100.0), live=True):
        pass
    shown = out.getvalue()
    assert "chat-a" in shown
    assert "RollingOut: serving 2, updated 0, draining 0, 1:02 since the change" in shown
    assert "draining chat-a" in shown


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (605, "10:05")])
def test_times_are_minutes_and_seconds(seconds: float, text: str) -> None:
    assert view.minutes(seconds) == text


@pytest.mark.parametrize("compared", [True, False])
def test_the_summary_has_a_column_for_each_act(out: io.StringIO, compared: bool) -> None:
    summary.show(Console(file=out, width=120), _tally(), Tally() if compared else None)
    assert ("plain Deployment" in out.getvalue()) is compared
