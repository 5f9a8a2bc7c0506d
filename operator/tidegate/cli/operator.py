"""`tidegate operator`: run the operator, in a cluster or against a kubeconfig."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from urllib.parse import urlsplit

from tidegate.api import names
from tidegate.gateway.address import Address


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("operator", help="run the operator", description=__doc__)
    parser.add_argument(
        "--liveness",
        type=_url,
        default="http://0.0.0.0:8080/healthz",
        metavar="URL",
        help="address for liveness probes (default %(default)s); empty: none",
    )
    parser.add_argument(
        "--metrics",
        type=_address,
        default=os.environ.get("TIDEGATE_METRICS", "0.0.0.0:8081"),
        metavar="HOST:PORT",
        help="address for Prometheus to scrape /metrics (default $TIDEGATE_METRICS or 0.0.0.0:8081); empty: none",
    )
    parser.add_argument(
        "--gateway-image",
        default=os.environ.get("TIDEGATE_GATEWAY_IMAGE") or names.GATEWAY_IMAGE,
        metavar="IMAGE",
        help="gateway image of services without spec.gateway.image (default $TIDEGATE_GATEWAY_IMAGE or %(default)s); "
        "a change rolls no pods",
    )
    parser.add_argument("--verbose", action="store_true", help="also log the messages of kopf and of the HTTP client")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM. Exit code: 1 with an error message if there is no cluster, 2 if a dependency is missing."""
    # As PID 1 of a container it would ignore SIGTERM until kopf handles it, after seconds of imports.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    from tidegate.api.errors import CannotListen, ClusterError

    try:
        from tidegate.controller.shell import run as serve
    except ModuleNotFoundError as error:
        text = f"the Python module {error.name} is missing: run `pip install '.[operator]'` in a checkout"
        print(f"tidegate operator: {text}", file=sys.stderr)
        return 2

    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    if not args.verbose:
        for name in ("kopf", "httpx", "httpcore", "aiohttp.access"):
            logging.getLogger(name).setLevel(logging.WARNING)
    try:
        asyncio.run(serve(args.liveness or None, args.metrics, args.gateway_image))
    except (ClusterError, CannotListen) as error:
        print(f"tidegate operator: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _url(text: str) -> str:
    """A URL to listen on; empty: none."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme == "http" and bool(parts.hostname) and bool(parts.port)
        if sound:
            Address.parse(parts.netloc)
    except ValueError:
        sound = False
    if text and not sound:
        raise argparse.ArgumentTypeError(
            f"{text!a} is not a URL: write http://HOST:PORT/PATH, for example http://0.0.0.0:8080/healthz"
        )
    return text


def _address(text: str) -> tuple[str, int] | None:
    """HOST:PORT, with an IPv6 host in brackets; empty: none."""
    if not text:
        return None
    try:
        address = Address.parse(text)
    except ValueError:
        address = None
    if address is None or not address.host or not address.port:
        raise argparse.ArgumentTypeError(f"{text!a} is not an address: write HOST:PORT, for example 0.0.0.0:8081")
    return address.host, address.port
