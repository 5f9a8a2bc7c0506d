"""What a service's drains have taught, as one document that outlives the operator.

Three histograms (drains, last arrivals, teardowns), the terms in force before the last count, and the names of pods
that were counted. The names are what keeps a drain from being counted twice: they change in the same write as the
histograms do.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .drain_term import TermInForce
from .histogram import LONGEST, Histogram, HistogramUnreadable, Sample
from .histogram import load as load_histogram

VERSION: Final = 1
KEPT_NAMES: Final = 100
"""Names of pods that are gone are kept so many, since an old view of the cluster may still show them."""
KEPT_AGES: Final = 32
"""Of a service with more pods the longest: those that tell something."""
LONGEST_TEXT: Final = 512 * 1024
"""Characters; a document is a few thousand, more with thousands of drained pods that still stand."""
HISTOGRAMS: Final = ("drains", "arrivals", "teardowns")


class Unreadable(ValueError):
    """Content that is not such a document; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One drain that is over: its pod, and the samples that it gives."""

    pod: str
    drain: Sample
    late: Sample | None = None
    expired: bool = False
    """Whether it was cut since its budget was spent."""


@dataclass(frozen=True, slots=True)
class Age:
    """How old the oldest request of a pod was when the victims of a rollout to `revision` were chosen."""

    revision: str
    seconds: float
    at: float

    @property
    def sample(self) -> Sample:
        """A drain begun at the arrival of that request would have lasted at least so long."""
        return Sample(self.seconds, True, self.at)


@dataclass(frozen=True, slots=True)
class DrainTimes:
    """See the module. It never changes, so estimates of it are cached, by identity: its content has no cheap hash."""

    __hash__ = object.__hash__

    drains: Histogram = field(default_factory=Histogram)
    """Seconds from withdrawal + declared propagation to the end of the last request."""
    arrivals: Histogram = field(default_factory=Histogram)
    """Seconds from withdrawal to the last request that still arrived."""
    teardowns: Histogram = field(default_factory=Histogram)
    """Seconds from the deletion of a drained pod to the exit of its serving container."""
    expired: float = 0.0
    """Weight of those drains that spent their budget, as of `drains.at`."""
    previous: Mapping[str, TermInForce] = field(default_factory=dict)
    """By name, the terms that were in force when the last drain was counted."""
    counted: tuple[str, ...] = ()
    """Names of pods whose drain was counted."""
    teardown_counted: tuple[str, ...] = ()
    """Names of pods whose teardown was counted."""
    ages: Mapping[str, Age] = field(default_factory=dict)
    """By pod, ages that stand for drains which are not over yet."""

    @property
    def samples(self) -> Histogram:
        """The drains, and the ages that stand for the missing ones."""
        return self.drains.add(age.sample for age in self.ages.values())

    @property
    def expired_share(self) -> float:
        """Weighted share of the drains that spent their budget."""
        return self.expired / self.drains.weight if self.drains.weight > 0 else 0.0

    def add(
        self,
        drains: Iterable[Counted],
        teardowns: Mapping[str, Sample],
        previous: Mapping[str, TermInForce],
        *,
        standing: frozenset[str],
    ) -> "DrainTimes":
        """With these; `previous` are the terms in force until now, `standing` the pods that can still be seen."""
        new = [one for one in drains if one.pod not in self.counted]
        fresh = {pod: sample for pod, sample in teardowns.items() if pod not in self.teardown_counted}
        histogram = self.drains.add(one.drain for one in new)
        counted = (*self.counted, *(one.pod for one in new))
        return replace(
            self,
            drains=histogram,
            arrivals=self.arrivals.add(one.late for one in new if one.late is not None),
            teardowns=self.teardowns.add(fresh.values()),
            expired=self.expired * _factor(self.drains, histogram) + sum(one.expired for one in new),
            previous=previous,
            counted=_bounded(counted, standing),
            teardown_counted=_bounded((*self.teardown_counted, *fresh), standing),
            ages={pod: age for pod, age in self.ages.items() if pod not in counted},
        )

    def waiting(self, ages: Mapping[str, Age], standing: frozenset[str]) -> "DrainTimes":
        """With these ages, one per pod and rollout, until the pod's own drain takes their place.

        Both for good would count every pod twice, and as many cut drains as finished ones: the curve would never come
        down. The age of a pod that has gone without a drain stays, as a sample like any other.
        """
        gone = [age.sample for pod, age in self.ages.items() if pod not in standing]
        kept = {pod: age for pod, age in self.ages.items() if pod in standing}
        for pod, age in ages.items():
            if pod not in kept or kept[pod].revision != age.revision:
                kept[pod] = age
        oldest = sorted(kept, key=lambda pod: (-kept[pod].seconds, pod))[:KEPT_AGES]
        return replace(self, drains=self.drains.add(gone), ages={pod: kept[pod] for pod in sorted(oldest)})

    def dump(self) -> str:
        """As JSON text, the same for the same content."""
        document = {
            "version": VERSION,
            **{name: getattr(self, name).dump() for name in HISTOGRAMS},
            "expired": float(f"{self.expired:.4g}"),
            "previous": {name: {"seconds": t.seconds, "at": t.at} for name, t in self.previous.items()},
            "counted": list(self.counted),
            "torn": list(self.teardown_counted),
            "ages": {
                pod: {"revision": a.revision, "seconds": round(a.seconds, 1), "at": round(a.at, 3)}
                for pod, a in self.ages.items()
            },
        }
        return json.dumps(document, separators=(",", ":"))


def load(text: str) -> DrainTimes:
    """Back from `dump`. Raises `Unreadable` for anything else: a wrong number here would cut streams."""
    if len(text) > LONGEST_TEXT:
        raise Unreadable(f"it is longer than {LONGEST_TEXT} characters")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    if not isinstance(content, dict):
        raise Unreadable("it is not a JSON object")
    if content.get("version") != VERSION:
        raise Unreadable(f"its version is not {VERSION}, the one that this operator knows")
    known = {"version", *HISTOGRAMS, "expired", "previous", "counted", "torn", "ages"}
    if content.keys() != known:
        odd = sorted(str(key)[:40] for key in content.keys() ^ known)
        raise Unreadable(f"fields missing or unknown: {', '.join(odd[:5])}")
    found = DrainTimes(
        **{name: _histogram(content, name) for name in HISTOGRAMS},
        expired=_number(content, "expired"),
        previous={name: _term(value) for name, value in _mapping(content, "previous").items()},
        counted=_names(content, "counted"),
        teardown_counted=_names(content, "torn"),
        ages={pod: _age(pod, value) for pod, value in _mapping(content, "ages").items()},
    )
    if found.expired > found.drains.weight * 1.01 + 0.01:
        raise Unreadable("expired weighs more than the drains")
    return found


def _factor(before: Histogram, after: Histogram) -> float:
    """By how much the weights of `before` have decayed in `after`."""
    return before.decayed(after.at).weight / before.weight if before.weight > 0 else 0.0


def _bounded(names: Iterable[str], standing: frozenset[str]) -> tuple[str, ...]:
    """All that can still be seen, and the latest of the others."""
    every = list(dict.fromkeys(names))
    gone = [name for name in every if name not in standing]
    dropped = set(gone[: max(len(gone) - KEPT_NAMES, 0)])
    return tuple(name for name in every if name not in dropped)


def _histogram(content: Mapping[str, Any], name: str) -> Histogram:
    try:
        return load_histogram(content[name])
    except HistogramUnreadable as error:
        raise Unreadable(f"{name}: {error}") from None


def _number(content: Mapping[str, Any], name: str) -> float:
    value = content.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e15:
        raise Unreadable(f"{name} is not a number from 0 to 1e15")
    return float(value)


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content[name]
    if not isinstance(value, Mapping) or not all(isinstance(inner, Mapping) for inner in value.values()):
        raise Unreadable(f"{name} is not an object of objects")
    return value


def _term(value: Mapping[str, Any]) -> TermInForce:
    return TermInForce(_number(value, "seconds"), _number(value, "at"))


def _age(pod: str, value: Mapping[str, Any]) -> Age:
    seconds = _number(value, "seconds")
    if seconds > LONGEST:
        raise Unreadable(f"ages.{pod:.63} is longer than a week")
    return Age(str(value.get("revision", ""))[:63], seconds, _number(value, "at"))


def _names(content: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = content[name]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise Unreadable(f"{name} is not a list of names")
    return tuple(value)
