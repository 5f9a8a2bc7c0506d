"""The demo's own bookkeeping: what it shows and the status it ends with follow from these."""

import json
from typing import Any

import pytest
from dev.demolib.tally import Tally, pod_state

from demo.lines import CLOCK, ended, pod, served


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (pod("a", ready=False), "starting"),
        (pod("a"), "serving"),
        (pod("a", labels={"tidegate.dev/state": "serving"}, ready=False), "starting"),
        (pod("a", labels={"tidegate.dev/state": "draining"}, ready=False), "draining"),
        (pod("a", labels={"tidegate.dev/state": "drained"}), "drained"),
        (pod("a", labels={"tidegate.dev/state": "drained"}, deletionTimestamp="2026-11-29T20:00:00Z"), "terminating"),
    ],
)
def test_a_pod_is_in_one_state(body: dict[str, Any], state: str) -> None:
    assert pod_state(body) == state


def test_streams_in_flight_survive_a_log_that_is_read_again() -> None:
    tally = Tally()
    tally.pod(pod("a"), 0, CLOCK)
    lines = [served("stream-start", "1"), served("stream-start", "2"), served("stream-end", "1"), "not json", "[]"]
    for line in [*lines, *lines]:
        tally.server_line("a", line, 1)
    assert tally.running == 1


def test_a_stream_is_judged_once_and_failures_are_told_apart() -> None:
    tally = Tally()
    tally.pod(pod("a"), 0, CLOCK)
    lines = [ended("1", "complete"), ended("2", "cut"), ended("3", "refused", None, 0), json.dumps({"progress": {}})]
    for line in [*lines, *lines]:
        tally.load_line(line, 1)
    assert (tally.whole, tally.cut, tally.refused, tally.lost_tokens) == (1, 1, 1, 7)
    assert (tally.pods["a"].whole, tally.pods["a"].cut) == (1, 1)


def test_a_pod_missing_from_a_fresh_list_is_gone_with_its_streams() -> None:
    tally = Tally()
    tally.list_pods([pod("a"), pod("b")], 0, CLOCK)
    tally.server_line("a", served("stream-start", "1"), 1)
    tally.list_pods([pod("b")], 2, CLOCK + 2)
    assert [p.name for p in tally.present] == ["b"]
    assert tally.running == 0
    assert tally.most_pods == 2


def test_the_deadline_is_shown_in_the_time_of_the_run() -> None:
    tally = Tally()
    drain = json.dumps({"deadline": "1970-01-12T13:47:10.500Z"})  # CLOCK + 30.5 s
    tally.pod(pod("a", labels={"tidegate.dev/state": "draining"}, annotations={"tidegate.dev/drain": drain}), 12, CLOCK)
    assert tally.pods["a"].deadline == pytest.approx(42.5)
