"""`tidegate gateway`: relay, count and drain the requests of one engine. It needs no Kubernetes."""

from __future__ import annotations

import argparse
import sys

from tidegate.gateway.options import OptionError, add_arguments, read

EPILOG = """\
Each option can also be set in the environment; the command line takes precedence. TIDEGATE_PRESTOP_KEY, a key for
GET /drain/prestop only, is read from the environment only. Routes are a JSON list; the longest prefix applies:
  [{"pathPrefix": "/v1/embeddings", "timeouts": {"connectSeconds": 1, "idleSeconds": 5, "totalSeconds": 30}}]
In front of any OpenAI-compatible server:
  tidegate gateway --listen :8080 --upstream 127.0.0.1:8000 --key-dir ./keys
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "gateway",
        help="run the gateway in front of an engine",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM. Exit code: 2 with an error message for an invalid option."""
    try:
        options = read(args)
    except OptionError as error:
        print(f"tidegate gateway: {error}", file=sys.stderr)
        return 2
    try:
        from tidegate.gateway.process import run as serve
    except ModuleNotFoundError as error:
        text = f"the Python module {error.name} is missing: run `pip install '.[gateway]'` in a checkout"
        print(f"tidegate gateway: {text}", file=sys.stderr)
        return 2
    return serve(options)
