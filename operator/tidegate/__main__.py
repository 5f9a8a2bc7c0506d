"""The console script `tidegate`. Each subcommand imports what it needs itself.

The image of the gateway holds neither kopf nor kubernetes nor pydantic, so nothing of them may be imported before a
subcommand is chosen.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from tidegate import __version__

COMMANDS = ("operator", "gateway", "crd", "plan", "estimate")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    from tidegate.cli.terminal import guarded

    return guarded(lambda: _run(argv))


def _run(argv: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    parser = argparse.ArgumentParser(prog="tidegate", description="Safe rollouts of LLM services on Kubernetes.")
    parser.add_argument("--version", action="version", version=f"tidegate {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _needed(arguments):
        import_module(f"tidegate.cli.{command}").add_parser(subparsers)
    args = parser.parse_args(arguments)
    code: int = args.run(args)
    return code


def _needed(arguments: Sequence[str]) -> Sequence[str]:
    """The command that is asked for, or all of them where help or an error has to list them."""
    return arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS


if __name__ == "__main__":
    sys.exit(main())
