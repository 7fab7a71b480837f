"""Waiting for what a thread, a task hub or another process does."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any


async def until(look: Callable[[], Any], seconds: float = 60) -> Any:
    """Look until what comes, or is awaited, is true; return it."""
    async with asyncio.timeout(seconds):
        while True:
            result = look()
            if isawaitable(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(0.02)
