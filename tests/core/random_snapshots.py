"""Random snapshots: pods of up to three revisions in every state that a kubelet reports, with whatever they answer."""

from dataclasses import replace

from hypothesis import strategies as st

from core import stories
from core.stories import NOW, deployment, says, story
from tidegate.api.conditions import PodState
from tidegate.core.state.snapshot import Deployment, Pod, Reading, Snapshot, Trouble

TAGS = ("v1", "v1", "v2", "v2", "v3")
KINDS = {
    "serving": stories.serving,
    "fresh": lambda name: stories.serving(name, ready_since=NOW - 5),
    "unready": stories.unready,
    "drained by others": lambda name: stories.unready(name, unready_since=NOW - 30),
    "starting": stories.starting,
    "waiting": stories.waiting,
    "crashing": stories.crashing,
    "homeless": stories.homeless,
    "draining": stories.draining,
    "overdue": lambda name: stories.draining(name, drain=stories.record(name, since=-700)),
    "scaling in": lambda name: stories.draining(name, drain=stories.record(name, reason="ScaleIn")),
    "by hand": lambda name: stories.draining(name, drain=stories.record(name, reason="Manual")),
    "labelled only": lambda name: stories.unready(name, state="draining"),
    "died draining": lambda name: replace(stories.crashing(name), state="draining", drain=stories.record(name)),
    "drained": stories.drained,
    "terminating": lambda name: stories.going(stories.serving(name)),
    "drained and terminating": lambda name: stories.going(stories.drained(name)),
    "failed": lambda name: stories.waiting(name, phase="Failed"),
}
OF_ANY = ("usual", "usual", "silent", "empty", "old", "starting")
OF_DRAINED_BY_OTHERS = ("usual", "silent", "old", "strange", "strange", "sealed")
OF_DRAINING = (
    "usual",
    "silent",
    "serving",
    "serving",
    "starting",
    "sealed",
    "sealed early",
    "other id",
    "other process",
)


@st.composite
def answer(draw: st.DrawFn, pod: Pod) -> Reading | None:
    usual = says(pod, in_flight=draw(st.integers(0, 9)))
    return {
        "usual": usual,
        "silent": None,
        "empty": replace(usual, in_flight=0),
        "old": replace(usual, at=NOW - 30),
        "serving": replace(usual, state="serving", drain_id=None),
        "starting": replace(usual, state="starting", in_flight=0),
        "sealed": says(pod, "sealed"),
        "sealed early": says(pod, "sealed", at=(pod.drain.since if pod.drain else NOW) + 1),
        "other id": says(pod, "sealed", drain_id="not ours"),
        "other process": says(pod, "sealed", instance="run-again"),
        "strange": replace(usual, state="draining", drain_id="not ours"),
    }[draw(st.sampled_from(OF_DRAINING if pod.drain else OF_DRAINED_BY_OTHERS if pod.unready_since else OF_ANY))]


@st.composite
def held(draw: st.DrawFn, tag: str, pods: list[Pod]) -> Deployment:
    mine = [p for p in pods if p.revision == tag]
    count = max(sum(p.alive for p in mine) + draw(st.integers(-1, 1)), 0)
    released = frozenset(p.uid for p in mine if p.state == PodState.DRAINED and draw(st.booleans()))
    return deployment(tag, count, released=released)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    kinds = draw(st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(sorted(KINDS))), max_size=8))
    pods = [KINDS[kind](f"{tag}-{n}") for n, (tag, kind) in enumerate(kinds)]
    tags = {tag for tag, _ in kinds} | set(draw(st.lists(st.sampled_from(TAGS), max_size=2)))
    spec = {
        "replicas": draw(st.integers(0, 5)),
        "rollout": {
            "maxSurge": draw(st.sampled_from([0, 1, 2, "34%"])),
            "maxUnavailable": draw(st.sampled_from([0, 0, 1, 2, "50%"])),
            "minReadySeconds": draw(st.sampled_from([0, 0, 30])),
            "paused": draw(st.sampled_from([False, False, False, True])),
            "whenNoCapacity": draw(st.sampled_from(["Wait", "DrainFirst"])),
        },
        "drain": {"onExpiry": draw(st.sampled_from(["Release", "Release", "Hold"]))},
    }
    said = {p.name: draw(answer(p)) for p in pods if p.alive and p.container.started and p.state != PodState.DRAINED}
    deaf = [p for p in pods if draw(st.integers(0, 9)) == 0]
    blocked = draw(st.integers(0, 9)) == 0
    return story(
        draw(st.sampled_from(TAGS)), *pods, deployments=[draw(held(tag, pods)) for tag in sorted(tags)], spec=spec,
        readings=said, troubles={p.uid: Trouble(NOW - 1, "timeout", "no answer in time") for p in deaf},
        locks_missing=("tidegate-pod-delete",) * draw(st.integers(0, 1)),
        rejected=(("spec.template", "no"),) * blocked,
    )  # fmt: skip
