"""The page with the figures: tables in Markdown, and bars of CPU per chunk and added latency as SVG."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

Row = dict[str, Any]
COLOURS = {"tidegate": "#0f766e", "envoy": "#7c3aed", "haproxy": "#b45309", "nginx": "#4b5563"}
WIDTH, PANEL, LEFT, TOP = 860, 190, 90, 56
NEXT_TO_IT = "[configurations](../../dev/gatewaybench/configs)"

INTRO = """# Figures of the gateway

`make bench-gateway` measures the shipped gateway, {rivals} with one worker each ({configs}),
and a direct connection. {machine}; client, engine and proxy share the cores, so latencies are comparable within this
run only. {rounds} rounds, in a different order each time; every figure is the median of the rounds. A stream brings 50
chunks of 150 bytes a second, for 5 s. *Staggered*: spread over the period. *Burst*: all streams at one moment, as one
step of an engine produces them. *Added* is relative to the direct connection of the same round.

![CPU per chunk and added latency](bench-gateway.svg)
"""


def table(rows: Sequence[Row], machine: str, rounds: int) -> str:
    """The page, in Markdown."""
    named = [name for name in dict.fromkeys(row["rival"] for row in rows) if name not in ("tidegate", "direct")]
    out = [INTRO.format(rivals=" and ".join(named), configs=NEXT_TO_IT, machine=machine, rounds=rounds)]
    streams = [row for row in rows if "p50" in row]
    out.append("| streams | through | CPU per chunk, µs | added p50, ms | added p99, ms | p99, ms | memory, MB |")
    out.append("|---|---|---|---|---|---|---|")
    out += [
        f"| {r['load']} | {r['rival']} | {_n(r['cpuMicrosecondsPerChunk'], 1)} | {_n(r['p50Added'], 2)} "
        f"| {_n(r['p99Added'], 2)} | {_n(r['p99'], 2)} | {_n(r['memoryMb'], 0)} |"
        for r in streams
    ]
    out += ["", "Short calls, one after another on each connection:", ""]
    out += ["| connections | through | calls per second | CPU per call, µs |", "|---|---|---|---|"]
    out += [
        f"| {r['load']} | {r['rival']} | {_n(r['callsPerSecond'], 0)} | {_n(r['cpuMicrosecondsPerCall'], 0)} |"
        for r in rows
        if "callsPerSecond" in r
    ]
    return "\n".join(out) + "\n"


def _n(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def plot(rows: Sequence[Row], path: Path) -> None:
    """Three panels of bars, a group per load."""
    streams = [row for row in rows if "p50" in row and row["rival"] in COLOURS]
    panels = (
        ("CPU per chunk, µs", "cpuMicrosecondsPerChunk"),
        ("added p50, ms", "p50Added"),
        ("added p99, ms", "p99Added"),
    )
    height = TOP + PANEL * len(panels) + 30
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    names = [name for name in COLOURS if any(row["rival"] == name for row in streams)]
    for position, name in enumerate(names):
        out.append(
            f'<rect x="{LEFT + position * 120}" y="14" width="14" height="14" fill="{COLOURS[name]}"/>'
            f'<text x="{LEFT + position * 120 + 20}" y="26" fill="#111827">{name}</text>'
        )
    for index, (title, key) in enumerate(panels):
        out += _panel(streams, names, title, key, TOP + index * PANEL, labelled=index == len(panels) - 1)
    out.append("</svg>")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(out) + "\n", encoding="utf-8")


def _panel(rows: Sequence[Row], names: Sequence[str], title: str, key: str, top: int, labelled: bool) -> list[str]:
    loads = list(dict.fromkeys(row["load"] for row in rows))
    # The largest loads overload the machine and would flatten all others: bars are cut at three times the median.
    values = sorted(max(row[key], 0.0) for row in rows)
    most = max(min(values[-1], 3 * values[len(values) // 2]), 0.001) if values else 1.0
    base, tall = top + PANEL - 50, PANEL - 78
    out = [f'<text x="{LEFT}" y="{top + 12}" font-weight="600" fill="#111827">{escape(title)}</text>']
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{base}" y2="{base}" stroke="#9ca3af"/>')
    out.append(f'<text x="{LEFT - 8}" y="{base - tall + 4}" text-anchor="end" fill="#374151">{most:.1f}</text>')
    group = (WIDTH - LEFT - 20) / max(len(loads), 1)
    bar = group * 0.8 / max(len(names), 1)
    for g, load in enumerate(loads):
        for n, name in enumerate(names):
            found = next((row for row in rows if (row["load"], row["rival"]) == (load, name)), None)
            if found is None:
                continue
            value = max(found[key], 0.0)
            high = min(value / most, 1.0) * tall
            x = LEFT + g * group + n * bar
            out.append(
                f'<rect x="{x:.1f}" y="{base - high:.1f}" width="{bar - 1:.1f}" height="{high:.1f}" '
                f'fill="{COLOURS[name]}"/>'
            )
            if value > most:
                label = f'<text x="{x + bar / 2:.1f}" y="{base - tall - 4:.1f}" text-anchor="middle" font-size="10"'
                out.append(f'{label} fill="#374151">{value:.0f}</text>')
        if labelled:
            middle = LEFT + (g + 0.4) * group
            out.append(f'<text x="{middle:.1f}" y="{base + 18}" text-anchor="middle" fill="#374151">{load}</text>')
    return out
