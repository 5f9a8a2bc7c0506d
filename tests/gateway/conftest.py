"""Most tests of the gateway run in virtual time. Those that are about sockets run on both event loops it may have."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from gateway.virtual_loop import VirtualLoop


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sockets: about real sockets, so in real time, on asyncio's loop and on uvloop")
    config.addinivalue_line("markers", "virtual_time: in virtual time, within a module that is marked `sockets`")


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("sockets") and not item.get_closest_marker("virtual_time"):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"virtual": VirtualLoop}
