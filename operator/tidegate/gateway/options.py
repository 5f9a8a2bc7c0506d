"""The command line of `tidegate gateway`; each option is an environment variable too."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.contract.terms import MAX_SECONDS, Settings
from tidegate.gateway.address import EXAMPLE, Address
from tidegate.gateway.timeouts import Profiles, Timeouts, parse_routes

PRESTOP_KEY = "TIDEGATE_PRESTOP_KEY"
_PATH = re.compile(r"/[\x21-\x7e]*")


class OptionError(ValueError):
    """An invalid option; the message names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The configuration of a gateway."""

    listen: Address
    upstream: Address
    admin: Address
    key_dir: str
    prestop_key: str
    profiles: Profiles
    keep_alive: float
    settings: Settings
    engine: str
    ready_path: str
    warmup_path: str
    warmup_body: str


@dataclass(frozen=True, slots=True)
class _Option:
    name: str
    default: str
    metavar: str
    text: str

    @property
    def variable(self) -> str:
        return "TIDEGATE_" + self.name.upper().replace("-", "_")

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")


_TIMES, _NUMBERS = Timeouts(), Settings()
OPTIONS = (
    _Option("listen", ":8080", "HOST:PORT", "where to accept clients; without HOST on all addresses"),
    _Option("upstream", "", "HOST:PORT", "the engine; required"),
    _Option("admin", ":9901", "HOST:PORT", "the drain contract, /readyz, /livez and /metrics"),
    _Option("key-dir", "", "DIR", "files `current` and `previous`: keys for drain calls; without it they are refused"),
    _Option("connect-seconds", f"{_TIMES.connect:g}", "S", "time limit for connecting to the engine; 0: none"),
    _Option("idle-seconds", f"{_TIMES.idle:g}", "S", "limit for silence in a response that has begun; 0: none"),
    _Option("total-seconds", f"{_TIMES.total:g}", "S", "limit for a request, from arrival to last byte; 0: none"),
    _Option("keep-alive-seconds", "620", "S", "how long a client's connection is kept without a request; 0: no limit"),
    _Option("routes", "[]", "JSON", "timeouts for some paths; see below"),
    _Option("engine", "Custom", "NAME", "the kind of the engine, for the log"),
    _Option("ready-path", "", "PATH", "answered with 2xx by a ready engine; without it, ready when it listens"),
    _Option("warmup-path", "", "PATH", "a request that the engine must answer with 2xx before the gateway is ready"),
    _Option("warmup-body", "", "JSON", "the body of that request, sent with POST"),
    _Option("grace-seconds", f"{_NUMBERS.grace:g}", "S", "time from SIGTERM or preStop to the kubelet's SIGKILL"),
    _Option("propagation-seconds", f"{_NUMBERS.propagation:g}", "S", "time to serve late requests after withdrawal"),
    _Option("quiet-seconds", f"{_NUMBERS.quiet:g}", "S", "time without new requests before a drain ends"),
    _Option("flush-seconds", f"{_NUMBERS.flush:g}", "S", "time before a deadline to send shutdown tokens"),
    _Option(
        "stalled-after-seconds", f"{_NUMBERS.stalled_after:g}", "S",
        "silence after which a stream delays no drain; 0: never",
    ),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    for option in OPTIONS:
        shown = f"default {option.default}, " if option.default else ""
        parser.add_argument(
            f"--{option.name}",
            metavar=option.metavar,
            help=f"{option.text} ({shown}{option.variable})".replace("%", "%%"),
        )


def read(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Options:
    """The options from the command line, else the environment, else the defaults; raises OptionError."""
    given = {}
    for option in OPTIONS:
        value = getattr(args, option.field)
        given[option.name] = value if value is not None else environment.get(option.variable) or option.default
    if not given["upstream"]:
        raise OptionError("--upstream: HOST:PORT of the engine is required, for example 127.0.0.1:8000")
    timeouts = Timeouts(*(_seconds(given, f"{name}-seconds") for name in ("connect", "idle", "total")))
    settings = {
        field.name: _seconds(given, f"{field.name}-seconds".replace("_", "-")) for field in dataclasses.fields(Settings)
    }
    try:
        routes = parse_routes(given["routes"], timeouts)
    except ValueError as error:
        raise OptionError(f"--{error}") from None
    upstream = _address(given, "upstream")
    if not upstream.host or not upstream.port:
        raise OptionError(f"--upstream: {given['upstream']!r} needs a host and a port above 0: {EXAMPLE}")
    _check_warmup(given)
    return Options(
        listen=_address(given, "listen"),
        upstream=upstream,
        admin=_address(given, "admin"),
        key_dir=given["key-dir"],
        prestop_key=environment.get(PRESTOP_KEY, ""),
        profiles=Profiles(timeouts, routes),
        keep_alive=_seconds(given, "keep-alive-seconds"),
        settings=Settings(**settings),
        engine=given["engine"],
        ready_path=_path(given, "ready-path"),
        warmup_path=_path(given, "warmup-path"),
        warmup_body=given["warmup-body"],
    )


def _address(given: Mapping[str, str], name: str) -> Address:
    try:
        return Address.parse(given[name])
    except ValueError as error:
        raise OptionError(f"--{name}: {error}") from None


def _path(given: Mapping[str, str], name: str) -> str:
    path = given[name]
    if path and not _PATH.fullmatch(path):
        raise OptionError(
            f"--{name}: {path!a} is not a path: begin with /, and write spaces and other than ASCII in percent encoding"
        )
    return path


def _check_warmup(given: Mapping[str, str]) -> None:
    body = given["warmup-body"]
    if not body:
        return
    if not given["warmup-path"]:
        raise OptionError("--warmup-body: requires --warmup-path; set it, or omit the body")
    try:
        json.loads(body.encode())
    except (ValueError, RecursionError) as error:
        # A ValueError too: what the environment holds beside UTF-8 cannot be encoded.
        raise OptionError(f"--warmup-body: not a JSON document in UTF-8: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]


def _seconds(given: Mapping[str, str], name: str) -> float:
    try:
        value = float(given[name])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise OptionError(f"--{name}: {given[name][:60]!a} is not a number of seconds from 0 up")
    return min(value, MAX_SECONDS)
