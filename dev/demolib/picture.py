"""A recorded rollout as a picture: pods over time by state, with their streams in flight. Behind `dev/picture`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 960, 110, 20
BAR, ROW, PANEL_HEAD, PANEL_FOOT = 24, 30, 46, 34
LEGEND = 40
BEFORE = 12.0
# Light for the state, dark for the streams in flight in it.
STATES = {
    "starting": ("#dbe4f0", "#8aa4c8"),
    "serving": ("#d5ecd8", "#3f9a54"),
    "draining": ("#fbe8b8", "#d99a0b"),
    "drained": ("#e4d7f0", "#8e5fb8"),
    "terminating": ("#f6cfcb", "#c8483c"),
}
CUT = "#b00020"
NAMES = {
    "tidegate": "Tidegate",
    "plain": "A plain Deployment, whose process exits on SIGTERM",
}


class Picture:
    """The acts of one recording below each other, on one scale of time and one of streams."""

    def __init__(self, recording: dict[str, Any]) -> None:
        self._acts = recording
        pods = [pod for act in recording.values() for pod in act["pods"]]
        self._end = max(act["endSeconds"] for act in recording.values())
        self._most = max((count for pod in pods for _, count in pod["inFlight"]), default=1)
        self._parts: list[str] = []

    def draw(self) -> str:
        """The picture as SVG."""
        y = 10.0
        for name, act in self._acts.items():
            y = self._panel(name, act, y)
        y = self._legend(y)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0f}" width="{WIDTH}" height="{y:.0f}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#222">'
        )
        label = "<title>Pods over time during a rollout, coloured by state, with their streams in flight</title>"
        background = f'<rect width="{WIDTH}" height="{y:.0f}" fill="#fff"/>'
        return "\n".join([head, label, background, *self._parts, "</svg>"]) + "\n"

    def _panel(self, kind: str, act: dict[str, Any], y: float) -> float:
        figures = act["figures"]
        self._text(LEFT, y + 16, NAMES.get(kind, kind), size=15, weight="bold")
        result = (
            f"{figures['streams complete']} streams complete, {figures['streams cut']} cut, "
            f"{figures['requests refused or reset']} refused; {act['rolloutSeconds']:.0f} s"
        )
        self._text(LEFT, y + 34, result, fill=CUT if act["failed"] else "#222")
        top = y + PANEL_HEAD
        pods = sorted(act["pods"], key=_order)
        rows = {pod["name"]: top + number * ROW for number, pod in enumerate(pods)}
        bottom = top + len(rows) * ROW
        self._axis(top, bottom)
        for pod in pods:
            self._pod(pod, rows[pod["name"]], act["endSeconds"])
        for name, y in rows.items():
            cuts = [at for at, pod, result in act["failed"] if result == "cut" and pod == name]
            for at in cuts:
                self._cross(self._x(at), y + BAR / 2)
            if cuts:
                self._text(self._x(max(cuts)) + 12, y + 16, f"{len(cuts)} cut", fill=CUT)
        self._line(self._x(0), top - 6, self._x(0), bottom, "#222", dash="")
        return bottom + PANEL_FOOT

    def _pod(self, pod: dict[str, Any], y: float, last: float) -> None:
        self._text(LEFT - 8, y + 16, f"{pod['name'].rpartition('-')[2]}  {pod['image']}", anchor="end")
        states = pod["states"]
        for number, (begin, state) in enumerate(states):
            end = states[number + 1][0] if number + 1 < len(states) else last
            if state not in STATES or end <= -BEFORE:
                continue
            begin = max(begin, -BEFORE)
            light, dark = STATES[state]
            self._rectangle(self._x(begin), y, self._x(end) - self._x(begin), BAR, light)
            self._area(pod["inFlight"], begin, end, y + BAR, dark)
            if state == "draining":
                held = [count for at, count in pod["inFlight"] if at <= begin][-1:]
                self._text(self._x(begin) + 4, y + 11, f"{held[0] if held else 0} in flight", size=10)

    def _area(self, history: list[list[Any]], begin: float, end: float, base: float, colour: str) -> None:
        """Streams in flight from `begin` to `end`, as steps."""
        count = next((count for at, count in reversed(history) if at <= begin), 0)
        path = [f"M{self._x(begin):.1f} {base:.1f}V{self._height(base, count):.1f}"]
        for at, value in history:
            if begin < at < end:
                path.append(f"H{self._x(at):.1f}V{self._height(base, value):.1f}")
        path.append(f"H{self._x(end):.1f}V{base:.1f}Z")
        self._parts.append(f'<path d="{"".join(path)}" fill="{colour}"/>')

    def _height(self, base: float, count: int) -> float:
        return base - (BAR - 2) * count / float(self._most)

    def _axis(self, top: float, bottom: float) -> None:
        step = next(s for s in (5, 10, 20, 30, 60, 120, 300, 600) if self._end / s <= 12)
        at = 0
        while at <= self._end:
            x = self._x(at)
            self._line(x, top - 4, x, bottom, "#ddd")
            self._text(x, bottom + 14, "new image" if at == 0 else f"{at} s", anchor="middle", fill="#666", size=11)
            at += step

    def _legend(self, y: float) -> float:
        x = float(LEFT)
        for state, (light, dark) in STATES.items():
            self._rectangle(x, y, 26, 14, light)
            self._rectangle(x, y + 6, 26, 8, dark)
            self._text(x + 32, y + 11, state)
            x += 44 + 7 * len(state)
        self._cross(x + 10, y + 7)
        self._text(x + 20, y + 11, "a stream cut")
        self._text(x + 106, y + 11, f"dark: streams in flight, full height {self._most}", fill="#666")
        return y + LEGEND

    def _x(self, seconds: float) -> float:
        scale = (WIDTH - LEFT - RIGHT) / (self._end + BEFORE)
        return LEFT + (seconds + BEFORE) * float(scale)

    def _text(self, x: float, y: float, text: str, *, size: int = 12, weight: str = "normal", anchor: str = "start",
              fill: str = "#222") -> None:  # fmt: skip
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{fill}">{escape(text)}</text>'
        )

    def _rectangle(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"/>')

    def _line(self, x1: float, y1: float, x2: float, y2: float, stroke: str, dash: str = "2 3") -> None:
        self._parts.append(
            f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{stroke}" stroke-dasharray="{dash}"/>'
        )

    def _cross(self, x: float, y: float) -> None:
        self._parts.append(
            f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8" stroke="{CUT}" stroke-width="1.6" fill="none"/>'
        )


def _order(pod: dict[str, Any]) -> tuple[str, float]:
    """Old pods in the order in which they went, new ones in the order in which they came."""
    states = pod["states"]
    return pod["image"], float(states[-1][0] if states[-1][1] == "gone" else states[0][0])


def main(arguments: Sequence[str]) -> int:
    """Draw arguments[0], a recording, into arguments[1]; return the exit status."""
    if len(arguments) != 2:
        print("usage: dev/picture RECORDING.json OUTPUT.svg", file=sys.stderr)
        return 2
    recording = json.loads(Path(arguments[0]).read_text())
    Path(arguments[1]).write_text(Picture(recording).draw())
    return 0
