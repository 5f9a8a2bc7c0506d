"""What can happen to a cluster in one step: people change their minds, pods fail, the weather turns.

The one vocabulary of random histories and of the state machine. Every choice is drawn from the `Random` that a move is
given, so that a seed repeats it and Hypothesis can shrink it. A move returns what it did.
"""

from random import Random

from simulation.process import Weather
from simulation.world import Failure, World
from tidegate.api import names
from tidegate.api.conditions import PodState
from tidegate.api.errors import ClusterError
from tidegate.cluster.port import PODS, Object
from tidegate.preview.pods import CONDUCTS

BAD = {"bad:pull": {"pullable": False}, "bad:crash": {"crash_after": 2.0}, "bad:unready": {"never_ready": True}}
GOOD = ("app:v1", "app:v2", "app:v3")

WEIGHTS = {
    "push": 8,
    "push_bad": 2,
    "scale": 5,
    "slots": 3,
    "budget": 3,
    "pause": 2,
    "restart": 2,
    "stream": 8,
    "evict": 2,
    "delete": 1,
    "vanish": 2,
    "lose_node": 1,
    "crash": 3,
    "sicken": 2,
    "misbehave": 3,
    "sever": 1,
    "kill": 4,
    "storm": 3,
    "faults": 3,
    "lag": 2,
    "shrink": 1,
    "release": 1,
    "wish": 1,
}
"""Every move, by how often it happens in a random history beside the others."""


class Moves:
    """The moves in one world. `begin` makes the service, `mend` ends all trouble and waits until it got there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._restarts = 0

    def begin(self, rng: Random) -> str:
        world = self.world
        for name, behaviour in BAD.items():
            world.image(name, **behaviour)
        for name in GOOD:
            world.image(name, load=rng.uniform(1.0, 8.0))
        given = {
            "replicas": rng.randint(1, 4),
            "budgetSeconds": rng.choice((30, 60, 120)),
            "propagationSeconds": rng.choice((1, 3, 5)),
            "maxSurge": rng.choice((0, 1, 1, 2, "34%")),
            "maxUnavailable": rng.choice((0, 0, 1)),
        }
        world.create(**given)
        return f"create {given}"

    def make(self, name: str, rng: Random) -> str:
        """The move of that name."""
        return str(getattr(self, name)(rng))

    def mend(self) -> None:
        """From here on nothing goes wrong any more, so the system has to get there and stay."""
        world = self.world
        world.faults.rate, world.weather, world.controller_lag = 0.0, Weather(), (0.001, 0.02)
        world.network.severed, world.kubelet.capacity = "", None
        for name in BAD:
            world.image(name)
        for run in world.kubelet.runs.values():
            run.image.crash_after, run.image.never_ready = None, False
            if run.process is not None:
                run.process.conduct, run.process.healthy = "honest", True
                if run.process.alive:
                    run.process.contract.started()
                    run.process.touch()
                    run.process.changed()
        world.edit(paused=False, onExpiry="Release")
        world.settle(limit=4000)
        world.run(60)
        if (missing := world.missing()) is not None:
            raise Failure(world.report(f"it got there and did not stay: {missing}"))

    # -- what people do

    def push(self, rng: Random) -> str:
        image = rng.choice(GOOD)
        self.world.edit(image=image)
        return f"push {image}"

    def push_bad(self, rng: Random) -> str:
        image = rng.choice(list(BAD))
        self.world.edit(image=image)
        return f"push {image}"

    def scale(self, rng: Random) -> str:
        count = rng.choice((0, 1, 2, 2, 3, 3, 4, 5))
        self.world.edit(replicas=count)
        return f"scale to {count}"

    def slots(self, rng: Random) -> str:
        surge, unavailable = rng.choice((0, 1, 2, 3, "50%")), rng.choice((0, 0, 1, 2, "25%"))
        first = rng.choice(("Wait", "DrainFirst"))
        self.world.edit(maxSurge=surge, maxUnavailable=unavailable, whenNoCapacity=first)
        return f"maxSurge {surge}, maxUnavailable {unavailable}, {first}"

    def budget(self, rng: Random) -> str:
        budget, hold = rng.choice((20, 60, 200)), rng.choice(("Release", "Release", "Hold"))
        self.world.edit(budgetSeconds=budget, onExpiry=hold)
        return f"budget {budget}, {hold}"

    def pause(self, rng: Random) -> str:
        paused = rng.random() < 0.5
        self.world.edit(paused=paused)
        return f"paused {paused}"

    def restart(self, rng: Random) -> str:
        self._restarts += 1
        at = f"2026-01-01T00:{self._restarts // 60:02d}:{self._restarts % 60:02d}Z"
        self.world.edit(restartedAt=at)
        return f"restart {at}"

    def stream(self, rng: Random) -> str:
        count = 0
        for _ in range(rng.randint(1, 6)):
            pods = [p for p in self.world.ready_pods(state=PodState.SERVING) if self._alive(p)]
            if pods:
                long = rng.random() < 0.1
                self.world.load(rng.choice(pods), rng.uniform(1, 300 if long else 40))
                count += 1
        return f"{count} streams"

    def evict(self, rng: Random) -> str:
        pod = self._any(rng)
        if pod is None:
            return "nobody to evict"
        try:
            self.world.evict(pod)
        except ClusterError as error:
            return f"evict {_name(pod)}: {str(error)[:40]}"
        return f"evict {_name(pod)}"

    def delete(self, rng: Random) -> str:
        pod = self._any(rng)
        if pod is None:
            return "nobody to delete"
        try:
            self.world.delete(PODS, _name(pod))
        except ClusterError as error:
            return f"delete {_name(pod)}: {str(error)[:40]}"
        return f"delete {_name(pod)}"

    # -- what breaks

    def vanish(self, rng: Random) -> str:
        pod = self._any(rng)
        if pod is None or _uid(pod) not in self.world.kubelet.runs:
            return "nobody to lose"
        self.world.kubelet.vanish(_uid(pod))
        return f"{_name(pod)} vanishes"

    def lose_node(self, rng: Random) -> str:
        lost = sorted({run.node for run in self.world.kubelet.runs.values()})
        if not lost:
            return "no node to lose"
        node = rng.choice(lost)
        uids = [uid for uid, run in self.world.kubelet.runs.items() if run.node == node]
        for uid in uids:
            self.world.kubelet.vanish(uid)
        return f"{node} is lost with {len(uids)} pods"

    def crash(self, rng: Random) -> str:
        pod = self._running(rng)
        if pod is None:
            return "nobody to crash"
        self.world.kubelet.crash(_uid(pod))
        return f"{_name(pod)} crashes"

    def sicken(self, rng: Random) -> str:
        pod = self._running(rng)
        if pod is None:
            return "nobody to sicken"
        healthy = rng.random() < 0.5
        self.world.kubelet.sicken(_uid(pod), healthy)
        return f"{_name(pod)} {'recovers' if healthy else 'sickens'}"

    def misbehave(self, rng: Random) -> str:
        pod = self._running(rng)
        if pod is None:
            return "nobody to misbehave"
        process = self.world.process(pod)
        # A lie that nobody can tell from the truth is nobody's fault.
        process.conduct = rng.choice([c for c in CONDUCTS if c != "sealed at once"])
        return f"{_name(pod)}: {process.conduct}"

    def sever(self, rng: Random) -> str:
        self.world.network.severed = rng.choice(("", "", "refused", "dropped"))
        return f"network {self.world.network.severed or 'works'}"

    def kill(self, rng: Random) -> str:
        if self.world.operator is None:
            return "no operator to kill"
        away = rng.choice((0.0, 0.5, 3.0, 20.0))
        self.world.kill_operator(away)
        return f"operator killed, back after {away}"

    def storm(self, rng: Random) -> str:
        self.world.weather = rng.choice(
            (
                Weather(),
                Weather(lag=(0.0, rng.choice((0.5, 4.0)))),
                Weather(drop=0.2),
                Weather(duplicate=0.3, reorder=0.3),
                Weather(lag=(0.0, 2.0), drop=0.1, duplicate=0.2, reorder=0.2),
            )
        )
        return str(self.world.weather)

    def faults(self, rng: Random) -> str:
        self.world.faults.rate = rng.choice((0.0, 0.0, 0.05, 0.3))
        return f"faults {self.world.faults.rate}"

    def lag(self, rng: Random) -> str:
        self.world.controller_lag = (0.001, rng.choice((0.02, 0.5, 3.0)))
        return f"controllers lag {self.world.controller_lag[1]}"

    def shrink(self, rng: Random) -> str:
        self.world.kubelet.capacity = rng.choice((None, 3, 5))
        return f"capacity {self.world.kubelet.capacity}"

    def release(self, rng: Random) -> str:
        pod = self._any(rng)
        if pod is None:
            return "nobody to release"
        self.world.annotate(PODS, pod["metadata"]["name"], release="history")
        if rng.random() < 0.5:
            self.world.delete(PODS, pod["metadata"]["name"])
        return f"break glass on {_name(pod)}"

    def wish(self, rng: Random) -> str:
        pod = self._any(rng, state=PodState.SERVING)
        if pod is None:
            return "nobody to drain by hand"
        self.world.server.writer = "user"
        change = {"metadata": {"labels": {names.STATE: PodState.DRAINING.value}}}
        self.world.server.merge(PODS, "prod", pod["metadata"]["name"], change)
        return f"{_name(pod)} is labelled draining by hand"

    # -- inside

    def _any(self, rng: Random, **which: object) -> Object | None:
        pods = self.world.pods(**which)  # type: ignore[arg-type]
        return rng.choice(pods) if pods else None

    def _running(self, rng: Random) -> Object | None:
        pods = [p for p in self.world.pods() if (q := self.world.kubelet.process(_uid(p))) is not None and q.alive]
        return rng.choice(pods) if pods else None

    def _alive(self, pod: Object) -> bool:
        process = self.world.kubelet.process(_uid(pod))
        return process is not None and process.alive


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])
