"""Runs the tests of this folder on asyncio's event loop and on uvloop's, which the Azure worker uses."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config,  # noqa: ARG001 - pytest passes it by its name
    item: pytest.Item,  # noqa: ARG001 - likewise
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return what makes the loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
