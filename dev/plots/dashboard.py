"""Draw manifests/monitoring/dashboard.json from recorded answers to its queries; writes docs/img/dashboard.svg.

    dev/cluster up && dev/image operator && dev/image testapp
    export TIDEGATE_RECORD=$PWD/recorded.json
    dev/cluster exec .venv/bin/python -m pytest tests/cluster/test_metrics.py -k healthy
    .venv/bin/python dev/plots/dashboard.py recorded.json

Not Grafana, and not its look: the same panels at the same places, the same queries and figures, to see whether they
tell the person on call what is going on. Tables and single figures are those of one moment in the middle.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

CHECKOUT = Path(__file__).resolve().parents[2]
COLUMN, ROW, GAP, HEAD = 50, 30, 6, 26
COLOURS = ("#3f9a54", "#d99a0b", "#4a76b8", "#c8483c", "#8e5fb8", "#2a9d9d", "#7f6a4f", "#d46aa6", "#6b8e23", "#555")
GREEN, ORANGE, BLUE, RED, PURPLE = COLOURS[:5]
STATES = {"serving": GREEN, "unready": BLUE, "draining": ORANGE, "drained": PURPLE, "terminating": RED}
GREY = "#666"
Series = tuple[str, list[tuple[float, float]], bool]


class Dashboard:
    """The panels of the dashboard over one recording; `queries` holds (labels, [[time, value], ...]) by query."""

    def __init__(self, board: dict[str, Any], recording: dict[str, Any]) -> None:
        self._board, self._queries = board, recording["queries"]
        self._began, self._ended = recording["began"], recording["ended"]
        self._at = self._busiest()
        self._parts: list[str] = []

    def _busiest(self) -> float:
        """The moment when most is known about pods that drain."""
        seen: dict[float, int] = {}
        for _, values in self._queries["Requests in flight, of draining instances A"]:
            for at, value in values:
                seen[at] = seen.get(at, 0) + 1 + int(float(value))
        return max(seen, key=lambda at: seen[at], default=self._ended)

    def draw(self) -> str:
        """The dashboard as one SVG."""
        for panel in self._board["panels"]:
            place = panel["gridPos"]
            x, y = place["x"] * COLUMN + GAP, place["y"] * ROW + GAP
            width, height = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
            if panel["type"] == "row":
                self._text(x, y + 17, panel["title"], size=15, weight="bold")
                continue
            self._parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#fff" stroke="#ddd"/>')
            self._text(x + 8, y + 17, panel["title"], weight="bold")
            area = (x + 8, y + HEAD, width - 16, height - HEAD - 6)
            kinds = {"table": self._table, "stat": self._stat, "state-timeline": self._timeline}
            kinds.get(panel["type"], self._graph)(panel, *area)
        height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in self._board["panels"]) * ROW + 2 * GAP
        size = f'viewBox="0 0 {24 * COLUMN + GAP} {height}" width="{24 * COLUMN + GAP}" height="{height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="Helvetica, Arial, sans-serif" fill="#222">'
        return (
            "\n".join([head, f'<rect width="100%" height="{height}" fill="#f4f5f5"/>', *self._parts, "</svg>"]) + "\n"
        )

    # -- figures

    def _series(self, panel: dict[str, Any]) -> list[Series]:
        """(legend, points, dashed) of each series of a panel."""
        matchers = (override["matcher"] for override in panel["fieldConfig"]["overrides"])
        dashes = [re.compile(m["options"].strip("/")) for m in matchers if m["id"] == "byRegexp"]
        found = []
        for target in panel["targets"]:
            for labels, values in self._queries[f"{panel['title']} {target['refId']}"]:
                legend = re.sub(r"\{\{(\w+)\}\}", r"{\1}", target["legendFormat"]).format_map(labels)
                legend = re.sub(r"\b(\w+-[0-9a-f]{10})-\w+-(\w{5})\b", r"\1-…-\2", legend)
                points = [(at, float(value)) for at, value in values if value != "NaN"]
                found.append((legend, points, any(dash.search(legend) for dash in dashes)))
        return sorted(found)

    def _now(self, key: str) -> list[tuple[dict[str, str], float]]:
        rows = [(labels, {at: float(value) for at, value in values}) for labels, values in self._queries[key]]
        return [(labels, values[self._at]) for labels, values in rows if self._at in values]

    # -- panels

    def _table(self, panel: dict[str, Any], x: float, y: float, width: float, _: float) -> None:
        (options,) = (t["options"] for t in panel["transformations"] if t["id"] == "organize")
        columns = [options["renameByName"].get(name, name) for name in options["indexByName"]]
        rows: dict[str, dict[str, str]] = {}
        for target in panel["targets"]:
            name = options["renameByName"].get(f"Value #{target['refId']}")
            for labels, value in self._now(f"{panel['title']} {target['refId']}"):
                row = rows.setdefault(labels["pod"], {})
                row |= labels
                if name:
                    row[name] = f"{value:.0f}" + ("" if name == "in flight" else " s")
        starts = [0.0, 0.10, 0.15, 0.36, 0.44, 0.50, 0.555, 0.60, 0.675, 0.75, 0.815, 0.88, 0.945]
        for start, column in zip(starts, columns, strict=False):
            self._text(x + start * width, y + 12, column, size=11, fill=GREY)
        for number, row in enumerate(sorted(rows.values(), key=lambda row: (row["revision"], row["pod"]))):
            line = y + 34 + number * 22
            for start, column in zip(starts, columns, strict=False):
                colour = STATES.get(row["state"], "#222") if column == "state" else "#222"
                if column == "deadline in" and column in row and int(row[column].split()[0]) < 60:
                    colour = RED if row[column].startswith("-") else ORANGE
                self._text(x + start * width, line, row.get(column, ""), fill=colour)

    def _stat(self, panel: dict[str, Any], x: float, y: float, width: float, height: float) -> None:
        found = self._now(f"{panel['title']} A")
        defaults = panel["fieldConfig"]["defaults"]
        value = found[0][1] if found else None
        steps = defaults["thresholds"]["steps"]
        name = [s["color"] for s in steps if s["value"] is None or (value is not None and value >= s["value"])][-1]
        colour = {"green": GREEN, "orange": ORANGE, "red": RED}[name]
        self._parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{colour}"/>')
        text = "no data" if value is None else _figure(value, defaults["unit"])
        self._text(x + width / 2, y + height / 2 + 9, text, size=26, anchor="middle", fill="#fff")

    def _timeline(self, panel: dict[str, Any], x: float, y: float, width: float, height: float) -> None:
        for number, (legend, points, _) in enumerate(self._series(panel)):
            top = y + 6 + number * 26
            self._text(x, top + 14, legend, size=11)
            for at, _ in points:
                left = self._x(at, x + 110, width - 110)
                step = self._x(at + 1, x + 110, width - 110) - left
                colour = COLOURS[number % len(COLOURS)]
                self._parts.append(
                    f'<rect x="{left:.1f}" y="{top}" width="{step + 0.5:.1f}" height="20" fill="{colour}"/>'
                )
        self._times(x + 110, y + height - 16, width - 110, y)

    def _graph(self, panel: dict[str, Any], x: float, y: float, width: float, height: float) -> None:
        series, defaults = self._series(panel), panel["fieldConfig"]["defaults"]
        custom = defaults["custom"]
        beside = panel["options"]["legend"]["placement"] == "right"
        plot_left, plot_width = x + 46, (width * 0.58 if beside else width) - 50
        rows = 0 if beside else (len(series) + 1) // 2
        plot_height = height - 18 - rows * 15
        stacked = "stacking" in custom
        tops = _stacked(series) if stacked else [points for _, points, _ in series]
        most = max((value for points in tops for _, value in points), default=1.0) * 1.08 or 1.0
        for part in range(5):
            line = y + plot_height * (1 - part / 4.32)
            self._parts.append(f'<path d="M{plot_left} {line:.1f}h{plot_width}" stroke="#eee"/>')
            self._text(
                plot_left - 6,
                line + 4,
                _figure(most * part / 4.32, defaults["unit"]),
                size=10,
                anchor="end",
                fill=GREY,
            )
        self._times(plot_left, y + plot_height, plot_width, y)
        order = list(enumerate(zip(series, tops, strict=True)))
        for number, ((legend, points, dashed), top) in reversed(order) if stacked else order:
            colour = STATES.get(legend, COLOURS[number % len(COLOURS)])
            if top:
                self._line(top, plot_left, y, plot_width, plot_height, most, colour, dashed, custom)
            value = f"{_figure(points[-1][1], defaults['unit'])}" if points else ""
            row, column = (number, 0) if beside else (number // 2, number % 2)
            left = x + width * 0.6 if beside else x + 46 + column * (width - 46) / 2
            line = y + 6 + row * 15 if beside else y + plot_height + 30 + row * 15
            self._parts.append(f'<path d="M{left} {line - 4}h14" stroke="{colour}" stroke-width="3"{_dash(dashed)}/>')
            self._text(left + 20, line, f"{legend}  {value}", size=10.5)
        if not series:
            self._text(x + width / 2, y + height / 2, "no data", anchor="middle", fill="#999")

    def _line(
        self, points: list[tuple[float, float]], x: float, y: float, width: float, height: float, most: float,
        colour: str, dashed: bool, custom: dict[str, Any],
    ) -> None:  # fmt: skip
        """One series; a gap of more than 3 s is a gap."""
        runs: list[list[tuple[float, float]]] = [[]]
        for at, value in points:
            if runs[-1] and at - runs[-1][-1][0] > 3:
                runs.append([])
            runs[-1].append((at, value))
        for run in runs:
            spots = [(self._x(at, x, width), y + height * (1 - value / most)) for at, value in run]
            path = f"M{spots[0][0]:.1f} {spots[0][1]:.1f}"
            for left, top in spots[1:]:
                path += f"H{left:.1f}V{top:.1f}" if "lineInterpolation" in custom else f"L{left:.1f} {top:.1f}"
            if custom.get("fillOpacity"):
                area = f"{path}V{y + height:.1f}H{spots[0][0]:.1f}Z"
                opacity = 1 if "stacking" in custom else custom["fillOpacity"] / 100
                self._parts.append(f'<path d="{area}" fill="{colour}" fill-opacity="{opacity}"/>')
            self._parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{_dash(dashed)}/>')

    def _times(self, x: float, y: float, width: float, top: float) -> None:
        span = self._ended - self._began
        step = next(s for s in (5, 10, 15, 30, 60, 120, 300) if span / s <= 8)
        for seconds in range(0, int(span) + 1, step):
            self._text(
                self._x(self._began + seconds, x, width), y + 13, f"{seconds} s", size=10, anchor="middle", fill=GREY
            )
        here = self._x(self._at, x, width)
        self._parts.append(f'<path d="M{here:.1f} {top}V{y}" stroke="#999" stroke-dasharray="2 3"/>')

    def _x(self, at: float, x: float, width: float) -> float:
        return x + width * float((at - self._began) / (self._ended - self._began))

    def _text(self, x: float, y: float, text: str, *, size: float = 12, weight: str = "normal", anchor: str = "start",
              fill: str = "#222") -> None:  # fmt: skip
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{fill}">{escape(text)}</text>'
        )


def _stacked(series: list[Series]) -> list[list[tuple[float, float]]]:
    """Each series on top of those before it."""
    heights: dict[float, float] = {}
    tops = []
    for _, points, _ in series:
        tops.append([(at, heights.get(at, 0.0) + value) for at, value in points])
        heights |= dict(tops[-1])
    return tops


def _dash(dashed: bool) -> str:
    return ' stroke-dasharray="6 5"' if dashed else ""


def _figure(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 1e6:.0f} MB"
    if unit == "percentunit":
        return f"{value * 100:.0f} %"
    if unit == "s" and 0 < abs(value) < 1:
        return f"{value * 1000:.0f} ms"
    text = f"{value:.1f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.0f}"
    return f"{text} s" if unit == "s" else text


def main(arguments: list[str]) -> int:
    """Draw the file that is named; 2 when none or several are."""
    if len(arguments) != 1:
        print("usage: dev/plots/dashboard.py RECORDED.json", file=sys.stderr)
        return 2
    board = json.loads((CHECKOUT / "manifests/monitoring/dashboard.json").read_text())
    drawn = Dashboard(board, json.loads(Path(arguments[0]).read_text())).draw()
    (CHECKOUT / "docs/img/dashboard.svg").write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
