"""HOST:PORT as the command line has it, checked as far as that goes without asking a name server."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

# RFC 1123, section 2.1, and the underscores that some container networks put into names.
_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_MAX_NAME = 253
_MAX_PORT = 65_535
EXAMPLE = "write HOST:PORT, for example 127.0.0.1:8080 or [::1]:8080"


@dataclass(frozen=True, slots=True)
class Address:
    """`host` is empty for all addresses of the machine, IPv4 and IPv6."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read HOST:PORT, [IPV6]:PORT or :PORT. Raises ValueError, whose text names the remedy."""
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if ":" in host and not bracketed:
            raise ValueError(f"{_shown(text)} is not HOST:PORT; put an IPv6 address in brackets: {EXAMPLE}")
        if not colon or not re.fullmatch(r"[0-9]{1,5}", port, re.ASCII) or int(port) > _MAX_PORT:
            raise ValueError(f"{_shown(text)} has no port from 0 to {_MAX_PORT}: {EXAMPLE}")
        if bracketed:
            host = host[1:-1]
        if bracketed or host:
            check_host(host, ipv6=bracketed)
        return cls(host, int(port))


def check_host(host: str, *, ipv6: bool = False) -> None:
    """Raise ValueError if it can be no host; `ipv6`: only an IPv6 address will do."""
    try:
        if not ipv6 or ipaddress.ip_address(host).version == 6:
            if not ipv6:
                _check_name(host)
            return
    except ValueError:
        pass
    else:
        raise ValueError(f"{_shown(host)} is not an IPv6 address, which alone stands in brackets: {EXAMPLE}")
    what = "an IPv6 address" if ipv6 else "a host name or an IPv4 address"
    raise ValueError(f"{_shown(host)} is not {what}: {EXAMPLE}")


def _check_name(host: str) -> None:
    labels = host.removesuffix(".").split(".")
    if re.fullmatch(r"[0-9]+", labels[-1], re.ASCII):
        # No top-level domain is a number, so this is meant to be an IPv4 address.
        ipaddress.IPv4Address(host)
    elif len(host) > _MAX_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(host)


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:57] + "...")
