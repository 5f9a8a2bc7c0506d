"""The command line of `dev/cluster`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from .binary import build_binary
from .errors import ClusterError
from .prerequisites import extend_path
from .provider import Provider, choose_provider

EPILOG = """\
environment:
  TIDEGATE_KUBECONFIG=PATH   use the cluster of this kubeconfig instead of starting one
  TIDEGATE_PROVIDER=NAME     local, kind or existing, instead of what fits this machine
  TIDEGATE_CLUSTER_ID=ID     a second local cluster beside the one of this checkout
  TIDEGATE_CACHE=DIR         where the built Kubernetes is kept (default ~/.cache/tidegate)
"""


def main(arguments: Sequence[str]) -> int:
    """Run one verb; return the exit status. ClusterError becomes a sentence on stderr and status 1."""
    extend_path()
    options = _parser().parse_args(pass_through(arguments))
    try:
        return _run(options)
    except ClusterError as error:
        print(f"dev/cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("dev/cluster: interrupted", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    if options.verb == "build":
        print(build_binary().directory)
        return 0
    cluster = choose_provider(options.kubeconfig)
    if options.verb == "up":
        cluster.up(options.nodes)
    elif options.verb == "down":
        cluster.down()
    elif options.verb == "status":
        return _show_status(cluster, as_json=options.json)
    elif options.verb == "kubeconfig":
        print(cluster.kubeconfig())
    elif options.verb == "load":
        _load(cluster, options.archives)
    elif options.verb == "kubectl":
        _exec(cluster.kubectl(options.command))
    elif options.verb == "exec":
        os.environ["KUBECONFIG"] = str(cluster.kubeconfig())
        _exec(cluster.inside(options.command))
    return 0


def _load(cluster: Provider, archives: Sequence[Path]) -> None:
    for archive in archives:
        if not archive.is_file():
            raise ClusterError(f"there is no image archive at {archive}: make one with dev/image")
        cluster.load(archive.absolute())


def _exec(command: list[str]) -> None:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise ClusterError(f"cannot run {command[0]}: {error.strerror}") from None


def _show_status(cluster: Provider, *, as_json: bool) -> int:
    state = cluster.status()
    if as_json:
        print(json.dumps(state, indent=2))
        return 0
    nodes = state["nodes"]
    count = len(nodes) if isinstance(nodes, list) else 0
    print(f"{state['provider']} cluster: " + (f"up, {count} nodes" if state["up"] else "not up"))
    for label, key in (
        ("kubeconfig", "kubeconfig"),
        ("audit log", "auditLog"),
        ("logs", "logs"),
        ("shared logs", "hostPathLogs"),
    ):
        if state.get(key):
            print(f"  {label:12} {state[key]}")
    components = state.get("components")
    if isinstance(components, dict):
        for name, alive in components.items():
            print(f"  {name:24} {'runs' if alive else 'HAS ENDED'}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev/cluster",
        description="A Kubernetes cluster for demo, tests and people.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--kubeconfig", metavar="PATH", help="use the cluster of this kubeconfig instead of starting one"
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    up = verbs.add_parser("up", help="start the cluster; does nothing when it is up")
    up.add_argument("--nodes", type=_node_count, metavar="N", help="number of nodes (default 2)")
    verbs.add_parser("down", help="stop the cluster and remove everything it made")
    status = verbs.add_parser("status", help="show what is up and where its files are")
    status.add_argument("--json", action="store_true", help="for programs")
    verbs.add_parser("kubeconfig", help="print the path of the kubeconfig")
    verbs.add_parser("build", help="build the Kubernetes binary of the local cluster and print where it is")
    load = verbs.add_parser("load", help="import image archives on every node")
    load.add_argument("archives", nargs="+", type=Path, metavar="IMAGE.tar")
    for name, text in (
        ("kubectl", "run kubectl"),
        ("exec", "run a command in the cluster's network, with KUBECONFIG set"),
    ):
        verb = verbs.add_parser(name, help=text, add_help=False)
        verb.add_argument("command", nargs="+" if name == "exec" else "*", metavar="ARG")
    return parser


def pass_through(arguments: Sequence[str]) -> list[str]:
    """Put `--` behind kubectl and exec, so that options after them are theirs, not ours."""
    for index, word in enumerate(arguments):
        if word in ("kubectl", "exec") and (index == 0 or arguments[index - 1] != "--kubeconfig"):
            rest = list(arguments[index + 1 :])
            return [*arguments[: index + 1], "--", *(rest[1:] if rest[:1] == ["--"] else rest)]
        if not word.startswith("-") and (index == 0 or arguments[index - 1] != "--kubeconfig"):
            break
    return list(arguments)


def _node_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 20:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 20")
    return int(text)
