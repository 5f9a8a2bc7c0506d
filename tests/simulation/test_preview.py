"""What a change would do, as the operator in a cluster without faults shows it; and that it then does so.

Limits are kept throughout, and no time is wasted.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from core.stories import raw_spec
from simulation.world import World
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.cluster.port import DEPLOYMENTS, PODS, Kind, Object
from tidegate.core.state import limits
from tidegate.preview.forecast import Assumptions, Forecast, Preview, Stuck
from tidegate.preview.shapes import ready

ASSUME = Assumptions(start=60.0, drain=120.0, teardown=10.0)


@pytest.fixture
def preview() -> Iterator[Preview]:
    with Preview("shop", "chat", ASSUME) as made:
        yield made


def changed(preview: Preview, image: str, **changes: Any) -> Forecast:
    preview.apply(raw_spec(image, **changes))
    return preview.settle()


def rolled(preview: Preview, **changes: Any) -> Forecast:
    changed(preview, "v1", **changes)
    return changed(preview, "v2", **changes)


def pods(preview: Preview) -> set[str]:
    return {pod["metadata"]["uid"] for pod in preview.objects(PODS)}


SHAPES = [
    (1, 1, 0), (1, 0, 1), (1, 0, 0), (3, 1, 0), (3, 0, 1), (3, 2, 0), (3, 1, 1), (3, "34%", 0), (5, "25%", "25%"),
    (10, 3, 2), (10, "100%", 0), (7, 0, 3), (4, 9, 9), (0, 1, 0),
]  # fmt: skip


@pytest.mark.parametrize(("replicas", "surge", "unavailable"), SHAPES)
def test_a_rollout_replaces_every_pod_within_its_limits(preview: Preview, replicas: int, surge: Any, unavailable: Any):
    resolved = limits.resolve(replicas, surge, unavailable)
    shape = {"replicas": replicas, "rollout": {"maxSurge": surge, "maxUnavailable": unavailable}}
    done = rolled(preview, **shape)
    assert done.drained == replicas
    assert done.least_serving >= resolved.least_serving
    assert done.most_pods <= resolved.most_pods
    images = [pod["spec"]["containers"][0]["image"] for pod in preview.objects(PODS)]
    assert images == [raw_spec("v2")["template"]["spec"]["containers"][0]["image"]] * replicas
    assert changed(preview, "v2", **shape).steps == (), "nothing is left to do"


@pytest.mark.parametrize(("replicas", "surge", "unavailable"), [s for s in SHAPES if s[0]])
def test_a_rollout_uses_all_the_room_it_has(preview: Preview, replicas: int, surge: Any, unavailable: Any):
    resolved = limits.resolve(replicas, surge, unavailable)
    done = rolled(preview, replicas=replicas, rollout={"maxSurge": surge, "maxUnavailable": unavailable})
    slots = min(resolved.slots, replicas + resolved.unavailable)
    # Each slot carries its share of start + propagation + drain; without surge the old one's exit comes on top.
    each = 60 + 5 + 120 + (10 if resolved.surge == 0 else 0)
    waves = -(-replicas // min(slots, replicas))
    assert done.seconds <= (each + 1) * waves + 1


def test_the_bound_is_reached_where_the_slots_divide_the_pods(preview: Preview):
    done = rolled(preview)
    assert done.bound_seconds == 3 * (60 + 5 + 120)
    assert done.seconds == pytest.approx(done.bound_seconds, abs=1)


def test_a_first_creation_starts_everything_at_once(preview: Preview):
    done = changed(preview, "v1", replicas=5)
    assert (done.seconds, done.drained, done.most_pods) == (60, 0, 5)


def test_a_first_creation_without_pods_writes_no_template_twice(preview: Preview):
    done = changed(preview, "v1", replicas=0)
    (deployment,) = preview.objects(DEPLOYMENTS)
    assert [step.text for step in done.steps] == [
        "create Secret chat-drain with the drain key",
        "apply Service chat",
        "apply PodDisruptionBudget chat",
        f"create Deployment {deployment['metadata']['name']} with 0 replicas",
    ]


def test_a_template_at_0_that_is_written_anew_is_said_to_be(preview: Preview):
    changed(preview, "v1", replicas=0)
    done = changed(preview, "v1", replicas=0, drain={"grace": {"teardownSeconds": 100}})
    (deployment,) = preview.objects(DEPLOYMENTS)
    text = f"write the template of {deployment['metadata']['name']} anew, since it is at 0"
    assert [step.text for step in done.steps] == [text]


def test_a_rollback_in_the_middle_keeps_every_pod_that_still_runs(preview: Preview):
    changed(preview, "v1")
    before = pods(preview)
    preview.apply(raw_spec("v2"))
    preview.run(60 + 5 + 30)
    done = changed(preview, "v1")
    assert pods(preview) == before, "the one that drained has been given back"
    assert done.least_serving >= 2


@pytest.mark.parametrize("replicas", [0, 1, 2, 5, 9])
def test_scaling_gets_there_and_drains_the_difference(preview: Preview, replicas: int):
    changed(preview, "v1", replicas=4)
    done = changed(preview, "v1", replicas=replicas)
    assert len(pods(preview)) == replicas
    assert done.drained == max(4 - replicas, 0)
    assert done.least_serving >= min(replicas, 4)


@pytest.mark.parametrize(
    "part", [{"drain": {"budgetSeconds": 900}}, {"rollout": {"maxSurge": 2}}, {"drain": {"quietSeconds": 9}}]
)
def test_changing_what_makes_no_revision_moves_no_pod(preview: Preview, part: dict[str, Any]):
    changed(preview, "v1")
    before = pods(preview)
    assert changed(preview, "v1", **part).steps == ()
    assert pods(preview) == before


def test_a_third_revision_in_the_middle_reaches_the_end(preview: Preview):
    changed(preview, "v1")
    preview.apply(raw_spec("v2"))
    preview.run(60 + 5 + 30)
    done = changed(preview, "v3")
    assert done.drained == 4
    assert done.least_serving == 3 and done.most_pods == 4


def test_a_rollout_that_is_looked_at_in_its_middle_goes_on_within_its_limits(preview: Preview):
    changed(preview, "v1")
    preview.apply(raw_spec("v2"))
    preview.run(60 + 5 + 120 + 15)
    done = changed(preview, "v2")
    assert done.drained == 2
    assert done.least_serving == 3 and done.most_pods == 4


def test_history_is_kept_to_its_limit_over_many_rollouts(preview: Preview):
    for tag in ("v1", "v2", "v3", "v4", "v5", "v6"):
        done = changed(preview, tag)
    counts = [d["spec"]["replicas"] for d in preview.objects(DEPLOYMENTS)]
    assert sorted(counts) == [0, 0, 0, 3]
    assert [step.text.endswith("beyond revisionHistoryLimit") for step in done.steps].count(True) == 1


def test_undo_raises_the_deployment_that_was_kept(preview: Preview):
    rolled(preview)
    back = changed(preview, "v1")
    assert len(preview.objects(DEPLOYMENTS)) == 2
    assert not any(step.text.startswith("create") for step in back.steps)


def test_a_template_that_conflicts_is_stuck_and_says_why(preview: Preview):
    changed(preview, "v1")
    template = {"spec": {**raw_spec()["template"]["spec"], "hostNetwork": True}}
    with pytest.raises(
        Stuck, match=r"^Cannot create the revision: spec\.template\.spec\.hostNetwork.*remove hostNetwork"
    ):
        changed(preview, "v2", template=template)


@pytest.mark.parametrize("seconds", [0.0, 0.01, 30.0], ids=["not made yet", "no node yet", "not started yet"])
def test_pods_that_still_have_to_start_are_not_stuck(preview: Preview, seconds: float):
    changed(preview, "v1")
    preview.apply(raw_spec("v2"))
    preview.run(seconds)
    assert changed(preview, "v2").least_serving == 3


def test_a_held_drain_has_no_deadline_and_still_ends(preview: Preview):
    done = rolled(preview, drain={"onExpiry": "Hold", "budgetSeconds": 60})
    assert done.drained == 3
    assert done.bound_seconds == 3 * (60 + 5 + 120)
    assert not any("budget" in step.text for step in done.steps)


def test_a_drain_that_outlasts_its_budget_is_cut_then(preview: Preview):
    done = rolled(preview, drain={"budgetSeconds": 60})
    assert [step.text.endswith("has spent its budget: what still runs in it is cut") for step in done.steps].count(
        True
    ) == 3
    # They are cut flushSeconds before the deadline, so that clients still get their tokens.
    assert done.seconds == pytest.approx(3 * (60 + 60 - 5), abs=1)
    assert done.bound_seconds == 3 * (60 + 60 - 5)


MODES: dict[str, dict[str, Any]] = {
    "native": {"mode": "Native"},
    "gateway": {"mode": "Gateway"},
    "custom endpoint": {
        "mode": "Native",
        "native": {"foreign": {"method": "GET", "path": "/internal/drain", "answersWhenOver": True}},
    },
}


@pytest.mark.parametrize("drain", MODES.values(), ids=MODES.keys())
def test_every_kind_of_pod_is_drained(preview: Preview, drain: dict[str, Any]):
    for image in ("v1", "v2"):
        spec = raw_spec(image)
        if drain["mode"] == "Gateway":
            # The gateway listens where the application would.
            del spec["template"]["spec"]["containers"][0]["ports"][1]
        preview.apply(spec | {"drain": drain})
        done = preview.settle()
    assert [step.text.endswith("is drained: Drained after 125 s") for step in done.steps].count(True) == 3
    assert done.seconds == pytest.approx(3 * (60 + 5 + 120), abs=2)


# -- what the plan says is what then happens

POD = re.compile(r"-rs\d+-\d+")
"""What follows the Deployment's name in that of a pod."""
SAID = (
    (re.compile(r"create Deployment (\S+) with (\d+) replicas?"), "{0} at {1}"),
    (re.compile(r"(?:raise|lower) (\S+) to (\d+) .*"), "{0} at {1}"),
    (re.compile(r"(\S+) serves"), "serving of {0}"),
    (re.compile(r"withdraw (\S+) .*"), "draining of {0}"),
    (re.compile(r"(\S+) is drained.*"), "drained of {0}"),
    (re.compile(r"(\S+) is gone"), "gone of {0}"),
)


def planned(done: Forecast) -> list[str]:
    """The steps, pods by their Deployments."""
    found = []
    for step in done.steps:
        for pattern, form in SAID:
            match = pattern.fullmatch(step.text)
            if match is not None:
                found.append(form.format(*(POD.sub("", group) for group in match.groups())))
    return found


class Happened:
    """The same, as the simulation's API server stores it."""

    def __init__(self, world: World) -> None:
        self.lines: list[str] = []
        self.least = self.most = 3
        self._world = world
        world.server.written.append(self._written)

    def _written(self, _: str, kind: Kind, old: Object | None, new: Object | None) -> None:
        item = new or old
        assert item is not None
        name = POD.sub("", item["metadata"]["name"])
        if kind is DEPLOYMENTS and new is not None:
            if old is None or old["spec"]["replicas"] != new["spec"]["replicas"]:
                self.lines.append(f"{name} at {new['spec']['replicas']}")
        elif kind is PODS and old is not None:
            before, after = _state(old), "gone" if new is None else _state(new)
            if after not in (before, ""):
                self.lines.append(f"{after} of {name}")
            if new is not None and before == PodState.SERVING and after == PodState.DRAINING:
                # As the preview: a request that ends when the drain shall.
                self._world.load(new, 5 + ASSUME.drain)


def _state(pod: Object) -> str:
    state = str(pod["metadata"]["labels"][names.STATE])
    return state if state != PodState.SERVING or ready(pod) else ""


@pytest.mark.parametrize(
    ("change", "exact"),
    [
        ({"image": "app:v2"}, True),
        ({"image": "app:v2", "maxSurge": 0, "maxUnavailable": 1}, True),
        ({"image": "app:v2", "maxSurge": 2}, False),
        ({"image": "app:v2", "maxSurge": 1, "maxUnavailable": 1}, False),
        ({"replicas": 1}, True),
        ({"replicas": 5}, False),
        ({"image": "app:v2", "mode": "Gateway"}, True),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_what_is_planned_is_what_the_simulation_then_does(world: World, change: dict[str, Any], exact: bool) -> None:
    """Where pods go or come together, their order among each other is nobody's choice."""
    for image in ("app:v1", "app:v2"):
        world.image(image, load=ASSUME.start, stop=ASSUME.teardown)
    world.create()
    world.settle()
    before = world.service()["spec"]
    happened = Happened(world)
    world.edit(**change)
    with Preview("prod", "chat", ASSUME) as preview:
        preview.apply(before)
        preview.settle()
        preview.apply(world.service()["spec"])
        done = preview.settle()
    began = world.loop.time()
    world.settle()
    world.until(lambda: not [pod for pod in world.pods(alive=False) if pod not in world.pods()])
    assert done.steps
    if exact:
        assert planned(done) == happened.lines
    else:
        assert Counter(planned(done)) == Counter(happened.lines)
    assert world.loop.time() - began >= done.seconds
