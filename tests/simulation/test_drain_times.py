"""What the operator learns from the drains of a service, and what it makes of it."""

import math
from itertools import pairwise
from random import Random

from simulation.stories import well_known
from simulation.world import NAMESPACE, World
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.cluster.drain_times import KEY, name_of
from tidegate.cluster.port import CONFIG_MAPS, DEPLOYMENTS, PODS, Kind, Object
from tidegate.core.drain_time.drain_term import DAY

PROPAGATION = 5


def term(world: World, name: str) -> dict[str, object]:
    rows: list[dict[str, object]] = world.status()["gracePeriod"]["terms"]
    return next(row for row in rows if row["name"] == name)


def carried(world: World, image: str) -> int:
    """terminationGracePeriodSeconds of the newest revision with this image."""
    specs = [d["spec"]["template"]["spec"] for d in world.server.all(DEPLOYMENTS)]
    return next(int(s["terminationGracePeriodSeconds"]) for s in specs if s["containers"][0]["image"] == image)


def test_a_drain_is_measured_to_the_end_of_its_last_request() -> None:
    with World(1) as world:
        world.create(replicas=1, quietSeconds=20)
        world.settle()
        (pod,) = world.pods()
        world.edit(image="app:v2")
        world.until(lambda: world.pods(state=PodState.DRAINING), every=0.05)
        world.load(pod, 30.0)
        world.settle()
        learnt = world.learnt()
        assert (learnt.drains.n, learnt.drains.censored_n, learnt.arrivals.n) == (1, 0, 1)
        # 30 s after an arrival within moments of the withdrawal, less 5 s of propagation; buckets grow by 2 %.
        assert 24.5 < world.status()["drainTimes"]["p50Seconds"] < 27
        assert world.status()["gracePeriod"]["terms"][0]["samples"] == 1


def test_a_cut_drain_raises_the_term_which_the_next_revision_carries_and_no_pod_rolls_for() -> None:
    with World(2) as world:
        world.create(replicas=2, budgetSeconds=300)
        world.settle()
        for pod in world.pods():
            world.load(pod, 5000.0)
        world.edit(image="app:v2")
        world.settle()
        assert term(world, "drain") | {"message": ""} == {
            "name": "drain", "seconds": 405, "source": "Measured", "samples": 2, "covers": 0.0, "message": "",
        }  # fmt: skip
        assert carried(world, "app:v2") == 140
        assert world.condition("BudgetTruncating")["status"] == "True"
        assert "425 s" in world.condition("GracePeriodStale")["message"]
        assert world.status()["message"].startswith("2 of 2 pods are serving, all of revision")
        before = {p["metadata"]["uid"] for p in world.pods()}
        world.run(DAY / 4)
        assert {p["metadata"]["uid"] for p in world.pods()} == before
        world.edit(image="app:v3")
        world.settle()
        assert carried(world, "app:v3") == 425
        # Drains of empty pods tell nothing of how long the cut ones would have lasted.
        assert term(world, "drain")["seconds"] == 405
        assert not world.condition("GracePeriodStale")


def test_a_pod_that_vanishes_in_its_drain_is_counted_once_as_cut() -> None:
    with World(3) as world:
        world.create(replicas=2)
        world.settle()
        for pod in world.pods():
            world.load(pod, 100.0)
        world.edit(image="app:v2")
        world.until(lambda: world.pods(state=PodState.DRAINING))
        world.run(40)
        (pod,) = world.pods(state=PodState.DRAINING)
        world.kubelet.vanish(pod["metadata"]["uid"])
        world.settle()
        learnt = world.learnt()
        assert (learnt.drains.n, learnt.drains.censored_n) == (2, 1)
        (bucket,) = learnt.drains.censored
        assert bucket > 0


def test_an_operator_that_was_away_counts_what_it_did_not_see_as_lasting_at_least_so_long() -> None:
    with World(4) as world:
        world.create(replicas=1)
        world.settle()
        (pod,) = world.pods()
        world.load(pod, 60.0)
        world.edit(image="app:v2")
        world.until(lambda: world.pods(state=PodState.DRAINING))
        world.run(20)
        world.stop_operator()
        world.run(200)
        world.start_operator()
        world.settle()
        learnt = world.learnt()
        assert (learnt.drains.n, learnt.drains.censored_n) == (1, 1)


def test_teardowns_are_watched() -> None:
    with World(5) as world:
        world.image("app:v1", stop=15.0)
        world.create(replicas=3)
        world.settle()
        for number, pod in enumerate(world.pods()):
            world.load(pod, 40.0 * (number + 1))
        world.edit(image="app:v2")
        world.settle()
        # Of pods that go when nothing is left to count: those wait for the next rollout.
        assert world.learnt().teardowns.n in (1, 2)
        assert int(str(term(world, "teardown")["seconds"])) > 15
        world.edit(image="app:v3")
        world.settle()
        assert world.learnt().teardowns.n == 5


def test_with_roll_on_drift_a_stale_grace_period_rolls_the_pods_once() -> None:
    with World(10) as world:
        world.create(replicas=2, budgetSeconds=300, rollOnDrift=True)
        world.settle()
        for pod in world.pods():
            world.load(pod, 5000.0)
        world.edit(image="app:v2")
        world.until(lambda: {int(p["spec"]["terminationGracePeriodSeconds"]) for p in world.pods()} == {425})
        world.settle()
        images = {p["spec"]["containers"][0]["image"] for p in world.pods()}
        assert images == {"app:v2"}
        assert len([d for d in world.server.all(DEPLOYMENTS) if d["spec"]["replicas"]]) == 1
        assert sum(world.checks.created.values()) == 6
        assert not world.condition("GracePeriodStale")
        # Switching it off, and on again, is no change of any pod.
        standing = {p["metadata"]["uid"] for p in world.pods()}
        for wish in (False, True):
            world.edit(rollOnDrift=wish)
            world.settle()
        assert {p["metadata"]["uid"] for p in world.pods()} == standing


def test_status_promises_when_a_drain_and_its_rollout_end() -> None:
    with World(12) as world:
        well_known(world)
        for pod in world.pods():
            world.load(pod, 45.0)
        world.edit(image="app:v99")
        world.until(lambda: world.status()["pods"] and world.status()["pods"][0].get("observedAt"))
        (row,), rollout = world.status()["pods"], world.status()["rollout"]
        began = world.loop.time()
        assert 25 < row["etaSeconds"] <= row["etaUpperSeconds"] < 60
        assert row["etaSeconds"] < rollout["etaSeconds"] <= rollout["etaUpperSeconds"] < 300
        world.settle()
        took = world.loop.time() - began
        assert 0.7 * rollout["etaSeconds"] < took < 1.3 * rollout["etaUpperSeconds"]
        assert "etaSeconds" not in world.status()["rollout"]


def test_unreadable_content_is_set_aside_and_left_as_it_is() -> None:
    with World(6) as world:
        world.create(replicas=1)
        world.settle()
        (pod,) = world.pods()
        world.load(pod, 20.0)
        world.edit(image="app:v2")
        world.settle()
        assert world.learnt().drains.n == 1
        rubbish = {"data": {KEY: "{not ours"}}
        world.server.merge(CONFIG_MAPS, NAMESPACE, name_of("chat"), rubbish)
        world.kill_operator()
        world.until(lambda: world.condition("DrainTimesUnreadable"))
        text = world.condition("DrainTimesUnreadable")["message"]
        assert "chat-drain-times" in text
        assert "delete it to start over" in text
        world.edit(image="app:v3")
        world.settle()
        assert world.server.get(CONFIG_MAPS, NAMESPACE, name_of("chat"))["data"] == rubbish["data"]
        world.server.remove(CONFIG_MAPS, world.server.get(CONFIG_MAPS, NAMESPACE, name_of("chat")))
        world.until(lambda: not world.condition("DrainTimesUnreadable"), limit=120)
        (pod,) = world.pods()
        world.load(pod, 20.0)
        world.edit(image="app:v4")
        world.settle()
        assert world.learnt().drains.n == 1


def test_a_foreign_config_map_of_that_name_is_not_touched() -> None:
    with World(7) as world:
        mine = {"metadata": {"name": name_of("chat"), "namespace": NAMESPACE}, "data": {"a": "b"}}
        world.server.create(CONFIG_MAPS, mine)
        world.create(replicas=1)
        world.settle()
        assert "does not belong to Tidegate" in world.condition("DrainTimesUnreadable")["message"]
        world.edit(image="app:v2")
        world.settle()
        assert world.server.get(CONFIG_MAPS, NAMESPACE, name_of("chat"))["data"] == {"a": "b"}


def test_a_refused_write_of_drain_times_stops_no_rollout() -> None:
    with World(8) as world:
        world.create(replicas=2)
        world.settle()
        for pod in world.pods():
            world.load(pod, 20.0)
        world.faults.refused.add(CONFIG_MAPS)
        world.edit(image="app:v2")
        world.settle()
        assert "configmaps" in world.condition("DrainTimesUnreadable")["message"]
        assert world.learnt().drains.n == 0


def test_one_write_counts_one_drain_and_the_config_map_goes_with_its_service() -> None:
    with World(9) as world:
        world.create(replicas=3)
        world.settle()
        for pod in world.pods():
            world.load(pod, 15.0)
        world.edit(image="app:v2")
        world.settle()
        writes = [w for w in world.sent if w.kind is CONFIG_MAPS]
        assert [w.verb for w in writes] == ["create", "patch", "patch"]
        owner = world.server.get(CONFIG_MAPS, NAMESPACE, name_of("chat"))["metadata"]["ownerReferences"]
        assert [(o["kind"], o["controller"]) for o in owner] == [(names.KIND, True)]


class Drawn:
    """A service whose pods, when withdrawn, hold one stream of a length drawn from a known distribution."""

    def __init__(self, world: World, mean: float) -> None:
        self.world, self.mean = world, mean
        self._random = Random(world.seed)
        self._number = 1
        world.create(replicas=10, maxSurge=10, initialSeconds=30, maxSeconds=900)
        world.settle()
        world.server.written.append(self._written)

    def _written(self, writer: str, kind: Kind, old: Object | None, new: Object | None) -> None:
        if kind is PODS and old and new and states(old, new) == (PodState.SERVING, PodState.DRAINING):
            self.world.load(new, PROPAGATION + self._random.expovariate(1 / self.mean))

    @property
    def truth(self) -> float:
        """The P99 of its drains, were none cut."""
        return self.mean * math.log(100)

    @property
    def term(self) -> float:
        return float(str(term(self.world, "drain")["seconds"]))

    def roll(self, times: int = 1) -> None:
        for _ in range(times):
            self._number += 1
            self.world.edit(image=f"app:v{self._number}")
            self.world.settle()

    def pass_day(self) -> None:
        """Nobody rolls, and nothing is looked at: the operator is away, which makes it quick."""
        self.world.stop_operator()
        self.world.run(DAY)
        self.world.start_operator()


def states(*pods: Object) -> tuple[str, ...]:
    return tuple(pod["metadata"]["labels"].get(names.STATE, "") for pod in pods)


def test_it_settles_on_the_true_p99_with_its_bound_above_it() -> None:
    with World(21, traced=False) as world:
        world.steady = False
        service = Drawn(world, 10.0)
        service.roll(34)
        shown = world.status()["drainTimes"]
        assert (shown["samples"], shown["censored"]) == (340, 0)
        # Of 340 drains the P99 has a standard error of 16 %.
        assert 0.6 * service.truth < shown["p99Seconds"] < 1.6 * service.truth
        assert shown["p99UpperSeconds"] >= service.truth
        assert service.truth < service.term < 2.5 * service.truth
        assert term(world, "drain")["covers"] >= 0.99


def test_where_the_first_drains_were_all_cut_it_grows_to_the_truth() -> None:
    with World(22, traced=False) as world:
        world.steady = False
        service = Drawn(world, 100.0)
        world.edit(budgetSeconds=30, initialSeconds=15)
        service.roll(2)
        cut = [service.term]
        assert world.condition("BudgetTruncating")
        assert "p99Seconds" not in world.status()["drainTimes"]
        assert 15 < cut[0] < 40
        world.edit(budgetSeconds=2000)
        for _ in range(8):
            service.roll()
            cut.append(service.term)
        assert cut == sorted(cut), "a term that drains outgrow does not fall"
        assert service.term > service.truth
        assert not world.condition("BudgetTruncating")
        assert carried(world, f"app:v{service._number}") < world.status()["gracePeriod"]["seconds"] + 1


def test_when_the_load_halves_it_shrinks_by_a_fifth_a_day_at_most() -> None:
    with World(23, traced=False) as world:
        world.steady = False
        service = Drawn(world, 40.0)
        service.roll(5)
        first, service.mean = service.term, 20.0
        days = [first]
        for _ in range(7):
            service.pass_day()
            service.roll(3)
            days.append(service.term)
        fastest = [after / before for before, after in pairwise(days)]
        # Rounded up to whole seconds, and a rollout takes a few minutes more than a day.
        assert min(fastest) > 0.79, days
        assert days[-1] < 0.75 * first, days
        assert days[-1] > service.truth, days
