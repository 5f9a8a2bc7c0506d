"""The table of the figures, in Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from .figures import Figures, Usage

TABLE = ["| figure | measured | aim |", "|---|---|---|"]


def page(head: str, figures: Mapping[int, Figures], rest: Usage, rolling: Sequence[Usage]) -> str:
    """The whole table. `figures`: by the streams' seconds; `rolling`: the operator's usage in each rollout."""
    busiest = max(rolling, key=lambda usage: usage.cpu_share)
    lines = [head, "", *TABLE]
    for seconds, measured in figures.items():
        lines += rows(seconds, measured)
    for when, usage in (("at rest", rest), ("in a rollout", busiest)):
        lines.append(f"| operator {when} | {usage.rss_mib:.0f} MiB, {usage.cpu_share:.1%} of a core | |")
    return "\n".join(lines) + "\n"


def rows(seconds: int, f: Figures) -> list[str]:
    """The rows about streams of `seconds` seconds."""
    ordered = sorted(f.lowering)
    p99 = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    median = statistics.median(ordered)
    head = f"streams of {seconds} s"
    return [
        f"| {head}: sealed to lowering accepted, n = {len(ordered)} | "
        f"median {median * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, max {ordered[-1] * 1000:.0f} ms | p99 < 150 ms |",
        f"| {head}: where that time goes, mean | {shares(f.steps)} | |",
        f"| {head}: bound / rollout time, S {statistics.mean(f.starts):.1f} s, D {statistics.mean(f.drains):.1f} s | "
        f"{', '.join(f'{r:.2f}' for r in f.ratios)} | 0.97 |",
        f"| {head}: API writes per replaced pod | {', '.join(f'{w:.1f}' for w in f.writes)} | 4 |",
        f"| {head}: streams cut or refused | {f.cut} | 0 |",
    ]


def shares(found: list[dict[str, float]]) -> str:
    """The mean of each step, in the order in which they come up."""
    steps = dict.fromkeys(step for one in found for step in one)
    means = {step: statistics.mean(one.get(step, 0.0) for one in found) for step in steps}
    return ", ".join(f"{step} {mean * 1000:.0f} ms" for step, mean in means.items())
