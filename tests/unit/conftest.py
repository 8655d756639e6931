"""Unit tests that wait choose the event loop whose time is virtual."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from tests.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualTimeLoop}
    return {"system": asyncio.new_event_loop}
