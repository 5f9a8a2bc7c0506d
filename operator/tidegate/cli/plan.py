"""`tidegate plan`: the steps that a change of an LLMService would take, before anybody pushes it.

The steps are those of the operator itself, at work in a cluster in memory under virtual time: every pod starts in
--start-seconds, every drain takes --drain-seconds, nothing fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate.api import names
from tidegate.api.conditions import Phase
from tidegate.api.errors import InvalidSpec

from .terminal import say, seconds

if TYPE_CHECKING:
    from tidegate.preview import forecast


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("plan", help="print the steps that a change would take", description=__doc__)
    parser.add_argument("-f", "--file", required=True, metavar="FILE", help="the LLMService as it shall be; - is stdin")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--current", metavar="FILE", help="the LLMService as it is, rolled out and whole")
    source.add_argument("--cluster", action="store_true", help="as --current, from the cluster of the kubeconfig")
    parser.add_argument("--start-seconds", type=seconds, help="from creation to Ready (default: as measured, else 60)")
    parser.add_argument(
        "--drain-seconds",
        type=seconds,
        help="length of a drain (default: the measured median, else drain.grace.initialSeconds)",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format (default %(default)s)")
    parser.set_defaults(run=run)


class Unusable(Exception):
    """A file that holds no LLMService; the text names the remedy."""


def run(args: argparse.Namespace) -> int:
    """Print the plan; 1 when it would not get to its end, 2 when the input is not usable."""
    from tidegate.preview.forecast import Stuck

    # What it logs in the preview, a conflict with a controller for one, is part of no plan.
    logging.getLogger("tidegate").setLevel(logging.ERROR)
    try:
        wanted = _load(args.file)
        current = asyncio.run(_from_cluster(wanted)) if args.cluster else _load(args.current) if args.current else None
        _check_same(wanted, current)
        lines = _render(args, _play(args, wanted, current, args.current or "the cluster"))
    except (Unusable, InvalidSpec) as error:
        print(f"tidegate plan: {error}", file=sys.stderr)
        return 2
    except Stuck as error:
        print(f"tidegate plan: this change would not get to its end: {error}", file=sys.stderr)
        return 1
    say(lines)
    return 0


def _load(path: str) -> dict[str, Any]:
    import yaml

    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        found = [d for d in _documents(yaml.safe_load_all(text)) if d.get("kind") == "LLMService"]
    except OSError as error:
        raise Unusable(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Unusable(f"{path} is not UTF-8 text, byte {error.start}") from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        raise Unusable(f"{path} is not YAML{f', line {place.line + 1}' if place else ''}") from error
    if len(found) != 1:
        raise Unusable(f"{path} holds {len(found)} LLMServices; give a file with exactly one")
    if found[0].get("apiVersion") != names.API_VERSION:
        raise Unusable(f"{path}: apiVersion is not {names.API_VERSION}, the only one that is known; write that")
    for part in ("metadata", "spec", "status"):
        if not isinstance(found[0].get(part) or {}, dict):
            raise Unusable(f"{path}: {part} is no object; write its fields below it")
    name = (found[0].get("metadata") or {}).get("name")
    if not name:
        raise Unusable(f"{path}: metadata.name is missing; name the LLMService")
    if not isinstance(name, str):
        raise Unusable(f"{path}: metadata.name is no text; put it in quotes")
    return found[0]


def _documents(found: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """The objects of a file, those of lists, as `kubectl get -o yaml` prints them, among them."""
    for document in found:
        if isinstance(document, dict):
            items = document.get("items")
            yield from _documents(items) if isinstance(items, list) else (document,)


def _check_same(wanted: dict[str, Any], current: dict[str, Any] | None) -> None:
    """A rollout is a change of one LLMService: with another's name the plan would be of nothing that can happen."""
    if current is not None and (old := current["metadata"]["name"]) != (new := wanted["metadata"]["name"]):
        raise Unusable(f"the files name two LLMServices, {old} and {new}: a change keeps metadata.name")


async def _from_cluster(wanted: dict[str, Any]) -> dict[str, Any]:
    from tidegate.api.errors import ClusterError, NotFound
    from tidegate.cluster.client import connect
    from tidegate.cluster.port import LLM_SERVICES

    meta = wanted["metadata"]
    namespace = meta.get("namespace") or "default"
    try:
        cluster = await connect("tidegate-plan")
        try:
            return await cluster.get(LLM_SERVICES, namespace, meta["name"])
        finally:
            await cluster.close()
    except NotFound as error:
        raise Unusable(
            f"no LLMService {meta['name']} in namespace {namespace}; write the right metadata.namespace into the "
            "file, or leave --cluster out to plan a first creation"
        ) from error
    except ClusterError as error:
        raise Unusable(f"the cluster does not answer: {error}") from error


def _first(*values: float | None) -> float:
    return float(next(value for value in values if value is not None))


def _play(
    args: argparse.Namespace, wanted: dict[str, Any], current: dict[str, Any] | None, source: str
) -> forecast.Forecast:
    from tidegate.api.resource import LLMService, LLMServiceSpec
    from tidegate.preview import forecast

    from .measured import Measured

    if current is not None:
        # A file that is applied without them, as beside an autoscaler, leaves them as they are.
        kept = {k: v for k, v in (current.get("spec") or {}).items() if k == "replicas"}
        asked = {k: v for k, v in (wanted.get("spec") or {}).items() if v is not None}
        wanted = wanted | {"spec": kept | asked}
    spec = LLMService.parse(wanted).spec
    try:
        measured = Measured.of(current or {})
        LLMServiceSpec.parse((current or wanted).get("spec") or {})
    except InvalidSpec as error:
        raise Unusable(f"in {source}: {error}") from error
    if measured.phase not in ("", Phase.READY):
        print(f"tidegate plan: in {source} it is {measured.phase}; the steps begin where it is whole", file=sys.stderr)
    grace = spec.drain.grace
    assume = forecast.Assumptions(
        start=_first(args.start_seconds, measured.rollout.start_seconds or None, 60.0),
        drain=_first(args.drain_seconds, measured.drain_times.p50_seconds, float(grace.initial_seconds)),
        teardown=_first(measured.teardown, float(grace.teardown_seconds)),
    )
    meta = wanted["metadata"]
    with forecast.Preview(meta.get("namespace") or "default", meta["name"], assume) as preview:
        if current is not None:
            preview.apply(current["spec"])
            preview.settle()
        preview.apply(wanted["spec"])
        return preview.settle()


def _render(args: argparse.Namespace, done: forecast.Forecast) -> list[str]:
    if args.output == "json":
        steps = [{"at": s.at, "step": s.text, "pods": s.pods, "serving": s.serving} for s in done.steps]
        document = {
            "steps": steps,
            "seconds": done.seconds,
            "boundSeconds": done.bound_seconds,
            "drained": done.drained,
            "leastServing": done.least_serving,
            "mostPods": done.most_pods,
        }
        return [json.dumps(document, indent=2)]
    if not done.steps:
        return ["Nothing changes: no pod is replaced, started or drained."]
    lines = [f"{'AT':>8}  {'PODS':>4}  {'SERVING':>7}  STEP"]
    lines += [f"{s.at:>7.0f}s  {s.pods:>4}  {s.serving:>7}  {s.text}" for s in done.steps]
    best = ""
    if done.bound_seconds is not None:
        ratio = f", {done.bound_seconds / done.seconds:.2f} of the time" if done.seconds else ""
        best = f"; no schedule could take less than {done.bound_seconds:.0f} s{ratio}"
    lines += [
        "",
        f"About {done.seconds:.0f} s{best}. "
        f"{done.drained} pods drained, never fewer than {done.least_serving} serving, never more than "
        f"{done.most_pods} pods.",
    ]
    return lines
