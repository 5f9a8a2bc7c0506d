"""How it looks: a table that redraws itself on a terminal, a line per change elsewhere."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .tally import Pod, Tally

COLOURS = {"starting": "blue", "serving": "green", "draining": "yellow", "drained": "magenta", "terminating": "red"}
WIDEST_BAR = 20
HEADINGS = ("POD", "IMAGE", "STATE", "FOR", "DEADLINE IN", "IN FLIGHT", "DONE", "CUT")
NUMBERS = {"FOR", "DEADLINE IN", "DONE", "CUT"}
REDRAWS_PER_SECOND = 4


@dataclass(slots=True)
class Clock:
    """Seconds since the run began."""

    begun: float

    @classmethod
    def start(cls) -> "Clock":
        """From now on."""
        return cls(time.monotonic())

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.begun


class Screen:
    """Shows a tally as it changes. `live`: redraw in place; else print what changed."""

    def __init__(self, console: Console, title: str, tally: Tally, clock: Clock, *, live: bool) -> None:
        self._console = console
        self._title = title
        self._tally = tally
        self._clock = clock
        self._live = None
        self._streams = ""
        if live:
            self._live = Live(get_renderable=self._frame, console=console, refresh_per_second=REDRAWS_PER_SECOND)

    def __enter__(self) -> "Screen":
        self._console.rule(self._title)
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.changed()
        if self._live:
            self._live.stop()
        else:
            self._say(streams(self._tally))

    def say(self, sentence: str) -> None:
        """A step of the demo itself, in either form."""
        if self._live:
            self._live.console.print(Text(f"> {sentence}"))
        else:
            self._say(f"> {sentence}")

    def changed(self) -> None:
        """To be called after every event; the live form redraws by itself."""
        sentences, self._tally.changes[:] = list(self._tally.changes), []
        if not self._live:
            for sentence in sentences:
                self._say(sentence)

    def beat(self) -> None:
        """A line about the streams, where nothing redraws; to be called every few seconds."""
        line = streams(self._tally)
        if not self._live and line != self._streams:
            self._streams = line
            self._say(line)

    def _say(self, sentence: str) -> None:
        self._console.print(Text(f"{minutes(self._clock.now):>5}  {sentence}"), soft_wrap=True)

    def _frame(self) -> Group:
        now, tally = self._clock.now, self._tally
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in HEADINGS:
            table.add_column(heading, justify="right" if heading in NUMBERS else "left", no_wrap=True)
        ascii_only = not self._console.encoding.startswith("utf")
        for pod in tally.pods.values():
            table.add_row(*_row(pod, now, ascii_only), style="dim" if pod.gone else None)
        parts: list[RenderableType] = [Text(streams(tally), style="bold red" if tally.failed else "bold"), table]
        if tally.service:
            parts.append(Text(rollout(tally, now), style="cyan"))
        return Group(*parts, Text(""))


def _row(pod: Pod, now: float, ascii_only: bool) -> Sequence[Text | str]:
    held = len(pod.running)
    bar = ("#" if ascii_only else "\N{FULL BLOCK}") * min(held, WIDEST_BAR)
    colour = COLOURS.get(pod.state, "")
    left = "" if pod.deadline is None or pod.gone else minutes(max(pod.deadline - now, 0))
    return (
        pod.name,
        pod.tag,
        Text(pod.state, style=colour),
        "" if pod.gone else minutes(now - pod.since),
        left,
        Text(f"{bar} {held}" if held else ("" if pod.gone else "0"), style=colour),
        str(pod.whole),
        Text(str(pod.cut), style="bold red" if pod.cut else ""),
    )


def streams(tally: Tally) -> str:
    """One line about all streams."""
    return (
        f"streams: {tally.running} in flight, {tally.whole} complete, {tally.cut} cut, {tally.refused} refused or reset"
    )


def rollout(tally: Tally, now: float) -> str:
    """The operator's own words on what goes on."""
    status = tally.service.get("status", {})
    counts = ", ".join(f"{name} {status.get(name, 0)}" for name in ("serving", "updated", "draining"))
    counts = f"{status.get('phase')}: {counts}"
    if tally.applied is not None:
        took = (now if tally.finished is None else tally.finished) - tally.applied
        counts += f", {minutes(took)} since the change"
    return f"{counts}\n{status.get('message', '')}"


def minutes(seconds: float) -> str:
    """Seconds as M:SS."""
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
