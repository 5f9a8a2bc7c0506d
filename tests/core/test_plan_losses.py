"""What goes wrong beside a rollout: lost pods, flapping readiness, refused pods, ports that do not fit."""

from dataclasses import replace
from typing import Any

import pytest

from core.stories import (
    BUDGET,
    NOW,
    container,
    crashing,
    deployment,
    draining,
    going,
    homeless,
    raw_spec,
    record,
    serving,
    several,
    starting,
    story,
    told,
    unready,
)
from tidegate.api.conditions import BlockedReason
from tidegate.core.planner import revision
from tidegate.core.planner.actions import ApplyChild
from tidegate.core.planner.plan import plan
from tidegate.core.state.snapshot import Pod, Trouble

OLD = several("v1", 3)
LOOSE = {"rollout": {"maxUnavailable": 2}}


def down(name: str, seconds: float) -> Any:
    """NotReady for so long."""
    return unready(name, unready_since=NOW - seconds)


def test_after_a_loss_no_serving_pod_is_taken_whatever_max_unavailable_says():
    whole = story("v2", *OLD, counts={"v2": 1}, spec=LOOSE)
    assert told(whole) == ["withdraw v1-1 (Rollout)", "withdraw v1-2 (Rollout)"]
    assert told(story("v2", *OLD[:2], going(OLD[2]), counts={"v1": 3, "v2": 1}, spec=LOOSE)) == []
    assert told(story("v2", *OLD[:2], unready("v1-3"), counts={"v2": 1}, spec=LOOSE)) == ["withdraw v1-3 (Rollout)"]


def test_a_new_pod_that_is_not_ready_yet_is_no_loss():
    s = story("v2", *OLD[:2], unready("v2-1"), counts={"v2": 2}, spec=LOOSE)
    assert told(s) == ["withdraw v1-1 (Rollout)"]


def test_when_the_new_revision_fails_no_old_pod_goes_although_max_unavailable_would_allow_it():
    assert told(story("v2", *OLD, crashing("v2-1"), spec={"rollout": {"maxUnavailable": 1}})) == []
    assert told(story("v2", *OLD, crashing("v2-1"), spec=LOOSE)) == []


@pytest.mark.parametrize(("seconds", "actions"), [(9.9, []), (10, ["withdraw v1-3 (Rollout)"])])
def test_readiness_that_flaps_for_a_moment_takes_no_pod_away(seconds: float, actions: list[str]):
    s = story("v2", *OLD[:2], down("v1-3", seconds), serving("v2-1"))
    assert told(s) == actions


def test_it_looks_again_when_a_flap_has_become_a_loss():
    s = story("v2", *OLD[:2], down("v1-3", 4), serving("v2-1"))
    assert plan(s).requeue_after == pytest.approx(6, abs=0.1)


def test_counts_that_quota_refuses_are_taken_back_when_they_are_not_wanted_any_more():
    refused = deployment("v1", 5, failure="exceeded quota")
    assert told(story("v1", *OLD, deployments=[refused])) == ["lower v1 to 3"]
    still = {"replicas": 5}
    assert told(story("v1", *OLD, deployments=[refused], spec=still)) == []
    assert told(story("v1", *OLD, deployments=[replace(refused, failure="")])) == []


def test_counts_of_an_old_revision_that_are_refused_make_room_for_the_new_one():
    held = [deployment("v1", 3), deployment("v2", 1, failure="exceeded quota"), deployment("v3", 0)]
    assert told(story("v3", *OLD, deployments=held)) == ["lower v2 to 0"]
    held[1] = deployment("v2", 0)
    assert told(story("v3", *OLD, deployments=held)) == ["raise v3 to 1"]


def test_a_draining_pod_that_cannot_be_asked_is_not_held_back_but_replaced():
    back = draining("v1-3", drain=record("v1-3", reason="ScaleIn"))
    deaf = {back.uid: Trouble(NOW - 1, "timeout", "no answer in time")}
    s = story("v1", *OLD[:2], back, troubles=deaf)
    assert [(order.pod, order.undo) for order in plan(s).orders] == [("v1-3", False)]
    assert told(s) == ["raise v1 to 4"]


def test_an_expired_drain_that_nobody_has_asked_yet_is_asked_first():
    late = draining("v1-1", drain=record("v1-1", since=-BUDGET - 60))
    s = story("v2", late, *OLD[1:], serving("v2-1"), readings={"v1-1": None})
    assert told(s) == [] and [order.pod for order in plan(s).orders] == ["v1-1"]
    deaf = replace(s, troubles={late.uid: Trouble(NOW - 1, "timeout", "no answer in time")})
    assert told(deaf) == ["drained v1-1: Expired"]


@pytest.mark.parametrize("lacks", [{"contract_port": None}, {"ip": ""}])
def test_one_that_can_never_be_asked_expires_all_the_same(lacks: dict[str, Any]):
    late = draining("v1-1", drain=record("v1-1", since=-BUDGET - 60), **lacks)
    s = story("v2", late, *OLD[1:], serving("v2-1"), readings={"v1-1": None})
    assert told(s) == ["drained v1-1: Expired"]


def ports(request: str, number: int = 8000) -> dict[str, Any]:
    """A template whose request port has this name."""
    held = container("v2") | {
        "ports": [{"name": request, "containerPort": number}, {"name": "admin", "containerPort": 9901}]
    }
    return {"template": {"spec": {"containers": [held]}}, "port": request}


def test_a_renamed_request_port_is_refused_while_pods_of_the_old_name_serve():
    (finding,) = plan(story("v2", *OLD, spec=ports("web"))).view.findings
    assert finding.field == "spec.port" and "keep the name http" in finding.remedy
    assert told(story("v2", *OLD, spec=ports("web"))) == []


def test_another_number_under_the_same_name_is_fine_and_so_is_a_new_name_without_old_pods():
    assert plan(story("v2", *OLD, spec=ports("http", 9000))).view.findings == ()
    assert plan(story("v2", counts={"v1": 0}, spec=ports("web"))).view.findings == ()
    without = {**ports("web"), "service": {"create": False}}
    assert plan(story("v2", *OLD, spec=without, live_service=None)).view.findings == ()


def test_an_old_source_that_cannot_be_read_stands_in_nobody_s_way():
    odd = deployment("v1", 3, source='{"port": 5}')
    assert plan(story("v2", *OLD, deployments=[odd], spec=ports("web"))).view.findings == ()
    assert revision.spec_of('{"port": 5}') is None and revision.spec_of("{") is None
    read = revision.spec_of(revision.source(raw_spec("v1")))
    assert read is not None and read.port == "http"


HOLD = {"disruption": {"mode": "Hold"}}


@pytest.mark.parametrize(
    ("pods", "spec", "allowed"),
    [
        pytest.param([crashing("v1-1"), crashing("v1-2"), crashing("v1-3")], {}, True, id="all crash"),
        pytest.param([crashing("v1-1"), crashing("v1-2"), serving("v1-3")], {}, True, id="too few are healthy"),
        pytest.param([crashing("v1-1"), *several("v1", 3)[1:]], {}, False, id="enough are healthy"),
        pytest.param(several("v1", 3), {}, False, id="all are healthy"),
        pytest.param([crashing("v1-1"), unready("v1-2"), serving("v1-3")], {}, False, id="one may be working"),
        pytest.param([crashing("v1-1"), draining("v1-2"), serving("v1-3")], {}, False, id="one drains"),
        pytest.param([crashing("v1-1"), crashing("v1-2"), crashing("v1-3")], HOLD, True, id="all crash under Hold"),
        pytest.param([crashing("v1-1"), crashing("v1-2"), serving("v1-3")], HOLD, False, id="one serves under Hold"),
        pytest.param([], {}, False, id="no pods"),
    ],
)
def test_pods_that_cannot_be_working_hold_up_no_drain_of_their_node(
    pods: list[Any], spec: dict[str, Any], allowed: bool
):
    s = story("v1", *pods, spec=spec, counts={"v1": 3})
    budget = next((a for a in plan(s).actions if isinstance(a, ApplyChild) and a.kind == "PodDisruptionBudget"), None)
    policy = "IfHealthyBudget" if budget is None else budget.body["spec"]["unhealthyPodEvictionPolicy"]
    assert policy == ("AlwaysAllow" if allowed else "IfHealthyBudget")


def test_a_pod_that_starts_to_work_is_protected_again():
    crash = [crashing("v1-1"), crashing("v1-2"), crashing("v1-3")]
    (made,) = [a for a in plan(story("v1", *crash)).actions if isinstance(a, ApplyChild)]
    for pods in ([*crash[:2], unready("v1-3")], several("v1", 3)):
        s = story("v1", *pods, live_budget=made.body)
        (back,) = [a for a in plan(s).actions if isinstance(a, ApplyChild)]
        assert back.body["spec"]["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"
    assert "apply PodDisruptionBudget chat" not in told(story("v1", *crash, live_budget=made.body))


NO_SURGE = {"rollout": {"maxSurge": 0, "maxUnavailable": 1}}


def ending(pod: Pod, by: float, **fields: Any) -> Pod:
    """Terminating, with a grace period that is over in `by` seconds."""
    return replace(going(pod), terminates_by=NOW + by, node="node-1", **fields)


@pytest.mark.parametrize(
    ("pod", "actions"),
    [
        pytest.param(ending(OLD[0], 100), [], id="within its grace period"),
        pytest.param(ending(OLD[0], -29), [], id="within the margin"),
        pytest.param(ending(OLD[0], -31), ["raise v2 to 1"], id="stuck, as on a dead node"),
        pytest.param(ending(OLD[0], 100, any_running=False), ["raise v2 to 1"], id="its containers have ended"),
    ],
)
def test_without_surge_a_terminating_pod_holds_its_place_no_longer_than_it_can_hold_a_device(
    pod: Pod, actions: list[str]
):
    assert told(story("v2", pod, *OLD[1:], counts={"v1": 2, "v2": 0}, spec=NO_SURGE)) == actions
    # A scale-out waits by the same rule, and no longer.
    wider = told(story("v1", pod, *OLD[1:], counts={"v1": 2}, spec=NO_SURGE))
    assert wider == (["raise v1 to 3"] if actions else [])


def test_it_looks_again_when_the_place_of_a_stuck_pod_counts_as_free():
    s = story("v2", ending(OLD[0], -28), *OLD[1:], counts={"v1": 2, "v2": 0}, spec=NO_SURGE)
    assert plan(s).requeue_after == pytest.approx(2, abs=0.1)


def test_a_stuck_pod_is_named_only_where_its_device_is_missed():
    stuck = ending(OLD[0], -31)
    goes_on = story("v2", stuck, *OLD[1:], starting("v2-1"), counts={"v1": 2}, spec=NO_SURGE)
    assert plan(goes_on).blocked_by(BlockedReason.POD_STUCK_TERMINATING) is None
    found = plan(story("v2", stuck, *OLD[1:], homeless("v2-1"), counts={"v1": 2}, spec=NO_SURGE))
    blocked = found.blocked_by(BlockedReason.POD_STUCK_TERMINATING)
    assert blocked is not None and [pod.name for pod in blocked.pods] == ["v2-1", "v1-1"]
