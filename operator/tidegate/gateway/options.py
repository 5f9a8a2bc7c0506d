"""The command line of `tidegate gateway`; each option is an environment variable too."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.contract.terms import MAX_SECONDS, Settings
from tidegate.gateway.timeouts import Profiles, Timeouts, parse_routes

PRESTOP_KEY = "TIDEGATE_PRESTOP_KEY"


class OptionError(ValueError):
    """An option that does not fit; the message names it."""


@dataclass(frozen=True, slots=True)
class Address:
    """`host` is empty for all addresses of the machine, of both families."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT, [IPV6]:PORT or :PORT; raises ValueError."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError(f"{text} is not HOST:PORT; an IPv6 address stands in brackets")
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError(f"{text} is not HOST:PORT")
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that a gateway is told."""

    listen: Address
    upstream: Address
    admin: Address
    key_dir: str
    prestop_key: str
    profiles: Profiles
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
    _Option("listen", ":8080", "HOST:PORT", "where clients come to; without HOST on all addresses"),
    _Option("upstream", "", "HOST:PORT", "the engine; required"),
    _Option("admin", ":9901", "HOST:PORT", "the drain contract, /readyz, /livez and /metrics"),
    _Option("key-dir", "", "DIR", "files `current` and `previous`: keys of the drain calls; none: nobody may drain it"),
    _Option("connect-seconds", f"{_TIMES.connect:g}", "S", "for a connection to the engine; 0: no limit"),
    _Option("idle-seconds", f"{_TIMES.idle:g}", "S", "of silence within a response that has begun; 0: no limit"),
    _Option("total-seconds", f"{_TIMES.total:g}", "S", "for a request, from its arrival to its last byte; 0: no limit"),
    _Option("routes", "[]", "JSON", "timeouts for some paths; see below"),
    _Option("engine", "Custom", "NAME", "the kind of the engine, for the log"),
    _Option("ready-path", "", "PATH", "what the engine answers with 2xx when it is ready; without it, that it listens"),
    _Option("warmup-path", "", "PATH", "a request to the engine before the gateway is ready, which must end in 2xx"),
    _Option("warmup-body", "", "JSON", "the body of that request, which makes it a POST"),
    _Option("grace-seconds", f"{_NUMBERS.grace:g}", "S", "from SIGTERM or preStop to the kubelet's SIGKILL"),
    _Option("propagation-seconds", f"{_NUMBERS.propagation:g}", "S", "of late arrivals after withdrawal, still served"),
    _Option("quiet-seconds", f"{_NUMBERS.quiet:g}", "S", "no arrival for so long before a drain is over"),
    _Option("flush-seconds", f"{_NUMBERS.flush:g}", "S", "before a deadline, to deliver shutdown tokens"),
    _Option("stalled-after-seconds", f"{_NUMBERS.stalled_after:g}", "S", "silence, then a stream holds none; 0: never"),
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
        raise OptionError("--upstream: the engine's HOST:PORT is needed")
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
        raise OptionError(f"--upstream: {given['upstream']} is not HOST:PORT; a host and a port from 1 are needed")
    if given["warmup-body"] and not given["warmup-path"]:
        raise OptionError("--warmup-body: nothing is asked without --warmup-path; set it, or leave the body out")
    return Options(
        listen=_address(given, "listen"),
        upstream=upstream,
        admin=_address(given, "admin"),
        key_dir=given["key-dir"],
        prestop_key=environment.get(PRESTOP_KEY, ""),
        profiles=Profiles(timeouts, routes),
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
    if path and (not path.startswith("/") or not path.isascii() or any(char.isspace() for char in path)):
        raise OptionError(f"--{name}: a path that begins with / is needed, not {path}")
    return path


def _seconds(given: Mapping[str, str], name: str) -> float:
    try:
        value = float(given[name])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise OptionError(f"--{name}: a number of seconds is needed, not {given[name]}")
    return min(value, MAX_SECONDS)
