"""Random histories: people change their minds, pods and nodes fail, the network and the API server have bad days.

Everything follows from the seed: `play(seed)` repeats a history, `python -m simulation.histories SEED` tells it.
"""

import sys
from collections.abc import Callable
from random import Random

from simulation.pods import CONDUCTS
from simulation.process import Weather
from simulation.world import Failure, World
from tidegate.api import names
from tidegate.api.errors import ClusterError
from tidegate.cluster.port import PODS, Object

STEPS = 30
BAD = {"bad:pull": {"pullable": False}, "bad:crash": {"crash_after": 2.0}, "bad:unready": {"never_ready": True}}
GOOD = ("app:v1", "app:v2", "app:v3")


class History:
    """One history in one world."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, Random(seed)
        self.steps: list[str] = []
        self._moves: tuple[tuple[int, Callable[[], str]], ...] = (
            (8, self._push),
            (2, self._push_bad),
            (5, self._scale),
            (3, self._slots),
            (3, self._budget),
            (2, self._pause),
            (2, self._restart),
            (8, self._stream),
            (2, self._evict),
            (2, self._vanish),
            (3, self._crash),
            (2, self._sicken),
            (3, self._misbehave),
            (1, self._sever),
            (4, self._kill),
            (3, self._storm),
            (3, self._faults),
            (2, self._lag),
            (1, self._shrink),
            (1, self._release),
            (1, self._wish),
        )
        self._bag = [move for weight, move in self._moves for _ in range(weight)]

    def play(self, steps: int) -> None:
        world, rng = self.world, self.rng
        for name, behaviour in BAD.items():
            world.image(name, **behaviour)
        for name in GOOD:
            world.image(name, load=rng.uniform(1.0, 8.0))
        world.create(
            replicas=rng.randint(1, 4),
            budgetSeconds=rng.choice((30, 60, 120)),
            propagationSeconds=rng.choice((1, 3, 5)),
            maxSurge=rng.choice((0, 1, 1, 2, "34%")),
            maxUnavailable=rng.choice((0, 0, 1)),
        )
        world.run(rng.uniform(0.0, 15.0))
        for _ in range(steps):
            said = rng.choice(self._bag)()
            self.steps.append(f"{world.loop.time():8.2f} {said}")
            world.run(rng.choice((0.05, 0.5, 2.0, 8.0)) * rng.uniform(0.5, 1.5))
        self._mend()

    def _mend(self) -> None:
        """From here on nothing goes wrong any more, so the system has to get there and stay."""
        world = self.world
        self.steps.append(f"{world.loop.time():8.2f} everything is mended")
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

    # -- moves; each returns what it did

    def _any(self, **which: object) -> Object | None:
        pods = self.world.pods(**which)  # type: ignore[arg-type]
        return self.rng.choice(pods) if pods else None

    def _running(self) -> Object | None:
        pods = [p for p in self.world.pods() if (q := self.world.kubelet.process(_uid(p))) is not None and q.alive]
        return self.rng.choice(pods) if pods else None

    def _push(self) -> str:
        image = self.rng.choice(GOOD)
        self.world.edit(image=image)
        return f"push {image}"

    def _push_bad(self) -> str:
        image = self.rng.choice(list(BAD))
        self.world.edit(image=image)
        return f"push {image}"

    def _scale(self) -> str:
        count = self.rng.choice((0, 1, 2, 2, 3, 3, 4, 5))
        self.world.edit(replicas=count)
        return f"scale to {count}"

    def _slots(self) -> str:
        surge, unavailable = self.rng.choice((0, 1, 2, 3, "50%")), self.rng.choice((0, 0, 1, 2, "25%"))
        first = self.rng.choice(("Wait", "DrainFirst"))
        self.world.edit(maxSurge=surge, maxUnavailable=unavailable, whenNoCapacity=first)
        return f"maxSurge {surge}, maxUnavailable {unavailable}, {first}"

    def _budget(self) -> str:
        budget, hold = self.rng.choice((20, 60, 200)), self.rng.choice(("Release", "Release", "Hold"))
        self.world.edit(budgetSeconds=budget, onExpiry=hold)
        return f"budget {budget}, {hold}"

    def _pause(self) -> str:
        paused = self.rng.random() < 0.5
        self.world.edit(paused=paused)
        return f"paused {paused}"

    def _restart(self) -> str:
        at = f"2026-01-01T00:{int(self.world.loop.time() / 60) % 60:02d}:{len(self.steps):02d}Z"
        self.world.edit(restartedAt=at)
        return f"restart {at}"

    def _stream(self) -> str:
        count = 0
        for _ in range(self.rng.randint(1, 6)):
            pods = [p for p in self.world.ready_pods(state=names.SERVING) if self._alive(p)]
            if pods:
                long = self.rng.random() < 0.1
                self.world.load(self.rng.choice(pods), self.rng.uniform(1, 300 if long else 40))
                count += 1
        return f"{count} streams"

    def _alive(self, pod: Object) -> bool:
        process = self.world.kubelet.process(_uid(pod))
        return process is not None and process.alive

    def _evict(self) -> str:
        pod = self._any()
        if pod is None:
            return "nobody to evict"
        try:
            self.world.evict(pod)
        except ClusterError as error:
            return f"evict {_name(pod)}: {str(error)[:40]}"
        return f"evict {_name(pod)}"

    def _vanish(self) -> str:
        pod = self._any()
        if pod is None or _uid(pod) not in self.world.kubelet.runs:
            return "nobody to lose"
        self.world.kubelet.vanish(_uid(pod))
        return f"{_name(pod)} vanishes"

    def _crash(self) -> str:
        pod = self._running()
        if pod is None:
            return "nobody to crash"
        self.world.kubelet.crash(_uid(pod))
        return f"{_name(pod)} crashes"

    def _sicken(self) -> str:
        pod = self._running()
        if pod is None:
            return "nobody to sicken"
        healthy = self.rng.random() < 0.5
        self.world.kubelet.sicken(_uid(pod), healthy)
        return f"{_name(pod)} {'recovers' if healthy else 'sickens'}"

    def _misbehave(self) -> str:
        pod = self._running()
        if pod is None:
            return "nobody to misbehave"
        process = self.world.process(pod)
        # A lie that nobody can tell from the truth is nobody's fault.
        process.conduct = self.rng.choice([c for c in CONDUCTS if c != "sealed at once"])
        return f"{_name(pod)}: {process.conduct}"

    def _sever(self) -> str:
        self.world.network.severed = self.rng.choice(("", "", "refused", "dropped"))
        return f"network {self.world.network.severed or 'works'}"

    def _kill(self) -> str:
        if self.world.operator is None:
            return "no operator to kill"
        away = self.rng.choice((0.0, 0.5, 3.0, 20.0))
        self.world.kill_operator(away)
        return f"operator killed, back after {away}"

    def _storm(self) -> str:
        rng = self.rng
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

    def _faults(self) -> str:
        self.world.faults.rate = self.rng.choice((0.0, 0.0, 0.05, 0.3))
        return f"faults {self.world.faults.rate}"

    def _lag(self) -> str:
        self.world.controller_lag = (0.001, self.rng.choice((0.02, 0.5, 3.0)))
        return f"controllers lag {self.world.controller_lag[1]}"

    def _shrink(self) -> str:
        self.world.kubelet.capacity = self.rng.choice((None, 3, 5))
        return f"capacity {self.world.kubelet.capacity}"

    def _release(self) -> str:
        pod = self._any()
        if pod is None:
            return "nobody to release"
        self.world.annotate(PODS, pod["metadata"]["name"], release="history")
        if self.rng.random() < 0.5:
            self.world.delete(PODS, pod["metadata"]["name"])
        return f"break glass on {_name(pod)}"

    def _wish(self) -> str:
        pod = self._any(state=names.SERVING)
        if pod is None:
            return "nobody to drain by hand"
        self.world.server.writer = "user"
        change = {"metadata": {"labels": {names.STATE: names.DRAINING}}}
        self.world.server.merge(PODS, "prod", pod["metadata"]["name"], change)
        return f"{_name(pod)} is labelled draining by hand"


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def play(seed: int, steps: int = STEPS, *, traced: bool = False) -> str | None:
    """One history; what went wrong, or None. Every tenth also proves that nothing is written in the end."""
    world = World(seed, traced=traced)
    history = History(world, seed)
    try:
        with world:
            world.steady = seed % 10 == 0
            history.play(steps)
    except AssertionError as error:
        return "\n".join((*history.steps, f"seed {seed}: {error}"))
    return None


if __name__ == "__main__":
    print(play(int(sys.argv[1]), traced=True) or "it went well")
