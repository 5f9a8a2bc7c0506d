"""What is promised of a drain and of a rollout, and which pods start first; the grace period as part of a revision."""

from dataclasses import replace
from typing import Any

import pytest

from core.stories import (
    BUDGET,
    NOW,
    deployment,
    draining,
    only,
    raw_spec,
    record,
    says,
    serving,
    several,
    story,
    told,
)
from core.test_drain_times import learnt, over
from tidegate.api.status import LLMServiceStatus
from tidegate.core.drain_time.drain_times import Age, Counted, DrainTimes, load
from tidegate.core.drain_time.histogram import Sample
from tidegate.core.planner import actions as a
from tidegate.core.planner import revision
from tidegate.core.planner.observe import observe
from tidegate.core.planner.plan import plan
from tidegate.core.planner.samples import counted
from tidegate.core.report.status import status
from tidegate.core.state.snapshot import Snapshot

OLD = several("v1", 3)
NEW = serving("v2-1")
EVEN = learnt(*[float(n) for n in range(1, 101)])
"""A hundred drains of 1 to 100 s, none cut."""


def row(s: Snapshot) -> dict[str, Any]:
    (found,) = status(plan(s)).document()["pods"]
    return {key: found.get(key) for key in ("etaSeconds", "etaUpperSeconds")}


def running(since: float, known: DrainTimes, **said: Any) -> Snapshot:
    pod = draining("v1-1", drain=record("v1-1", since=since))
    return story("v2", pod, *OLD[1:], NEW, readings={"v1-1": says(pod, **said)}, drain_times=known)


def test_a_fresh_drain_takes_what_half_and_what_nearly_all_took() -> None:
    found = row(running(-5, EVEN))
    assert found["etaSeconds"] == pytest.approx(51, abs=2)
    assert found["etaUpperSeconds"] == pytest.approx(96, abs=3)


def test_of_one_that_has_run_only_those_that_ran_as_long_tell() -> None:
    found = row(running(-65, EVEN))
    assert found["etaSeconds"] == pytest.approx(80 - 60, abs=3)
    assert found["etaUpperSeconds"] == pytest.approx(98 - 60, abs=3)


def test_what_is_left_of_the_propagation_time_comes_on_top() -> None:
    assert row(running(-5, EVEN))["etaSeconds"] + 5 == row(running(0, EVEN))["etaSeconds"]


def test_beyond_all_that_was_seen_the_budget_is_the_bound() -> None:
    assert row(running(-305, EVEN)) == {"etaSeconds": None, "etaUpperSeconds": BUDGET - 305}


def test_too_few_drains_bound_nothing_so_the_declared_time_does() -> None:
    assert row(running(-5, DrainTimes())) == {"etaSeconds": None, "etaUpperSeconds": 120}
    few = row(running(-5, learnt(4.0, 6.0, 8.0)))
    assert few["etaSeconds"] == pytest.approx(6, abs=1)
    assert 8 < few["etaUpperSeconds"] <= 120


def test_no_promise_goes_beyond_the_budget() -> None:
    long = learnt(*[2000.0] * 50)
    assert row(running(-5, long)) == {"etaSeconds": BUDGET - 5, "etaUpperSeconds": BUDGET - 5}


def test_an_empty_pod_waits_for_its_seal_alone() -> None:
    s = running(-1, EVEN, in_flight=0, idle_since=NOW - 0.5)
    assert row(s) == {"etaSeconds": 4, "etaUpperSeconds": 4 + 2}


def rollout(s: Snapshot) -> dict[str, Any]:
    found = status(plan(s)).document()["rollout"]
    return {key: found.get(key) for key in ("etaSeconds", "etaUpperSeconds")}


STARTED = {"rollout": {"startSeconds": 30.0}, "targetRevision": "chat-v1"}


def test_a_rollout_takes_its_starts_and_drains_in_its_slots() -> None:
    s = story("v2", *OLD, counts={"v2": 1}, status=STARTED, drain_times=EVEN)
    found = rollout(s)
    # Three pods, one slot: each takes 30 s to start, 5 s of propagation, 50 s on average to drain.
    assert found["etaSeconds"] == pytest.approx(3 * (30 + 5 + 50.5), rel=0.05)
    assert found["etaSeconds"] + 1.645 * 28 * 3**0.5 == pytest.approx(found["etaUpperSeconds"], rel=0.05)
    wide = story("v2", *OLD, counts={"v2": 3}, status=STARTED, drain_times=EVEN, spec={"rollout": {"maxSurge": 3}})
    assert rollout(wide)["etaSeconds"] < 0.5 * found["etaSeconds"]


def test_without_a_single_drain_only_an_upper_bound_is_promised() -> None:
    s = story("v2", *OLD, counts={"v2": 1}, status=STARTED)
    assert rollout(s) == {"etaSeconds": None, "etaUpperSeconds": 3 * (30 + 5 + 120)}


@pytest.mark.parametrize("spec", [{"rollout": {"paused": True}}, {"template": {"spec": {"hostNetwork": True}}}])
def test_what_is_held_up_promises_nothing(spec: dict[str, Any]) -> None:
    if "template" in spec:
        spec = {"template": {"spec": {**raw_spec("v2")["template"]["spec"], "hostNetwork": True}}}
    s = story("v2", *OLD, counts={"v2": 1}, status=STARTED, drain_times=EVEN, spec=spec)
    assert rollout(s) == {"etaSeconds": None, "etaUpperSeconds": None}


def test_a_finished_rollout_promises_nothing() -> None:
    assert rollout(story("v1", *OLD, drain_times=EVEN)) == {"etaSeconds": None, "etaUpperSeconds": None}


# -- who starts first


def withdrawn(known: DrainTimes, ages: dict[str, float], counts: dict[str, int] | None = None) -> list[str]:
    """In which order two pods of v1 start that have requests of these ages."""
    pods = several("v1", 2)
    readings = {p.name: says(p, oldest_seconds=ages[p.name], in_flight=(counts or {}).get(p.name, 1)) for p in pods}
    s = story(
        "v2", *pods, *several("v2", 2), readings=readings, drain_times=known,
        spec={"replicas": 2, "rollout": {"maxSurge": 2}},
    )  # fmt: skip
    return [x.pod for x in plan(s).actions if isinstance(x, a.Withdraw)]


def test_the_pod_predicted_to_drain_longest_starts_first() -> None:
    # Half of the drains take 5 s, the others 300 s: whoever has lasted 50 s has long to go.
    two_kinds = learnt(*[5.0] * 50, *[300.0] * 50)
    assert withdrawn(two_kinds, {"v1-1": 1.0, "v1-2": 50.0}) == ["v1-2", "v1-1"]
    # Of drains that all take a minute, the older has less left, however many requests it holds.
    alike = learnt(*[60.0] * 100)
    assert withdrawn(alike, {"v1-1": 50.0, "v1-2": 1.0}, {"v1-1": 9, "v1-2": 1}) == ["v1-2", "v1-1"]


def test_without_drains_the_one_with_more_requests_starts_first() -> None:
    assert withdrawn(DrainTimes(), {"v1-1": 1.0, "v1-2": 1.0}, {"v1-1": 2, "v1-2": 7}) == ["v1-2", "v1-1"]


# -- ages of requests


def aged(known: DrainTimes, *ages: float, target: str = "v2") -> DrainTimes | None:
    """After the first drain of v1, whose other pods have requests so old."""
    pods = [over("v1-1"), *[serving(f"v1-{n}") for n in range(2, 2 + len(ages))]]
    readings = {p.name: says(p, oldest_seconds=age) for p, age in zip(pods[1:], ages, strict=True)}
    return counted(observe(story(target, *pods, serving(f"{target}-1"), readings=readings, drain_times=known)))


def test_the_oldest_request_of_each_pod_counts_until_its_drain_does() -> None:
    first = aged(DrainTimes(), 200.0, 3.0)
    assert first is not None
    assert {pod: age.seconds for pod, age in first.ages.items()} == {"v1-2": 200.0, "v1-3": 3.0}
    assert (first.drains.n, first.samples.n, first.samples.censored_n) == (1, 3, 2)
    shown = status(plan(story("v2", *OLD, drain_times=first))).document()
    assert (shown["drainTimes"]["samples"], shown["drainTimes"]["censored"]) == (3, 2)
    assert next(t for t in shown["gracePeriod"]["terms"] if t["name"] == "drain")["seconds"] == 270
    later = first.add([Counted("v1-2", Sample(4.0, False, NOW))], {}, {}, standing=frozenset({"v1-2", "v1-3"}))
    assert set(later.ages) == {"v1-3"}


def test_an_age_is_read_once_a_rollout() -> None:
    standing = frozenset({"p"})
    first = DrainTimes().waiting({"p": Age("v2", 10.0, NOW)}, standing)
    assert first.waiting({"p": Age("v2", 99.0, NOW)}, standing).ages["p"].seconds == 10.0
    assert first.waiting({"p": Age("v3", 99.0, NOW)}, standing).ages["p"].seconds == 99.0
    gone = first.waiting({}, frozenset())
    assert (gone.drains.n, gone.drains.censored_n, gone.ages) == (1, 1, {})


def test_of_many_ages_the_longest_are_kept() -> None:
    many = {f"p-{n:03}": Age("v2", float(n), NOW) for n in range(100)}
    kept = DrainTimes().waiting(many, frozenset(many)).ages
    assert (len(kept), min(age.seconds for age in kept.values())) == (32, 68.0)


# -- the grace period as part of the revision


DRIFTING = {"drain": {"grace": {"rollOnDrift": True}}}
STALE = {"conditions": [{
    "type": "GracePeriodStale", "status": "True", "reason": "TermsChanged", "message": "", "lastTransitionTime": "",
}]}  # fmt: skip
GROWN = learnt(cut=(400.0,))


def test_with_roll_on_drift_a_stale_grace_period_makes_a_revision_once_it_is_said() -> None:
    s = story("v1", *OLD, spec=DRIFTING, drain_times=GROWN)
    assert told(s) == []
    assert "spec.drain.grace.rollOnDrift" in next(
        c["message"] for c in status(plan(s)).document()["conditions"] if c["type"] == "GracePeriodStale"
    )
    made = only(replace(s, status=LLMServiceStatus.read(STALE)), a.CreateRevision)
    assert made.source == revision.with_grace(revision.source(s.raw_spec), 405 + 20)
    new = deployment("v1b", 1, source=made.source, grace_seconds=425, created=NOW - 1)
    rolling = replace(s, status=LLMServiceStatus.read(STALE), deployments=(*s.deployments, new))
    assert plan(rolling).view.target == new


def test_without_it_or_in_the_middle_of_something_none_is_made() -> None:
    def makes(**changes: Any) -> bool:
        known = {"spec": DRIFTING, "drain_times": GROWN, "status": STALE} | changes
        pods = known.pop("pods", OLD)
        s = story("v1", *pods, **known)
        return any(isinstance(x, a.CreateRevision) for x in plan(s).actions)

    assert makes()
    assert not makes(spec={})
    assert not makes(status={})
    assert not makes(spec=DRIFTING | {"rollout": {"paused": True}})
    assert not makes(pods=[*OLD[:2], serving("v1-3", ready_since=None)])
    assert not makes(pods=[*OLD, serving("v0-1")])
    assert not makes(drain_times=learnt(cut=(125.0,)), deployments=[deployment("v1", 3, grace_seconds=190)])


def test_switching_it_rolls_nothing() -> None:
    plain = story("v1", *OLD)
    assert told(replace(plain, spec=story("v1", spec=DRIFTING).spec)) == []
    grown = deployment("v1", 3, source=revision.with_grace(revision.source(raw_spec("v1")), 140))
    assert told(story("v1", *OLD, deployments=[grown])) == []


def test_a_first_revision_and_one_at_0_get_the_present_value() -> None:
    first = only(story("v1", spec=DRIFTING, drain_times=GROWN, deployments=[]), a.CreateRevision)
    assert '"grace":{"seconds":425}' in first.source
    idle = deployment("v1", 0, source=revision.with_grace(revision.source(raw_spec("v1")), 140))
    s = story("v1", *several("v2", 3), spec=DRIFTING, drain_times=GROWN, deployments=[idle, deployment("v2", 3)])
    again = next(x for x in plan(s).actions if isinstance(x, a.CreateRevision))
    assert again.refresh and '"grace":{"seconds":425}' in again.source


def test_a_document_with_ages_comes_back() -> None:
    first = aged(DrainTimes(), 200.0)
    assert first is not None
    assert load(first.dump()).ages == first.ages
