"""What a person reads in `kubectl describe llmservice`: counts, drains, sums, and nothing counted twice."""

from dataclasses import replace
from typing import Any

import pytest

from core.stories import (
    BUDGET,
    NOW,
    crashing,
    deployment,
    drained,
    draining,
    going,
    record,
    says,
    serving,
    several,
    starting,
    story,
)
from tidegate.api.conditions import Outcome
from tidegate.api.status import LLMServiceStatus
from tidegate.core.drain_time import bound
from tidegate.core.planner.plan import plan
from tidegate.core.report import events
from tidegate.core.report.status import KEPT_OUTCOMES, status
from tidegate.core.state import times
from tidegate.core.state.snapshot import Pod, Snapshot, Trouble


def told(s: Snapshot) -> dict[str, Any]:
    return status(plan(s)).document()


def after(s: Snapshot, seconds: float = 5.0, **changes: Any) -> Snapshot:
    """The same service later, its status written."""
    return replace(s, status=status(plan(s)), now=s.now + seconds, **changes)


MIDDLE = story(
    "v2", draining("v1-1"), *several("v1", 3)[1:], serving("v2-1"), counts={"v1": 3, "v2": 1, "v0": 0},
    status={"targetRevision": "chat-v2", "rollout": {"startedAt": times.text(NOW - 130)}},
)  # fmt: skip


def test_the_counts_of_a_rollout_in_its_middle():
    found = told(MIDDLE)
    assert (found["observedGeneration"], found["phase"], found["targetRevision"]) == (2, "Rolling", "chat-v2")
    assert (found["replicas"], found["serving"], found["updated"], found["draining"]) == (3, 3, 1, 1)
    assert found["revisions"] == [
        {"name": "chat-v1", "replicas": 3, "serving": 2, "draining": 1},
        {"name": "chat-v2", "replicas": 1, "serving": 1, "draining": 0},
    ]


def test_the_selector_is_of_the_pods_that_replicas_counts():
    found = told(MIDDLE)
    assert found["selector"] == "tidegate.dev/service=chat,tidegate.dev/state notin (draining,drained)"


def test_a_draining_pod_is_listed_with_what_it_holds_and_until_when():
    pod = draining("v1-1")
    said = says(pod, in_flight=3, oldest_seconds=41.7, at=NOW - 2)
    found = told(replace(MIDDLE, readings={**MIDDLE.readings, pod.uid: said}))
    assert found["pods"] == [
        {
            "name": "v1-1", "state": "draining", "reason": "Rollout", "since": times.short(NOW - 60),
            "deadline": times.short(NOW - 60 + BUDGET), "inFlight": 3, "oldestSeconds": 41,
            "observedAt": times.short(NOW - 2), "etaUpperSeconds": 120 - (60 - 5),
        }
    ]  # fmt: skip


def test_a_silent_pod_has_no_count_and_says_why():
    silent = {uid: said for uid, said in MIDDLE.readings.items() if uid != "uid-v1-1"}
    trouble = Trouble(NOW - 1, "timeout", "connected, but no answer in time")
    (row,) = told(replace(MIDDLE, readings=silent, troubles={"uid-v1-1": trouble}))["pods"]
    assert "inFlight" not in row and row["trouble"] == "connected, but no answer in time"


def test_a_held_drain_has_no_deadline():
    held = draining("v1-1", drain=record("v1-1", budget=None))
    s = story("v2", held, *several("v1", 3)[1:], serving("v2-1"), spec={"drain": {"onExpiry": "Hold"}})
    assert "deadline" not in told(s)["pods"][0]


def test_the_grace_period_is_shown_with_its_terms():
    assert told(MIDDLE)["gracePeriod"] == {
        "seconds": 140,
        "terms": [
            {"name": "propagation", "seconds": 5, "source": "Declared"},
            {"name": "drain", "seconds": 120, "source": "Declared"},
            {"name": "teardown", "seconds": 10, "source": "Declared"},
            {"name": "safety", "seconds": 5, "source": "Declared"},
        ],
    }


PAUSE = {"rollout": {"paused": True}}
READY_BEFORE = {"targetRevision": "chat-v1", "rollout": {"startedAt": times.text(NOW - 900), "finishedAt": "x"}}


@pytest.mark.parametrize(
    ("s", "phase"),
    [
        (story("v1"), "Pending"),
        (story("v1", *(starting(f"v1-{n}") for n in range(3))), "Pending"),
        (story("v1", *several("v1", 3)), "Ready"),
        (MIDDLE, "Rolling"),
        (story("v2", *MIDDLE.pods, spec=PAUSE), "Paused"),
        (story("v1", *several("v1", 3), spec=PAUSE), "Ready"),
        (story("v1", *several("v1", 2), status=READY_BEFORE), "Scaling"),
        (story("v1", *several("v1", 4), status=READY_BEFORE), "Scaling"),
        (story("v2", *several("v1", 3), crashing("v2-1")), "Stalled"),
        (story("v1", rejected=(("spec.template", "no"),)), "Stalled"),
    ],
    ids=["nothing yet", "first start", "whole", "rolling", "paused", "whole, paused", "out", "in", "failed", "refused"],
)  # fmt: skip
def test_the_phase_is_one_word_for_it(s: Snapshot, phase: str):
    assert told(s)["phase"] == phase


def gone(pod: Pod, s: Snapshot) -> Snapshot:
    return replace(s, pods=tuple(p for p in s.pods if p.uid != pod.uid))


DONE = drained("v1-1", cut=2)
PAID = replace(MIDDLE, pods=(DONE, *MIDDLE.pods[1:]))


def test_an_outcome_is_listed_and_counted_once_however_often_the_status_is_written():
    first = after(PAID)
    second = after(first)
    third = after(gone(DONE, second))
    for s in (first, second, third):
        assert [(o["pod"], o["outcome"], o["seconds"], o["cut"]) for o in s.status.document()["outcomes"]] == [
            ("v1-1", "Drained", 60, 2)
        ]
        assert (s.status.document()["rollout"]["drained"], s.status.document()["rollout"]["cut"]) == (1, 2)


def test_a_successor_counts_from_the_status_alone():
    successor = after(after(PAID), replica_sets=(), readings={})
    assert successor.status.document()["rollout"]["drained"] == 1


def test_the_age_of_the_oldest_request_cut_is_shown():
    outcome = DONE.outcome
    assert outcome is not None
    cut = replace(DONE, outcome=replace(outcome, oldest_cut_seconds=601.4))
    (row,) = told(replace(PAID, pods=(cut, *PAID.pods[1:])))["outcomes"]
    assert (row["cut"], row["oldestCutSeconds"]) == (2, 601)
    unknown = replace(DONE, outcome=replace(outcome, cut=None))
    (row,) = told(replace(PAID, pods=(unknown, *PAID.pods[1:])))["outcomes"]
    assert "cut" not in row


def uncounted(name: str, **fields: Any) -> Pod:
    """Drained, and nobody could count what was cut."""
    return drained(name, cut=None, **fields)


@pytest.mark.parametrize(
    ("pods", "cut", "at_least", "unknown"),
    [
        ([drained("v1-1"), drained("v1-2")], 0, None, 0),
        ([drained("v1-1", cut=2), drained("v1-2", cut=1)], 3, None, 0),
        ([uncounted("v1-1"), drained("v1-2")], None, None, 1),
        ([uncounted("v1-1"), drained("v1-2", cut=2)], None, 2, 1),
        ([uncounted("v1-1"), uncounted("v1-2")], None, None, 2),
    ],
    ids=["none", "some", "unknown", "some known", "all unknown"],
)
def test_a_sum_with_an_unknown_part_is_unknown_and_stays_so(pods, cut, at_least, unknown):
    first = after(replace(MIDDLE, pods=(*pods, *MIDDLE.pods[3:])))
    later = after(replace(first, pods=(*pods, drained("v1-3", cut=0), *MIDDLE.pods[3:])))
    for s in (first, later):
        rollout = s.status.document()["rollout"]
        assert (rollout.get("cut"), rollout.get("cutAtLeast")) == (cut, at_least)
        assert rollout["uncounted"] == unknown
        read = LLMServiceStatus.read(s.status.document()).rollout
        assert read is not None and read.cut == cut


def test_cuts_of_a_later_pod_are_added_to_what_is_known():
    first = after(replace(MIDDLE, pods=(uncounted("v1-1"), *MIDDLE.pods[1:])))
    later = after(replace(first, pods=(uncounted("v1-1"), drained("v1-2", cut=4), *MIDDLE.pods[2:])))
    rollout = later.status.document()["rollout"]
    assert (rollout.get("cut"), rollout["cutAtLeast"], rollout["uncounted"]) == (None, 4, 1)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"cut": 0}, "3 drained, 0 requests cut, in"),
        ({"uncounted": 1}, "3 drained, an unknown number of requests cut (1 pod not counted), in"),
        ({"uncounted": 2, "cutAtLeast": 5}, "at least 5 requests cut (2 pods not counted), in"),
    ],
)
def test_a_complete_rollout_is_told_with_what_is_known_of_its_cuts(known: dict[str, Any], words: str):
    begun = {"targetRevision": "chat-v2", "rollout": {"startedAt": times.text(NOW - 130), "drained": 3, **known}}
    s = story("v2", *several("v2", 3), status=begun)
    (event,) = [e for e in events.news(s, status(plan(s))) if e.reason == "RolloutComplete"]
    assert words in event.message


def test_a_start_that_nobody_has_seen_has_no_length():
    s = story("v2", *several("v1", 3), counts={"v1": 3, "v2": 1}, status={"targetRevision": "chat-v1"})
    assert "startSeconds" not in told(s)["rollout"]


def test_a_draining_pod_that_is_gone_without_a_word_has_vanished_once():
    before = after(MIDDLE)
    first = after(gone(draining("v1-1"), before))
    second = after(first)
    for s in (first, second):
        assert [(o["pod"], o["outcome"]) for o in s.status.document()["outcomes"]] == [("v1-1", "Vanished")]
        assert "cut" not in s.status.document()["outcomes"][0]
        assert s.status.document()["rollout"]["drained"] == 1


def test_a_draining_pod_that_terminates_by_another_s_hand_goes_on_draining_until_its_containers_have_ended():
    before = after(MIDDLE)
    deleted = after(replace(before, pods=(going(draining("v1-1")), *MIDDLE.pods[1:])))
    shown = deleted.status.document()
    assert shown["outcomes"] == []
    assert ([row["name"] for row in shown["pods"]], shown["draining"]) == (["v1-1"], 1)
    over = replace(going(draining("v1-1")), any_running=False)
    ended = after(replace(deleted, pods=(over, *MIDDLE.pods[1:])))
    assert [(o["pod"], o["outcome"]) for o in ended.status.document()["outcomes"]] == [("v1-1", "Vanished")]


def test_a_pod_whose_process_restarted_in_its_drain_is_an_event_once():
    lost = drained("v1-1", cut=None)
    assert lost.outcome is not None
    lost = replace(lost, outcome=replace(lost.outcome, outcome=Outcome.VANISHED))
    s = replace(MIDDLE, pods=(lost, *MIDDLE.pods[1:]))
    (event,) = [e for e in events.news(s, status(plan(s))) if e.reason == "Vanished"]
    assert "v1-1" in event.message and event.warning
    assert [e for e in events.news(after(s), status(plan(after(s)))) if e.reason == "Vanished"] == []


def test_a_pod_let_go_by_breaking_the_glass_is_released_and_not_vanished():
    before = after(MIDDLE)
    freed = replace(going(draining("v1-1")), release="node is on fire")
    s = after(replace(before, pods=(freed, *MIDDLE.pods[1:])))
    assert [(o["pod"], o["outcome"]) for o in s.status.document()["outcomes"]] == [("v1-1", "Released")]


def test_only_the_last_outcomes_are_kept_and_one_that_fell_out_is_not_counted_again():
    pods = [drained(f"v1-{n:02}", at=-100 + n) for n in range(13)]
    s = after(story("v2", *pods, *several("v2", 3)))
    assert [o["pod"] for o in s.status.document()["outcomes"]] == [f"v1-{n:02}" for n in range(3, 13)]
    assert s.status.document()["rollout"]["drained"] == 13
    again = after(s).status.document()
    assert len(again["outcomes"]) == KEPT_OUTCOMES and again["rollout"]["drained"] == 13


def test_drains_by_scaling_are_listed_and_not_counted_to_the_rollout():
    s = after(story("v1", drained("v1-3", reason="ScaleIn"), *several("v1", 2), spec={"replicas": 2}))
    assert len(s.status.document()["outcomes"]) == 1 and s.status.document()["rollout"]["drained"] == 0


def test_a_rollout_begins_when_its_revision_is_new_and_ends_when_the_last_old_pod_is_gone():
    old = story("v1", *several("v1", 3), status={"targetRevision": "chat-v1", "rollout": {"finishedAt": "long ago"}})
    begun = after(replace(story("v2", *several("v1", 3), serving("v2-1")), status=after(old).status), 100)
    assert begun.status.document()["rollout"]["startedAt"] == times.text(NOW)
    assert "finishedAt" not in begun.status.document()["rollout"]
    last = replace(begun, pods=tuple(several("v2", 3)), deployments=(deployment("v1", 0), deployment("v2", 3)))
    ended = after(last)
    assert ended.status.document()["rollout"]["finishedAt"] == times.text(NOW + 100)
    assert ended.status.document()["rollout"]["seconds"] == 100
    # Later losses and scaling do not open it again.
    assert after(replace(ended, pods=tuple(several("v2", 2)))).status.rollout == ended.status.rollout


def test_a_first_rollout_is_dated_from_the_creation_of_its_deployment():
    s = story("v1", starting("v1-1"))
    assert told(s)["rollout"]["startedAt"] == times.text(NOW - 1000)


def test_the_bound_follows_from_what_was_seen():
    first, second = drained("v1-1"), drained("v1-2", at=-2)
    assert second.outcome is not None
    second = replace(second, outcome=replace(second.outcome, seconds=25.0))
    s = story("v2", first, second, serving("v1-3"), *several("v2", 2, created=NOW - 140, ready_since=NOW - 100))
    found = told(s)["rollout"]
    # Two starts of 40 s each, drains of 55 and 20 s beyond the 5 s of propagation, one slot.
    assert (found["startSeconds"], found["drainSeconds"], found["longestDrainSeconds"]) == (40.0, 75.0, 55.0)
    assert found["boundSeconds"] == 2 * (40 + 5) + 75


@pytest.mark.parametrize(
    ("count", "total", "longest", "slots", "seconds"),
    [(0, 0, 0, 1, 60), (3, 30, 10, 1, 3 * 65 + 30), (3, 30, 10, 3, 75), (1, 600, 600, 4, 665), (4, 400, 100, 2, 330)],
)  # fmt: skip
def test_no_schedule_beats_the_longest_drain_nor_the_packed_slots(count, total, longest, slots, seconds):
    assert bound.rollout_bound(60, 5, bound.Drained(count, total, longest), slots) == seconds


def test_the_target_stays_in_the_status_while_a_refused_revision_cannot_be_made():
    s = story("v2", *several("v1", 3), status=READY_BEFORE, rejected=(("spec.template", "no"),))
    found = told(s)
    assert (found["targetRevision"], found["rollout"]) == ("chat-v1", READY_BEFORE["rollout"])


STORIES = [
    story("v1"), MIDDLE, PAID, story("v2", *several("v1", 3), crashing("v2-1")),
    story("v1", *several("v1", 3), locks_missing=("tidegate-pod-delete",), services_without_state=("front",)),
    story("v2", draining("v1-1", drain=record("v1-1", since=-700)), *several("v1", 3)[1:], serving("v2-1")),
]  # fmt: skip


@pytest.mark.parametrize("s", STORIES)
def test_every_status_is_one_the_schema_knows_in_its_closed_words(s: Snapshot):
    found = told(s)
    assert LLMServiceStatus.model_validate(found).document() == found
