"""What the operator tells Prometheus through rollouts, losses and deaths: each drain once, nothing of what is gone."""

import json
from collections.abc import Iterator

import pytest

from simulation.stories import well_known
from simulation.world import NAMESPACE, World
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.cluster.port import EVENTS, LLM_SERVICES, PODS, SERVICES, Object

SERVICE = {"namespace": NAMESPACE, "service": "chat"}


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as made:
        yield made


def value(world: World, name: str, **labels: str) -> float | None:
    assert world.operator is not None
    return world.operator.metrics.registry.get_sample_value(f"tidegate_{name}", SERVICE | labels)


def total(world: World, name: str, **labels: str) -> float:
    """The sum of a metric's series that have these labels."""
    assert world.operator is not None
    wanted = (SERVICE | labels).items()
    samples = (s for family in world.operator.metrics.registry.collect() for s in family.samples)
    return sum(s.value for s in samples if s.name == f"tidegate_{name}" and wanted <= s.labels.items())


def series(world: World) -> set[tuple[str, str]]:
    """(metric, pod) of every series about the service."""
    assert world.operator is not None
    samples = [s for family in world.operator.metrics.registry.collect() for s in family.samples]
    return {(s.name, s.labels.get("pod", "")) for s in samples if s.labels.get("service") == "chat"}


def rollout(world: World) -> None:
    world.create()
    world.settle()
    for pod in world.pods():
        world.load(pod, 40.0, 20.0)
    world.edit(image="app:v2")


def annotation(pod: Object, key: str) -> Object:
    return dict(json.loads(pod["metadata"]["annotations"][key]))


def test_a_rollout_is_counted_and_timed(world: World) -> None:
    rollout(world)
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(1)
    assert value(world, "rollout_running") == 1
    assert value(world, "service_phase", phase="Rolling") == 1
    assert total(world, "service_blocked") >= 1
    world.settle()
    world.run(1)
    assert value(world, "drains_total", outcome="Drained", reason="Rollout") == 3
    assert total(world, "drains_total") == 3
    assert value(world, "drain_seconds_count", outcome="Drained") == 3
    lengths = [annotation(pod, names.OUTCOME)["seconds"] for pod in world.checks.outcomes.values()]
    assert value(world, "drain_seconds_sum", outcome="Drained") == pytest.approx(sum(lengths))
    assert value(world, "requests_cut_total") == 0
    shown = world.status()["rollout"]
    assert value(world, "rollout_running") == 0
    assert value(world, "rollout_seconds") == shown["seconds"]
    assert value(world, "rollout_bound_seconds") == shown["boundSeconds"]
    assert value(world, "pods", state="serving") == value(world, "service_replicas") == 3
    assert total(world, "pods") == total(world, "pod_state") == 3
    assert total(world, "service_phase") == value(world, "service_phase", phase="Ready") == 1
    assert total(world, "service_blocked") == 0
    assert value(world, "service_condition", condition="Ready", reason="AsDesired") == 1
    assert value(world, "service_condition", condition="Stalled", reason="AsDesired") == 0


def test_each_draining_pod_shows_since_when_until_when_and_what_it_holds(world: World) -> None:
    rollout(world)
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(8)
    (pod,) = world.pods(state=PodState.DRAINING)
    record, name = annotation(pod, names.DRAIN), pod["metadata"]["name"]
    since = value(world, "drain_started_timestamp_seconds", pod=name, reason="Rollout")
    until = value(world, "drain_deadline_timestamp_seconds", pod=name)
    assert since is not None and until is not None
    assert until - since == pytest.approx(1800)
    assert record["since"].startswith(world_time(since))
    assert value(world, "pod_in_flight_requests", pod=name) == 2
    observed = value(world, "pod_observed_timestamp_seconds", pod=name)
    assert observed is not None and observed >= since
    assert value(world, "pods", state="draining") == 1
    world.settle()
    world.run(1)
    assert name not in {pod for _, pod in series(world)}
    assert not [metric for metric, pod in series(world) if pod and metric.startswith("tidegate_drain")]


def test_what_a_pod_said_before_it_was_withdrawn_is_not_shown_as_what_it_holds_while_draining(world: World) -> None:
    rollout(world)
    shown = 0
    for _ in range(1000):
        world.run(0.02)
        for pod in world.pods(state=PodState.DRAINING):
            name = pod["metadata"]["name"]
            since = value(world, "drain_started_timestamp_seconds", pod=name, reason="Rollout")
            observed = value(world, "pod_observed_timestamp_seconds", pod=name)
            if since is not None and observed is not None:
                shown += 1
                assert observed >= since
                assert value(world, "pod_in_flight_requests", pod=name) is not None
    assert shown > 100
    world.settle()


def world_time(seconds: float) -> str:
    from tidegate.core.state import times

    return times.short(seconds).rstrip("Z")


def test_how_late_requests_still_came_to_withdrawn_pods_is_counted(world: World) -> None:
    world.create()
    world.settle()
    assert value(world, "drain_last_arrival_seconds_count") == 0
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(2)
    (late,) = world.pods(state=PodState.DRAINING)
    world.load(late, 20.0)
    world.settle()
    world.run(1)
    told = {name: annotation(pod, names.OUTCOME)["lateSeconds"] for name, pod in world.checks.outcomes.items()}
    assert [seconds > 0 for seconds in told.values()].count(True) == 1
    assert value(world, "drain_last_arrival_seconds_count") == 3
    assert value(world, "drain_last_arrival_seconds_bucket", le="0.0") == 2
    assert value(world, "drain_last_arrival_seconds_sum") == pytest.approx(sum(told.values()))


def test_when_drain_and_rollout_will_be_over_is_shown_as_a_time_that_waiting_does_not_move(world: World) -> None:
    well_known(world)
    assert value(world, "drain_eta_timestamp_seconds", estimate="likely") is None
    assert value(world, "rollout_eta_timestamp_seconds", estimate="likely") is None
    for pod in world.pods():
        world.load(pod, 45.0)
    world.edit(image="app:v99")
    world.until(lambda: world.status()["pods"] and world.status()["pods"][0].get("etaSeconds"))
    (row,) = world.status()["pods"]
    promises = {
        (metric, estimate): value(world, f"{metric}_eta_timestamp_seconds", estimate=estimate, **labels)
        for metric, labels in (("drain", {"pod": row["name"]}), ("rollout", {}))
        for estimate in ("likely", "upper")
    }
    assert None not in promises.values()
    world.run(4)
    assert value(world, "drain_eta_timestamp_seconds", estimate="likely", pod=row["name"]) == pytest.approx(
        promises["drain", "likely"], abs=1.5
    )
    world.until(lambda: world.pods(state=PodState.DRAINED), every=0.05)
    assert promises["drain", "likely"] == pytest.approx(world.loop.now(), abs=6)
    assert (promises["drain", "upper"] or 0) >= world.loop.now() - 3
    world.settle()
    world.run(1)
    assert (promises["rollout", "likely"] or 0) <= (promises["rollout", "upper"] or 0)
    assert not [metric for metric, _ in series(world) if "_eta_" in metric]


def test_estimates_are_shown_with_what_they_rest_on(world: World) -> None:
    world.create(budgetSeconds=60)
    world.settle()
    assert value(world, "drain_estimate_covers_ratio") is None
    for pod, seconds in zip(world.pods(), (20.0, 30.0, 5000.0), strict=True):
        world.load(pod, seconds)
    world.edit(image="app:v2")
    world.settle()
    world.run(1)
    assert value(world, "drain_estimate_samples") == 3
    assert value(world, "drain_estimate_censored_samples") == 1
    (term,) = [t for t in world.status()["gracePeriod"]["terms"] if t["name"] == "drain"]
    assert 0 < term["covers"] < 1
    assert value(world, "drain_estimate_covers_ratio") == term["covers"]


def test_a_held_pod_is_shown_with_the_end_of_its_budget(world: World) -> None:
    world.create(budgetSeconds=60, onExpiry="Hold")
    world.settle()
    for pod in world.pods():
        world.load(pod, 3000.0)
    world.edit(image="app:v2")
    world.run(400)
    (pod,) = world.pods(state=PodState.DRAINING)
    since = value(world, "drain_started_timestamp_seconds", pod=pod["metadata"]["name"], reason="Rollout")
    assert since is not None
    assert value(world, "drain_deadline_timestamp_seconds", pod=pod["metadata"]["name"]) == pytest.approx(since + 60)
    assert value(world, "service_condition", condition="DrainOverdue", reason="BudgetHeld") == 1
    assert value(world, "service_condition", condition="Stalled", reason="BudgetHeld") == 1
    world.edit(onExpiry="Release")
    world.settle()
    world.run(1)
    assert value(world, "service_condition", condition="DrainOverdue", reason="BudgetHeld") is None
    assert value(world, "requests_cut_total") == 3
    assert value(world, "drains_total", outcome="Expired", reason="Rollout") == 3


def test_cuts_that_nobody_could_count_are_unknown_wherever_they_are_told(world: World) -> None:
    world.create(budgetSeconds=60, replicas=1)
    world.settle()
    world.load(world.pods()[0], 3000.0)
    world.edit(image="app:v2")
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.process(world.pods(state=PodState.DRAINING)[0]).conduct = "hangs"
    world.settle()
    world.run(1)
    status = world.status()
    assert [(row["outcome"], "cut" in row) for row in status["outcomes"]] == [("Expired", False)]
    assert ("cut" in status["rollout"], status["rollout"]["uncounted"]) == (False, 1)
    assert (value(world, "rollout_cut_requests"), value(world, "rollout_uncounted_pods")) == (None, 1)
    assert (value(world, "drains_uncounted_total"), value(world, "requests_cut_total")) == (1, 0)
    told = {event["reason"]: event["message"] for event in world.server.all(EVENTS)}
    for reason in ("Drained", "RolloutComplete"):
        assert "an unknown number of requests cut" in told[reason]


def test_counters_are_there_before_the_first_event(world: World) -> None:
    """Of a counter that appears with its first event Prometheus sees no increase."""
    world.create()
    world.settle()
    assert value(world, "drains_total", outcome="Vanished", reason="Rollout") == 0
    assert value(world, "requests_cut_total") == 0


def test_a_new_operator_counts_no_old_outcome_again(world: World) -> None:
    rollout(world)
    world.settle()
    world.run(1)
    assert total(world, "drains_total") == 3
    world.kill_operator()
    world.run(200)
    assert world.status()["outcomes"]
    assert total(world, "drains_total") == 0
    ended = value(world, "last_drain_timestamp_seconds", outcome="Drained", reason="Rollout")
    assert ended is not None and world_time(ended) in world.status()["outcomes"][-1]["at"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(8, 44, 4))
def test_killed_at_any_write_no_drain_is_counted_twice(number: int, after: bool) -> None:
    with World(seed=2, traced=False) as world:
        world.kill_at(number, after=after)
        first = world.operator
        assert first is not None
        rollout(world)
        world.settle()
        world.run(1)
        assert world.deaths == 1
        seen = total(world, "drains_total")
        world.operator, second = first, world.operator
        seen += total(world, "drains_total")
        world.operator = second
        # Of the one whose status was written when the operator died, nobody can tell whether it was counted.
        assert 2 <= seen <= 3


@pytest.mark.parametrize("fault", ["429", "500", "timeout"])
def test_a_status_whose_write_fails_is_counted_once(world: World, fault: str) -> None:
    rollout(world)
    world.until(lambda: world.pods(state=PodState.DRAINED), every=0.02)
    world.faults.next_call("status", LLM_SERVICES, fault)
    world.settle()
    world.run(60)
    assert not world.faults.scripted
    assert total(world, "drains_total") == 3


def test_a_pod_lost_while_no_operator_ran_shows_when_one_is_back(world: World) -> None:
    rollout(world)
    world.until(lambda: world.pods(state=PodState.DRAINING))
    world.run(5)
    lost = world.pods(state=PodState.DRAINING)[0]
    world.stop_operator()
    world.kubelet.vanish(lost["metadata"]["uid"])
    world.run(60)
    world.start_operator()
    began = world.loop.now()
    world.settle()
    world.run(1)
    at = value(world, "last_drain_timestamp_seconds", outcome="Vanished", reason="Rollout")
    assert at is not None and at >= began
    assert value(world, "drains_total", outcome="Vanished", reason="Rollout") == 1


def test_the_series_of_a_deleted_service_end_with_it(world: World) -> None:
    rollout(world)
    world.settle()
    world.run(1)
    assert series(world)
    world.delete(LLM_SERVICES, "chat")
    world.run(200)
    assert series(world) == set()
    world.create()
    world.settle()
    assert total(world, "drains_total") == 0


def test_words_of_strangers_become_one_series(world: World) -> None:
    rollout(world)
    world.until(lambda: world.pods(state=PodState.DRAINED), every=0.02)
    pod = world.pods(state=PodState.DRAINED)[0]
    said = annotation(pod, names.OUTCOME) | {"reason": "x" * 500}
    world.stop_operator()
    world.annotate(PODS, pod["metadata"]["name"], outcome=json.dumps(said))
    world.server.merge(LLM_SERVICES, NAMESPACE, "chat", {"status": {"outcomes": None}}, "status")
    world.start_operator()
    world.settle()
    world.run(1)
    assert value(world, "drains_total", outcome="Drained", reason="Manual") == 1


def test_a_service_whose_writes_are_refused_is_shown_to_fail_until_they_are_not(world: World) -> None:
    """Also while the operator leaves them alone for a while: such a pass does not fail, and does nothing."""
    world.create()
    world.settle()
    world.run(1)
    assert value(world, "reconcile_consecutive_failures") is None
    refusing = True
    world.faults.scripted += [(lambda verb, kind: refusing and verb == "apply", "500")] * 1000
    world.edit(image="app:v2")
    world.run(30)
    assert (value(world, "reconcile_consecutive_failures") or 0) >= 5
    refusing = False
    world.settle()
    world.run(1)
    assert value(world, "reconcile_consecutive_failures") is None


def test_a_pass_that_has_written_is_followed_by_one_more(world: World) -> None:
    """By the news of its own writes, or because it says so: not by each of the two."""
    world.create()
    world.settle()
    world.run(1)
    assert world.operator is not None
    registry = world.operator.metrics.registry
    before = registry.get_sample_value("tidegate_reconcile_total", {"result": "ok"}) or 0
    world.delete(SERVICES, "chat")
    world.until(lambda: world.server.find(SERVICES, NAMESPACE, "chat"))
    world.run(1)
    assert registry.get_sample_value("tidegate_reconcile_total", {"result": "ok"}) == before + 2


def test_an_invalid_spec_shows_as_stalled(world: World) -> None:
    world.create()
    world.settle()
    live = world.service()
    broken = {**live, "spec": {**live["spec"], "port": 0}}
    world.server.replace(LLM_SERVICES, broken)
    world.run(5)
    assert value(world, "service_phase", phase="Stalled") == 1
    assert value(world, "pods", state="serving") == 3
    world.edit(port="http")
    world.settle()


def test_a_spec_that_cannot_be_read_takes_back_what_was_promised(world: World) -> None:
    """Nobody looks after the rollout until it is mended, so nobody can tell when it will be over."""
    rollout(world)
    world.until(lambda: world.status()["pods"] and "etaUpperSeconds" in world.status()["rollout"])
    (row,) = world.status()["pods"]
    assert "etaUpperSeconds" in row
    live = world.service()
    world.server.replace(LLM_SERVICES, {**live, "spec": {**live["spec"], "port": 0}})
    world.until(lambda: world.condition("Stalled").get("status") == "True")
    assert world.status()["pods"] == [{k: v for k, v in row.items() if not k.startswith("eta")}]
    assert not {"etaSeconds", "etaUpperSeconds"} & world.status()["rollout"].keys()
    assert not [metric for metric, _ in series(world) if "_eta_" in metric]
    world.edit(port="http")
    world.settle()


def test_a_process_that_does_not_lead_shows_no_service(world: World) -> None:
    world.create()
    world.settle()
    assert world.operator is not None
    world.operator.metrics.leads(False)
    assert series(world) == set()
