"""Drains as published LLM traffic makes them, and a service that learns from them; writes docs/img/drain-time.svg.

    .venv/bin/python dev/plots/drain_time.py

Answer lengths in tokens are the published quantiles of three traces: Azure's conversation and code traces of 2023
(AzurePublicDataset, CC-BY 4.0) and Mooncake's conversation trace (FAST 2025). A stream takes 0.3 s to its first token
and 47 ms for each one. A drain waits for N streams that were running when it began; long streams are the likelier to
be running, and of each a uniform part is left.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from random import Random

from tidegate.core.drain_time.drain_term import DAY, TermInForce, drain_term
from tidegate.core.drain_time.histogram import Histogram, Sample
from tidegate.core.drain_time.survival import estimate

CHECKOUT = Path(__file__).resolve().parents[2]
QUANTILES = {
    "azure-conversation": (
        (0.0, 1), (0.25, 85), (0.5, 129), (0.75, 395), (0.9, 424), (0.95, 451), (0.99, 601), (0.999, 954), (1.0, 1000),
    ),
    "azure-code": ((0.0, 1), (0.25, 9), (0.5, 13), (0.9, 55), (0.95, 90), (0.99, 251), (0.999, 825), (1.0, 1899)),
    "mooncake": ((0.0, 1), (0.5, 350), (0.9, 597), (0.95, 698), (0.99, 1119), (0.999, 2000), (1.0, 2000)),
}  # fmt: skip
FIRST_TOKEN = 0.3
PER_TOKEN = 0.047
"""Seconds: mean inter-token latency of Qwen3-32B on an H100, as llm-d reports it."""


class Drains:
    """Draws drain times in seconds of a service with `streams` running per pod."""

    def __init__(self, trace: str, streams: int, random: Random, pace: float = 1.0) -> None:
        shares, tokens = zip(*QUANTILES[trace], strict=True)
        self._random = random
        self._streams = streams
        self._durations = [
            pace * (FIRST_TOKEN + PER_TOKEN * _between(shares, tokens, (i + 0.5) / 4000)) for i in range(4000)
        ]
        self._cumulated = list(accumulate(self._durations))

    def draw(self) -> float:
        """The length of one drain in seconds: the longest rest of the streams that run."""
        running = self._random.choices(self._durations, cum_weights=self._cumulated, k=self._streams)
        return max(duration * self._random.random() for duration in running)

    def sample(self, count: int) -> list[float]:
        """Lengths of `count` drains in seconds."""
        return [self.draw() for _ in range(count)]


def _between(shares: Sequence[float], tokens: Sequence[float], share: float) -> float:
    i = bisect_left(shares, share)
    part = (share - shares[i - 1]) / (shares[i] - shares[i - 1])
    return tokens[i - 1] + part * (tokens[i] - tokens[i - 1])


def percentile(values: Sequence[float], share: float) -> float:
    """The plain one: the smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(frozen=True, slots=True)
class Day:
    """One day of a service; times in seconds."""

    truth: float
    """P99 of the drains as they would be if none were cut."""
    term: float
    """Drain term in force during the day; longer drains were cut."""
    target: float
    """What the day's estimate then asks for."""
    plain: float
    """Limit in force where the limit is a plain P99 of what was seen."""
    cut: int
    cut_plain: int


def learn(phases: Sequence[tuple[int, Drains]], per_day: int, prior: float, cap: float = 580.0) -> list[Day]:
    """Days of a service whose pods get exactly the drain term in force, begun at `prior`.

    `phases` are (days, drains). Beside it the same drains under a limit that is the plain P99 of the times recorded,
    those of cut drains included, over the whole history.
    """
    histogram = Histogram()
    force = TermInForce(prior, 0.0)
    limit = prior
    recorded: list[float] = []
    days: list[Day] = []
    calendar: list[tuple[Drains, float]] = []
    for count, drains in phases:
        calendar += [(drains, percentile(drains.sample(6000), 0.99))] * count
    for drains, truth in calendar:
        today = drains.sample(per_day)
        at = force.at + DAY
        histogram = histogram.add(Sample(min(d, force.seconds), d > force.seconds, at) for d in today)
        recorded += [min(d, limit) for d in today]
        term = drain_term(estimate(histogram, prior), prior=prior, cap=cap, at=at, previous=force)
        cut, cut_plain = sum(d > force.seconds for d in today), sum(d > limit for d in today)
        days.append(Day(truth, force.seconds, term.target, limit, cut, cut_plain))
        force, limit = term.in_force, percentile(recorded, 0.99)
    return days


WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 56, 32, 44, 44
SERIES = (("truth", "#6b7280", "true P99 of the drains", "6 4"), ("term", "#0f766e", "drain term", ""),
          ("plain", "#c2410c", "plain P99 of what was seen", ""))  # fmt: skip


def picture(days: Sequence[Day], change: int) -> str:
    """An SVG: each day's values as steps. From day `change` on the streams take half as long."""
    top = 20 * (int(max(max(d.truth, d.term, d.plain) for d in days) / 20) + 1)

    def x(day: float) -> float:
        return LEFT + day / len(days) * (WIDTH - LEFT - RIGHT)

    def y(seconds: float) -> float:
        return HEIGHT - BOTTOM - seconds / top * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for seconds in range(0, top + 1, 20):
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(seconds):.1f}" y2="{y(seconds):.1f}" stroke="#e5e7eb"/>'
            f'<text x="{LEFT - 8}" y="{y(seconds) + 4:.1f}" text-anchor="end" fill="#374151">{seconds} s</text>'
        )
    for day in range(0, len(days) + 1, 5):
        out.append(
            f'<text x="{x(day):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#374151">day {day}</text>'
        )
    out.append(
        f'<line x1="{x(change):.1f}" x2="{x(change):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#9ca3af" '
        f'stroke-dasharray="2 3"/><text x="{x(change) + 6:.1f}" y="{TOP + 12}" fill="#374151">'
        "streams take half as long</text>"
    )
    for position, (name, colour, label, dashes) in enumerate(SERIES):
        points = " ".join(
            f"{x(i + side):.1f},{y(getattr(day, name)):.1f}" for i, day in enumerate(days) for side in (0, 1)
        )
        stroke = f'fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dashes}"'
        at = LEFT + position * 220
        out.append(f'<polyline points="{points}" {stroke}/>')
        out.append(f'<line x1="{at}" x2="{at + 26}" y1="20" y2="20" {stroke}/>')
        out.append(f'<text x="{at + 33}" y="24" fill="#111827">{label}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def story() -> tuple[list[Day], int]:
    """The one in the docs: code completion, 32 streams a pod, 120 drains a day, declared at 20 s."""
    random = Random(20)
    before = Drains("azure-code", 32, random)
    after = Drains("azure-code", 32, random, pace=0.5)
    return learn([(15, before), (15, after)], per_day=120, prior=20.0), 15


def main() -> None:
    """Print the story day by day and write its picture."""
    days, change = story()
    for number, day in enumerate(days):
        print(
            f"day {number:>2}: true P99 {day.truth:5.1f}  term {day.term:5.1f} cuts {day.cut:>3} of 120  "
            f"asks for {day.target:5.1f}   plain {day.plain:5.1f} cuts {day.cut_plain:>3}"
        )
    path = CHECKOUT / "docs" / "img" / "drain-time.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(picture(days, change), encoding="utf-8")


if __name__ == "__main__":
    main()
